package tool

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// outcome makes what the call answers of what its handler gave.
func (c *call) outcome(ctx context.Context, res *frames.ToolResult, err error) *frames.ToolResult {
	out := &frames.ToolResult{}
	if res != nil {
		copied := *res
		out = &copied
	}
	out.Err = c.errorOf(ctx, out.Err, err, res != nil)
	if bad := c.check(out); bad != nil {
		if out.Err != nil { // what stands beside an error is lost, the error is not
			c.log.Error("result beside an error dropped", "error", bad)
			bad = out.Err
		}
		out = &frames.ToolResult{Err: bad}
	}
	return c.stamped(out)
}

// errorOf gives the call's error: why its context ended, else what the handler said.
func (c *call) errorOf(ctx context.Context, inResult *frames.Error, err error, hasResult bool) *frames.Error {
	if err == nil && inResult != nil {
		err = inResult
	}
	switch {
	case ctx.Err() != nil:
		return c.stoppedError(ctx, err, hasResult)
	case err == nil:
		return nil
	}
	return c.said(err)
}

// said gives a handler's error as it leaves. A tool that asks for retries means
// them for all that it does not say otherwise of.
func (c *call) said(err error) *frames.Error {
	e := said(err)
	if _, ok := errors.AsType[*frames.Error](err); !ok && e.Code == frames.CodeExecution && c.tool.decl.Retries > 0 {
		return e.With(func(e *frames.Error) { e.Retryable = true })
	}
	return e
}

// stoppedError is the error of a call whose context ended. The handler knows
// best what was done by then.
func (c *call) stoppedError(ctx context.Context, err error, hasResult bool) *frames.Error {
	stopped := stopError(ctx, &c.tool.decl)
	said, ok := errors.AsType[*frames.Error](err)
	return stopped.With(func(e *frames.Error) {
		switch {
		case ok:
			e.Effect = said.Effect
		case err == nil && hasResult:
			e.Effect = frames.EffectDone
		}
	})
}

// check refuses a result that cannot travel or does not fit the tool's schema.
func (c *call) check(r *frames.ToolResult) *frames.Error {
	if err := checkText(r); err != nil {
		return err
	}
	if n := size(r); n > c.inline {
		return tooLarge(frames.TooLarge("the result of tool "+c.info.Tool, int64(n), int64(c.inline)))
	}
	if r.Err != nil || c.tool.out == nil {
		return nil //nolint:nilerr // an error of the tool's own is held to no schema
	}
	value := r.Result
	if value == nil {
		value = json.RawMessage("{}")
	}
	if err := c.tool.out.ValidateOutput(value); err != nil {
		return frames.AsError(err)
	}
	return nil
}

// checkText refuses text that is not JSON. A nil result is left as it is.
func checkText(r *frames.ToolResult) *frames.Error {
	if r.Result != nil {
		if p := jsontext.Check(r.Result, jsontext.Limits{}); p != nil {
			return notEncodable("the result", errors.New(p.String()))
		}
	}
	for _, f := range []struct {
		what string
		text json.RawMessage
	}{{"details", r.Details}, {"usage", r.Usage}} {
		if f.text == nil {
			continue
		}
		if _, err := frames.FromJSON(f.text); err != nil {
			return notEncodable(f.what, err)
		}
	}
	return nil
}

func size(r *frames.ToolResult) int {
	n := len(r.Result) + len(r.Details) + len(r.Usage)
	for i := range r.Parts {
		n += len(r.Parts[i].Text) + len(r.Parts[i].Data) + len(r.Parts[i].URI)
	}
	return n
}

// stamped adds what the service knows of the run.
func (c *call) stamped(r *frames.ToolResult) *frames.ToolResult {
	r.Duration = time.Since(c.started)
	r.Instance = c.instance
	r.Attempts = c.info.Attempt + 1
	return r
}
