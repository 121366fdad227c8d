package tooltest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

func (s *suite) checkDeclaration(context.Context) error {
	d := s.decl
	if err := d.Check(); err != nil {
		return err
	}
	if _, err := schema.Compile(d.Schema); err != nil {
		return fmt.Errorf("the schema does not compile: %w", err)
	}
	switch {
	case d.Protocol != frames.Version:
		return fmt.Errorf("protocol %d, want %d", d.Protocol, frames.Version)
	case d.Replay != frames.ReplaySafe && d.Replay != frames.ReplayUnsafe:
		return fmt.Errorf("replay %q", d.Replay)
	case d.ExecutionMode != frames.Parallel && d.ExecutionMode != frames.Sequential:
		return fmt.Errorf("executionMode %q", d.ExecutionMode)
	case d.Instance != "" && (!frames.ValidName(d.Identity) || d.Digest == ""):
		return fmt.Errorf("an instance needs identity and digest, got %q and %q", d.Identity, d.Digest)
	}
	return nil
}

// checkDescribe asks the instance itself: for the tool, and for one that is not there.
func (s *suite) checkDescribe(ctx context.Context) error {
	fs, err := s.request(ctx, s.control(), frames.Describe(s.cfg.Tool))
	if err != nil {
		return err
	}
	if len(fs) != 1 || fs[0].Type != frames.TypeDescription || fs[0].Name != s.cfg.Tool {
		return fmt.Errorf("DESCRIBE was answered with %d frames, want the tool's DESCRIPTION", len(fs))
	}
	fs, err = s.request(ctx, s.control(), frames.Describe("no-such-tool"))
	if err == nil && len(fs) != 0 {
		return fmt.Errorf("DESCRIBE of an unknown tool was answered with %d frames, want END alone", len(fs))
	}
	return err
}

func (s *suite) checkCalls(ctx context.Context) error {
	for _, args := range s.cfg.Good {
		for _, enc := range s.encodings() {
			r, err := s.call(ctx, enc, s.newCall(args))
			if err != nil {
				return fmt.Errorf("%s in %v: %w", args, enc, err)
			}
			if r.Err != nil {
				return fmt.Errorf("%s in %v failed: %w", args, enc, r.Err)
			}
			if s.out == nil {
				continue
			}
			if err := s.out.ValidateOutput(r.ToolResult.Result); err != nil {
				return fmt.Errorf("%s in %v: the result does not fit the output schema: %w", args, enc, err)
			}
		}
	}
	return nil
}

// fitNowhere are arguments that fit no schema of a tool.
var fitNowhere = []json.RawMessage{
	json.RawMessage(`[]`), json.RawMessage(`"{}"`), json.RawMessage(`7`), json.RawMessage(`{`), json.RawMessage(`{"a":1,"a":2}`),
	json.RawMessage(`{"a":NaN}`), json.RawMessage(`{} {}`),
}

func (s *suite) checkBadArguments(ctx context.Context) error {
	for _, args := range slices.Concat(s.cfg.Bad, fitNowhere) {
		r, err := s.call(ctx, frames.Msgpack, s.newCall(args))
		if err != nil {
			return fmt.Errorf("%s: %w", args, err)
		}
		if err := refusedInput(r); err != nil {
			return fmt.Errorf("%s: %w", args, err)
		}
	}
	nan := s.newCall(nil)
	nan.Content = frames.Value(map[string]any{"arguments": map[string]any{"a": math.NaN()}})
	r, err := s.call(ctx, frames.Msgpack, nan)
	if err != nil {
		return err
	}
	if r.code() != frames.CodeValidationInput {
		return fmt.Errorf("NaN in the arguments was answered %w, want VALIDATION_INPUT", r.Err)
	}
	return nil
}

