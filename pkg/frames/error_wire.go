package frames

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of an error's parts on the wire, in bytes; longer ones are cut.
const (
	maxMessage = 8 << 10
	maxIssue   = 1 << 10
	maxIssues  = 32
)

// Raw gives the error as content: the shape of docs/protocol.md, section 6, its texts
// bounded.
func (e *Error) Raw() Raw {
	c := Fields{
		{"code", Value(string(e.Code))},
		{"message", Value(shortenTo(e.Message, maxMessage))}, {"llmMessage", Value(shortenTo(e.ForModel(), maxMessage))},
		{"retryable", Value(e.Retryable)}, {"effect", Value(string(e.Effect))},
	}
	if e.Reason != "" {
		c.Set("reason", Value(e.Reason))
	}
	if e.RetryAfter > 0 {
		c.Set("retryAfterMs", Value(e.RetryAfter.Milliseconds()))
	}
	if len(e.Issues) > 0 {
		c.Set("issues", issuesRaw(e.Issues))
	}
	if e.Hook != "" {
		c.Set("hook", Value(e.Hook))
	}
	return c.Raw()
}

func issuesRaw(issues []Issue) Raw {
	var items []Raw
	for _, i := range issues[:min(len(issues), maxIssues)] {
		fs := Fields{{"path", Value(shortenTo(i.Path, maxIssue))}}
		for _, f := range []struct{ key, v string }{{"expected", i.Expected}, {"got", i.Got}, {"message", i.Message}} {
			if f.v != "" {
				fs = append(fs, Field{f.key, Value(shortenTo(f.v, maxIssue))})
			}
		}
		items = append(items, fs.Raw())
	}
	return Value(items)
}

var reasonPattern = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// ErrorFrom reads an error's content. A code that is not of the list becomes
// EXECUTION and is kept as the reason, if it fits one and none is said. Content
// of nothing but a message is read too.
func ErrorFrom(c Raw) *Error {
	code := Code(c.text("code"))
	e := &Error{Code: code, Reason: c.text("reason")}
	if !code.Valid() {
		e.Code = CodeExecution
		if e.Reason == "" {
			e.Reason = strings.ToLower(string(code))
		}
	}
	if !reasonPattern.MatchString(e.Reason) {
		e.Reason = ""
	}
	e.Message = shortenTo(c.text("message"), maxMessage)
	e.LLMMessage = shortenTo(c.text("llmMessage"), maxMessage)
	e.readTraits(c)
	e.Issues = issuesFrom(c.Lookup("issues"))
	if hook := c.text("hook"); ValidName(hook) {
		e.Hook = hook
	}
	return e
}

// readTraits takes what is said, else the code's defaults.
func (e *Error) readTraits(c Raw) {
	t := traits[e.Code]
	e.Retryable, e.Effect = t.retryable, t.effect
	if b, ok := c.Lookup("retryable").Bool(); ok {
		e.Retryable = b
	}
	if s := Effect(c.text("effect")); slices.Contains([]Effect{EffectNone, EffectDone, EffectUnknown}, s) {
		e.Effect = s
	}
	e.RetryAfter = millis(c.Lookup("retryAfterMs"))
}

func issuesFrom(r Raw) []Issue {
	var out []Issue
	for c := r.items(); c.next() && len(out) < maxIssues; {
		v, text := c.value, func(key string) string { return shortenTo(c.value.text(key), maxIssue) }
		if v.Kind() == KindMap {
			out = append(out, Issue{text("path"), text("expected"), text("got"), text("message")})
		}
	}
	return out
}

// millis reads a duration in milliseconds, fractions of them cut off; 0 where
// it is none or negative.
func millis(v Raw) time.Duration {
	ms, ok := v.Float64()
	if !ok || math.IsNaN(ms) || ms < 0 {
		return 0
	}
	const most = math.MaxInt64 / float64(time.Millisecond)
	return time.Duration(min(ms, math.Floor(most))) * time.Millisecond
}

// Err gives the error that an ERROR frame carries, nil on other frames.
func (f *Frame) Err() error {
	if f.Type != TypeError {
		return nil
	}
	return ErrorFrom(f.Content)
}

// MarshalJSON writes the error as on the wire.
func (e *Error) MarshalJSON() ([]byte, error) { return e.Raw().JSON() }
