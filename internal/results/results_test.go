package results_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/results"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quoted(s string) json.RawMessage {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return out
}

func shown(r *frames.ToolResult, l frames.OutputLimits) (provider.Message, *frames.ToolResult) {
	return results.Shown("c1", r, l)
}

// What a model sees keeps to the limit with the line that says what is missing,
// wherever the limit falls in a rune.
//
// contract: E13, E16
// case: res-05-too-large
func TestLongTextOfWideRunes(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("日", 70_000)
	for form, r := range map[string]*frames.ToolResult{
		"value": {Result: quoted(text)},
		"parts": {Result: quoted(text), Parts: []frames.Part{{Type: "text", Text: text}}},
		"error": {Err: frames.NewError(frames.CodeExecution, "exit status 1"), Result: quoted(text)},
	} {
		for _, retain := range []string{"", frames.RetainHead, frames.RetainTail, frames.RetainBoth} {
			for limit := 65_530; limit <= 65_536; limit++ {
				m, kept := shown(r, frames.OutputLimits{MaxBytes: limit, Retain: retain})
				got, c := m.Content(), kept.Truncated
				if len(got) > limit || len(got) < limit-300 || !utf8.ValidString(got) {
					t.Fatalf("%s %s: %d bytes of %d, valid: %v", form, retain, len(got), limit, utf8.ValidString(got))
				}
				says := fmt.Sprintf("[%d of %d bytes, ", c.TotalBytes-c.Bytes, c.TotalBytes)
				if !strings.Contains(got, says) || !strings.Contains(got, c.Ref) || !strings.Contains(got, "read_result") {
					t.Fatalf("%s %s: does not say %q", form, retain, says)
				}
				if c.TotalBytes != int64(len(results.Whole(r))) || c.Ref != results.RefOf(results.Whole(r)) {
					t.Fatalf("%+v", c)
				}
			}
		}
	}
}

// contract: E13, E14, E15
func TestLimits(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	text := b.String()
	of := func(s string) *frames.ToolResult {
		return &frames.ToolResult{Result: quoted(s), Parts: []frames.Part{{Type: "text", Text: s}}}
	}
	m, kept := shown(of(text), frames.OutputLimits{})
	if got := m.Content(); !strings.HasPrefix(got, "line 1\n") || !strings.Contains(got, "line 1999\n[") || strings.Count(got, "\n") != 1999 {
		t.Errorf("2,000 lines by default, got %d", strings.Count(got, "\n"))
	}
	if kept.Truncated.Lines != 1999 || kept.Truncated.TotalLines != 3000 {
		t.Errorf("%+v", kept.Truncated)
	}
	if m, kept := shown(of(strings.Repeat("x", 51_200)), frames.OutputLimits{}); kept.Truncated != nil || len(m.Content()) != 51_200 {
		t.Error("cut at the default of 51,200 bytes")
	}
	if _, kept := shown(of(strings.Repeat("x", 51_201)), frames.OutputLimits{}); kept.Truncated == nil {
		t.Error("not cut over the default of 51,200 bytes")
	}
	m, _ = shown(of(text), frames.OutputLimits{MaxLines: 10, Retain: frames.RetainTail})
	if got := m.Content(); !strings.HasSuffix(got, "line 2999\nline 3000\n") || strings.Contains(got, "line 1\n") {
		t.Errorf("tail: %q", got)
	}
	m, _ = shown(of(text), frames.OutputLimits{MaxLines: 10, Retain: frames.RetainBoth})
	if got := m.Content(); !strings.HasSuffix(got, "line 3000\n") || !strings.HasPrefix(got, "line 1\n") {
		t.Errorf("both: %q", got)
	}
	m, _ = shown(of(text), frames.OutputLimits{MaxBytes: 200})
	if got := m.Content(); len(got) > 200 || !strings.Contains(got, "read_result") {
		t.Errorf("a small limit: %q", got)
	}
	m, _ = shown(of(text), frames.OutputLimits{MaxBytes: 1, MaxLines: 1})
	if got := m.Content(); len(got) > 1 {
		t.Errorf("the smallest limit: %q", got)
	}
}

