package dispatch

import (
	"slices"

	"github.com/weavebus/weavebus/pkg/frames"
)

// tidy takes out of a result what a tool cannot know, or may not say: what
// refers to the mesh's own store, times that nobody waits for, and that a call
// may be repeated which its declaration does not allow to.
func (a *attempt) tidy(res *frames.ToolResult) {
	res.Extra = slices.DeleteFunc(res.Extra, func(f frames.Field) bool { return f.Key == "ref" })
	if t := res.Truncated; t != nil {
		t.Ref = ""
		for _, n := range []*int64{&t.Bytes, &t.Lines, &t.TotalBytes, &t.TotalLines} {
			*n = max(*n, 0)
		}
	}
	if res.Err != nil {
		res.Err = a.tidyError(res.Err)
	}
}

func (a *attempt) tidyError(e *frames.Error) *frames.Error {
	mayRun := a.Declaration.ReplaySafe()
	return e.With(func(e *frames.Error) {
		e.RetryAfter = min(e.RetryAfter, frames.MaxTimeout)
		switch e.Code {
		case frames.CodeTimeout, frames.CodeInterrupted, frames.CodeNoResult:
			e.Retryable = e.Retryable && mayRun
		}
	})
}

// saysNothing reports whether an EXECUTION leaves open if it may be retried: the
// tool's declaration, which asks for retries or does not, decides then.
func saysNothing(f *frames.Frame, err *frames.Error) bool {
	return err != nil && err.Code == frames.CodeExecution && f.Content.Lookup("error").Lookup("retryable").Absent()
}