func refusedInput(r *result) error {
	switch {
	case r.code() != frames.CodeValidationInput:
		return fmt.Errorf("got %w, want VALIDATION_INPUT", r.Err)
	case r.Err.Effect != frames.EffectNone || !r.Err.Retryable:
		return fmt.Errorf("VALIDATION_INPUT with effect %s, retryable %v", r.Err.Effect, r.Err.Retryable)
	case len(r.Err.Issues) == 0:
		return fmt.Errorf("VALIDATION_INPUT without issues")
	}
	return nil
}

// hostile are messages that must be refused as a whole.
var hostile = map[string]string{
	"empty":              "",
	"no frame":           "\xc1",
	"not a map":          "\x93\x01\x02\x03",
	"map of billions":    "\xdf\xff\xff\xff\xff\xa1",
	"text of gigabytes":  "\x81\xa4type\xdb\xff\xff\xff\xff",
	"bytes of gigabytes": "\x81\xa4type\xc6\xff\xff\xff\xff",
	"list of billions":   "\x81\xa7content\xdd\xff\xff\xff\xff",
	"deep":               "\x82\xa4type\xa9TOOL_CALL\xa7content" + strings.Repeat("\x91", 10_000) + "\xc0",
	"deep JSON":          `{"type":"TOOL_CALL","content":{"arguments":` + strings.Repeat("[", 10_000) + `}}`,
	"number for a key":   "\x82\xa4type\xa9TOOL_CALL\x01\x01",
	"key twice":          "\x82\xa4type\xa9TOOL_CALL\xa4type\xa9TOOL_CALL",
	"foreign type":       "\x82\xa4type\xa9TOOL_CALL\xa7content\xd4\x05\x00",
	"broken text":        "\x82\xa4type\xa9TOOL_CALL\xa4name\xa2\xff\xfe",
	"cut off":            "\x82\xa4type\xa9TOOL_CALL\xa4name",
	"tail":               "\x81\xa4type\xa9TOOL_CALL\xc1",
	"no type":            "\x81\xa4name\xa1x",
	"future version":     "\x82\xa1v\x02\xa4type\xa9TOOL_CALL",
	"broken JSON":        `{"type":"TOOL_CALL"`,
	"JSON with a tail":   `{"type":"TOOL_CALL"} x`,
}

func (s *suite) checkHostile(ctx context.Context) error {
	for name, data := range hostile {
		if err := s.refusedFrame(ctx, []byte(data), ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return s.checkCalls(ctx)
}

// refusedFrame proves that a message is answered BAD_FRAME, for the call id.
func (s *suite) refusedFrame(ctx context.Context, data []byte, id string) error {
	x, err := s.openRaw(ctx, s.subject(), frames.Detect(data), data)
	if err != nil {
		return err
	}
	defer x.close()
	r, err := s.finishCall(ctx, x)
	if err != nil {
		return err
	}
	if r.code() != frames.CodeBadFrame || r.Err.Effect != frames.EffectNone || r.frame.ToolCallID != id {
		return fmt.Errorf("got %w for call %q, want BAD_FRAME for %q", r.Err, r.frame.ToolCallID, id)
	}
	return nil
}

// checkWrongFrames sends what can be read but is not one whole call of the tool.
func (s *suite) checkWrongFrames(ctx context.Context) error {
	good := s.newCall(s.cfg.Good[0])
	other, streamed := good, good
	other.Name = "no-such-tool"
	streamed.Metadata = append(good.Metadata.Clone(), frames.Field{Key: "streaming", Value: frames.Value(true)})
	unknown := frames.NewFrame("NEWS", nil)
	for name, tc := range map[string]struct {
		fs []*frames.Frame
		id string
	}{
		"another tool's name": {[]*frames.Frame{&other}, good.ToolCallID},
		"two calls":           {[]*frames.Frame{&good, &good}, good.ToolCallID},
		"a streamed call":     {[]*frames.Frame{&streamed}, good.ToolCallID},
		"an unknown type":     {[]*frames.Frame{&unknown}, ""},
	} {
		data, err := frames.Encode(frames.Msgpack, tc.fs...)
		if err != nil {
			return err
		}
		if err := s.refusedFrame(ctx, data, tc.id); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
