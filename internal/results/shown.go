package results

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weavebus/weavebus/internal/cuttext"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Shown gives what a model sees of a call's result, kept to limits whose zero
// fields are the defaults of [frames.OutputLimits], and the result as it is kept:
// Truncated says what was cut, and Ref there what [Whole] is read by. A result that
// keeps to the limits has no Ref. It gives the same each time.
func Shown(callID string, r *frames.ToolResult, l frames.OutputLimits) (provider.Message, *frames.ToolResult) {
	text := Whole(r)
	most := cmp.Or(l.MaxBytes, frames.DefaultMaxBytes)
	before := ahead(r, most/2)
	limits := cuttext.Limits{
		Bytes: most - len(before), Lines: max(cmp.Or(l.MaxLines, frames.DefaultMaxLines)-strings.Count(before, "\n"), 1),
		Retain: cuttext.Retain(l.Retain),
	}
	ref := ""
	c, cut := cuttext.New(text).Cut(limits, func(c cuttext.Cut) string {
		if ref == "" {
			ref = RefOf(text)
		}
		return mark(c, ref, limits.Bytes)
	})
	if !cut {
		return provider.ToolMessage(callID, r), withoutRef(r)
	}
	kept := *r
	kept.Truncated = &frames.Truncated{
		Bytes: int64(c.Bytes), Lines: int64(c.Lines), TotalBytes: int64(c.TotalBytes), TotalLines: int64(c.TotalLines), Ref: ref,
	}
	m := provider.ToolMessage(callID, r)
	m.Text, m.Parts = before+c.Text, nil
	if rest := withoutText(r.Parts); len(rest) > 0 {
		shown := frames.ToolResult{Err: r.Err, Parts: append([]frames.Part{{Type: string(provider.PartText), Text: m.Text}}, rest...)}
		m = provider.ToolMessage(callID, &shown)
	}
	return m, &kept
}

// fewBytes is a limit that has no room for a long mark.
const fewBytes = 1024

// mark is the line that stands for what a model does not see.
func mark(c cuttext.Cut, ref string, limit int) string {
	if limit < fewBytes {
		return fmt.Sprintf("[%d bytes cut: %s %s]", c.TotalBytes-c.Bytes, ToolName, ref)
	}
	out := fmt.Sprintf("%d of %d bytes, %d of %d lines", c.TotalBytes-c.Bytes, c.TotalBytes, c.TotalLines-c.Lines, c.TotalLines)
	args := fmt.Sprintf("{\"ref\":%q,\"offset\":%d}", ref, c.Resume)
	return fmt.Sprintf("[%s are left out here. To read on: %s %s, or with head, tail or grep]", out, ToolName, args)
}

// withoutRef takes out a ref that nobody can read.
func withoutRef(r *frames.ToolResult) *frames.ToolResult {
	if r.Truncated == nil || r.Truncated.Ref == "" {
		return r
	}
	kept, truncated := *r, *r.Truncated
	truncated.Ref = ""
	kept.Truncated = &truncated
	return &kept
}

// Whole gives the text that limits bound: that of the parts, else the value, else
// the error.
func Whole(r *frames.ToolResult) string {
	switch {
	case len(r.Parts) > 0:
		return partsText(r.Parts)
	case r.Err != nil && !hasValue(r.Result):
		return r.Err.ForModel()
	case r.Result == nil:
		return "{}"
	}
	return string(r.Result)
}

func hasValue(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }

// ahead gives what stands before the whole and is not cut with it: the error that
// a value stands beside.
func ahead(r *frames.ToolResult, most int) string {
	if r.Err == nil || len(r.Parts) > 0 || !hasValue(r.Result) {
		return ""
	}
	text := cuttext.New(r.Err.ForModel()).From(0, max(most, 1), frames.DefaultMaxLines).Text
	return text + "\n"
}

func partsText(parts []frames.Part) string {
	var texts []string
	for i := range parts {
		if isText(&parts[i]) {
			texts = append(texts, parts[i].Text)
		}
	}
	return strings.Join(texts, "\n")
}

func isText(p *frames.Part) bool { return p.Type == string(provider.PartText) || p.Text != "" }

func withoutText(parts []frames.Part) []frames.Part {
	var out []frames.Part
	for i := range parts {
		if !isText(&parts[i]) {
			out = append(out, parts[i])
		}
	}
	return out
}

// refLength keeps refs short: a model writes them, and they need to be unlike only
// within one session.
const refLength = 24

// RefOf gives the name of a text: the head of its SHA-256 in hex.
func RefOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:refLength]
}

// ValidRef reports whether a ref may be one of [RefOf].
func ValidRef(ref string) bool {
	return len(ref) == refLength && strings.Trim(ref, "0123456789abcdef") == ""
}

// Ref gives the name by which the whole of a result is read; empty where nothing
// was cut.
func Ref(r *frames.ToolResult) string {
	if r == nil || r.Truncated == nil {
		return ""
	}
	return r.Truncated.Ref
}
