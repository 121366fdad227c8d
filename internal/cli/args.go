package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
)

// maxArguments is what a shipped server takes inline.
const maxArguments = 4 << 20

// inputLimit is how long a program may take to write all of the input.
const inputLimit = time.Minute

// readInput reads stdin to its end. What is too long is TOO_LARGE; input that
// does not end is wrong use. A person at a terminal may take their time.
func (c *console) readInput(ctx context.Context, what string, most int) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	got := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(c.in, int64(most)+1))
		got <- result{text, err}
	}()
	var late <-chan time.Time
	if !c.inLive {
		timer := time.NewTimer(inputLimit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case r := <-got:
		return checkInput(r.text, r.err, what, most)
	case <-late:
		return nil, usageError("%s: stdin did not end within %v", what, inputLimit)
	case <-ctx.Done():
		return nil, frames.AsError(context.Cause(ctx))
	}
}

func checkInput(text []byte, err error, what string, most int) ([]byte, error) {
	switch {
	case err != nil:
		return nil, usageError("%s: cannot read stdin: %w", what, err)
	case len(text) > most:
		return nil, tooLong(most)
	}
	return text, nil
}

func tooLong(most int) error {
	return frames.NewError(frames.CodeTooLarge, "input is over the limit of %d bytes", most)
}

// jsonArguments takes the arguments of a call as one JSON text.
func jsonArguments(text []byte) (json.RawMessage, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, usageError("--args: stdin is empty; no arguments are {}")
	}
	if !utf8.Valid(text) {
		return nil, frames.NewError(frames.CodeValidationInput, "--args is not UTF-8").WithReason("invalid_json")
	}
	if !json.Valid(text) {
		var v any
		return nil, frames.NewError(frames.CodeValidationInput, "--args is no JSON: %w", json.Unmarshal(text, &v)).WithReason("invalid_json")
	}
	return text, nil
}

// reasonUsage marks wrong use of the command line: exit code 2.
const reasonUsage = "usage"

func usageError(format string, args ...any) error {
	return frames.NewError(frames.CodeBadFrame, format, args...).WithReason(reasonUsage)
}

// pairArguments keeps the order of the pairs.
func pairArguments(schema json.RawMessage, pairs []string) (json.RawMessage, error) {
	types := propertyTypes(schema)
	seen := map[string]bool{}
	out := []byte{'{'}
	for _, p := range pairs {
		key, value, isJSON, err := splitPair(p)
		if err != nil {
			return nil, err
		}
		if seen[key] {
			return nil, usageError("%s stands twice", key)
		}
		seen[key] = true
		text := json.RawMessage(value)
		if !isJSON {
			text = typed(value, types[key])
		} else if !json.Valid(text) {
			return nil, frames.NewError(frames.CodeValidationInput, "%s:= wants JSON, got %q", key, value)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quote(key)...), ':'), text...)
	}
	return append(out, '}'), nil
}

func splitPair(p string) (key, value string, isJSON bool, err error) {
	i := strings.IndexByte(p, '=')
	if i <= 0 {
		return "", "", false, usageError("%q: want key=value or key:=json", p)
	}
	if p[i-1] == ':' && i > 1 {
		return p[:i-1], p[i+1:], true, nil
	}
	return p[:i], p[i+1:], false, nil
}

// propertyTypes gives the types that a schema allows for each property.
func propertyTypes(schema json.RawMessage) map[string][]string {
	var s struct {
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil // a schema that has no such form types nothing
	}
	out := map[string][]string{}
	for name, p := range s.Properties {
		var one string
		var many []string
		if json.Unmarshal(p.Type, &one) == nil {
			many = []string{one}
		} else if json.Unmarshal(p.Type, &many) != nil {
			continue
		}
		out[name] = many
	}
	return out
}

// typed writes a value of the command line as the first type that it fits; a
// string where it fits none, so that the tool's schema says what is wrong.
func typed(value string, types []string) json.RawMessage {
	for _, t := range types {
		switch t {
		case "integer", "number":
			if _, err := strconv.ParseFloat(value, 64); err == nil && json.Valid([]byte(value)) {
				return json.RawMessage(value)
			}
		case "boolean":
			if value == "true" || value == "false" {
				return json.RawMessage(value)
			}
		case "null":
			if value == "null" {
				return json.RawMessage(value)
			}
		case "object", "array":
			if json.Valid([]byte(value)) && (value[0] == '{' || value[0] == '[') {
				return json.RawMessage(value)
			}
		case "string":
			return quote(value)
		}
	}
	return quote(value)
}

func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) //nolint:errchkjson // a string always has a JSON form
	return bytes.TrimSpace(b.Bytes())
}
