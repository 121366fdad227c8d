package manifesttools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/internal/yamltext"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// manifestVersion is that of the published format.
	manifestVersion = "1.0"
	// maxFile is how many bytes a file of declarations may have.
	maxFile = 1 << 20
	// maxTools is how many tools one file may declare.
	maxTools = 256
)

// entry is one tool of a file: its declaration, and one of the two ways to run it.
type entry struct {
	at       place
	decl     frames.Declaration
	command  *command
	endpoint *endpoint
}

// rules say what a file may hold beyond its grammar.
type rules struct {
	// published: it must be a published manifest, not a single tool.
	published bool
	// remote: it came from somewhere else, so it may not name programs.
	remote bool
	// dir is the folder that relative programs lie in.
	dir     string
	secrets *secrets
}

// parse reads a file of declarations, as JSON: one tool, or a published manifest,
// which has "tools". The error is VALIDATION_INPUT and says where.
func (r rules) parse(text json.RawMessage) ([]entry, error) {
	members, err := place("").object(text)
	if err != nil {
		return nil, err
	}
	if _, many := members["tools"]; many || r.published {
		return r.manifest(members)
	}
	e, err := r.tool("", text)
	if err != nil {
		return nil, err
	}
	return []entry{*e}, nil
}

func isYAML(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// asJSON gives the text of a file as JSON that was checked. The error is
// VALIDATION_INPUT, or TOO_LARGE.
func asJSON(data []byte, isYAML bool) (json.RawMessage, error) {
	if len(data) > maxFile {
		return nil, frames.TooLarge("the file", int64(len(data)), maxFile)
	}
	text := json.RawMessage(data)
	if isYAML {
		var err error
		if text, err = yamltext.JSON(data); err != nil {
			return nil, refused("%s", jsontext.Clip(err.Error(), 300))
		}
	}
	if p := jsontext.Check(text, jsontext.Limits{}); p != nil {
		return nil, refused("%s near %q", p, jsontext.Near(text, p.Offset))
	}
	return text, nil
}

func refused(format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeValidationInput, format, args...).WithReason("bad_manifest").
		With(func(e *frames.Error) { e.Retryable = false })
}

// manifest reads the published format.
func (r rules) manifest(members map[string]json.RawMessage) ([]entry, error) {
	if v := members["version"]; string(v) != `"`+manifestVersion+`"` {
		return nil, place("/version").refuse("is %s, only the text %q is read", show(v), manifestVersion)
	}
	if err := place("").known(members, "version", "tools", "$schema"); err != nil {
		return nil, err
	}
	items, err := place("/tools").list(members["tools"])
	if err != nil {
		return nil, err
	}
	if len(items) > maxTools {
		return nil, place("/tools").refuse("has %d tools, the limit is %d", len(items), maxTools)
	}
	all := make([]entry, 0, len(items))
	for i, item := range items {
		e, err := r.tool(place(fmt.Sprintf("/tools/%d", i)), item)
		if err != nil {
			return nil, err
		}
		all = append(all, *e)
	}
	return all, nil
}

// declared are the keys of a tool that its declaration has too.
var declared = []string{
	"title", "description", "name", "version", "capabilities", "annotations", "transactional", "reversible", "timeoutMs",
	"idleTimeoutMs", "retries", "backoff", "replay", "executionMode", "lockKey", "concurrency", "outputLimits",
}

// own are the other keys of a tool.
var own = []string{"inputSchema", "outputSchema", "command", "args", "env", "endpoint", "headers", "$schema"}

// nested are the keys of a tool's members that are objects.
var nested = map[string][]string{
	"annotations":  keysOf(frames.Annotations{}),
	"outputLimits": keysOf(frames.OutputLimits{}),
	"backoff":      keysOf(frames.Backoff{}),
}

// keysOf gives the keys of a struct in JSON.
func keysOf(v any) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}

// tool reads one tool.
func (r rules) tool(at place, text json.RawMessage) (*entry, error) {
	members, err := at.object(text)
	if err != nil {
		return nil, err
	}
	if err := at.known(members, slices.Concat(declared, own)...); err != nil {
		return nil, err
	}
	for _, key := range []string{"name", "description", "inputSchema"} {
		if isNull(members[key]) {
			return nil, at.in(key).refuse("is missing")
		}
	}
	for key, keys := range nested {
		if v := members[key]; !isNull(v) {
			if err := at.in(key).knownIn(v, keys...); err != nil {
				return nil, err
			}
		}
	}
	e := &entry{at: at}
	if e.decl, err = at.declaration(members); err != nil {
		return nil, err
	}
	return e, r.runner(e, members)
}

// declaration makes a declaration of a tool's members, in the form of the bus.
func (at place) declaration(members map[string]json.RawMessage) (frames.Declaration, error) {
	var fields frames.Fields
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(declared, key) && !extra(key) {
			continue
		}
		v, err := frames.FromJSON(members[key])
		if err != nil {
			return frames.Declaration{}, at.in(key).refuse("%s", frames.AsError(err).Message)
		}
		fields.Set(key, v)
	}
	for _, s := range []struct{ key, to string }{{"inputSchema", "schemaJson"}, {"outputSchema", "outputSchemaJson"}} {
		v := members[s.key]
		if isNull(v) {
			continue
		}
		if err := checkSchema(v, s.key == "inputSchema"); err != nil {
			return frames.Declaration{}, at.in(s.key).refused(err)
		}
		fields.Set(s.to, frames.Value(string(v)))
	}
	d, err := frames.DeclarationFrom(fields.Raw())
	if err != nil {
		return frames.Declaration{}, at.refused(err)
	}
	return *d, nil
}

func checkSchema(text json.RawMessage, arguments bool) error {
	s, err := schema.Compile(text)
	if err == nil && arguments {
		err = s.ForArguments()
	}
	return err
}

// runner reads how a tool is run.
func (r rules) runner(e *entry, members map[string]json.RawMessage) error {
	_, isCommand := members["command"]
	_, isEndpoint := members["endpoint"]
	switch {
	case isCommand == isEndpoint:
		return e.at.refuse("a tool has either a command or an endpoint")
	case isCommand && r.remote:
		return e.at.in("command").refuse("a manifest from a URL may not name programs of this host")
	case isCommand:
		return r.readCommand(e, members)
	}
	return r.readEndpoint(e, members)
}

func isNull(v json.RawMessage) bool { return v == nil || string(v) == "null" }

func extra(key string) bool { return strings.HasPrefix(key, "x-") }

// show gives a value for a message.
func show(v json.RawMessage) string {
	if v == nil {
		return "missing"
	}
	return jsontext.Clip(string(bytes.ToValidUTF8(v, []byte("\uFFFD"))), 60)
}