// What is no text stays, and stands behind the text that was cut; details never
// come near a model, and the error stays with what it says.
//
// contract: E6, E7, E8
func TestPartsAndErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("words ", 20_000)
	image := frames.Part{Type: "image", MediaType: "image/png", Data: []byte{1, 2}}
	r := &frames.ToolResult{
		Result: quoted("v"), Details: json.RawMessage(`"secret detail"`),
		Parts: []frames.Part{{Type: "text", Text: long}, image, {Type: "text", Text: "last"}},
	}
	m, kept := shown(r, frames.OutputLimits{})
	if len(m.Parts) != 2 || m.Parts[0].Type != provider.PartText || len(m.Parts[0].Text) > 51_200 || m.Parts[1].Type != provider.PartImage {
		t.Errorf("parts %+v", m.Parts)
	}
	if strings.Contains(m.Content(), "secret") || len(kept.Parts) != 3 || kept.Parts[0].Text != long || kept.Details == nil {
		t.Error("programs have the whole, and the model has no details")
	}
	if !strings.Contains(m.Content(), "[image image/png, 2 bytes]") {
		t.Error("an image has no line for models that take none")
	}
	failed := &frames.ToolResult{Err: frames.NewError(frames.CodeExecution, "exit status 7"), Result: quoted(long)}
	m, _ = shown(failed, frames.OutputLimits{Retain: frames.RetainTail})
	if got := m.Content(); !strings.HasPrefix(got, "exit status 7\n") || !m.IsError || len(got) > 51_200 {
		t.Errorf("%v %.60q", m.IsError, got)
	}
}

func TestForeignRefsAreTakenOut(t *testing.T) {
	t.Parallel()
	_, kept := shown(&frames.ToolResult{Result: quoted("v"), Truncated: &frames.Truncated{TotalBytes: 9, Ref: "x"}}, frames.OutputLimits{})
	if kept.Truncated.Ref != "" || kept.Truncated.TotalBytes != 9 {
		t.Errorf("%+v", kept.Truncated)
	}
}

func TestReadRequests(t *testing.T) {
	t.Parallel()
	ref := results.RefOf("x")
	for args, says := range map[string]string{
		`{}`:                                "ref",
		`{"ref":"` + ref + `","offset":-1}`: "offset",
		`{"ref":"` + ref + `","head":1,"tail":1}`:             "want one of",
		`{"ref":"` + ref + `","grep":"("}`:                    "grep",
		`{"ref":"` + ref + `","lines":1}`:                     "lines",
		`{"ref":1}`:                                           "ref",
		`{"ref":"` + ref + `","offset":99999999999999999999}`: "",
	} {
		_, err := results.ReadRequest(json.RawMessage(args))
		if frames.CodeOf(err) != frames.CodeValidationInput || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func read(t *testing.T, whole, args string) (text string, value map[string]any) {
	t.Helper()
	q, err := results.ReadRequest(json.RawMessage(`{"ref":"` + results.RefOf(whole) + `",` + args + `}`))
	if err != nil {
		t.Fatal(err)
	}
	r := q.Read(whole)
	if m, kept := results.Shown("c", r, frames.OutputLimits{}); kept.Truncated != nil {
		t.Errorf("%s: a page was cut itself: %d bytes", args, len(m.Content()))
	}
	if err := json.Unmarshal(r.Result, &value); err != nil {
		t.Fatal(err)
	}
	return r.Parts[0].Text, value
}

// contract: E16
func TestReadParts(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	whole := b.String()
	for args, want := range map[string][2]string{
		`"offset":0`:              {"line 1\n", "to read on: \"offset\":"},
		`"offset":14,"bytes":14`:  {"line 3\nline 4\n[", "[bytes 14 to 28 of"},
		`"head":2`:                {"line 1\nline 2\n[", "\"offset\":14]"},
		`"tail":2`:                {"line 19999\nline 20000\n[", "this is the end"},
		`"tail":5000`:             {"line 18011\n", "this is the end"},
		`"grep":"line 1999\\d$"`:  {"19990@", "[10 of 10 lines that match, of 20000"},
		`"grep":"9"`:              {"9@", "[100 of "},
		`"grep":"nowhere"`:        {"[0 of 0", ""},
		`"offset":999999999`:      {"[bytes 208894 to 208894 of 208894", "the end"},
		`"offset":0,"bytes":1000`: {"line 1\n", "[bytes 0 to 9"},
	} {
		text, _ := read(t, whole, args)
		if !strings.HasPrefix(text, want[0]) || !strings.Contains(text, want[1]) {
			t.Errorf("%s:\n%.200s … %s", args, text, text[max(len(text)-200, 0):])
		}
	}
	var all strings.Builder
	for at := 0.0; ; {
		text, value := read(t, whole, fmt.Sprintf(`"offset":%d`, int(at)))
		all.WriteString(text[:strings.LastIndex(text, "[bytes ")])
		next, more := value["nextOffset"].(float64)
		if !more {
			break
		}
		at = next
	}
	if all.String() != whole {
		t.Error("the pages are not the whole")
	}
}
