package cuttext_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/cuttext"
)

func mark(c cuttext.Cut) string {
	return fmt.Sprintf("[%d of %d bytes, %d of %d lines, from %d]", c.TotalBytes-c.Bytes, c.TotalBytes, c.TotalLines-c.Lines, c.TotalLines, c.Resume)
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

func TestCut(t *testing.T) {
	t.Parallel()
	quoted := `{"out":` + strconv.Quote(numbered(100)) + `}`
	tests := map[string]struct {
		text        string
		limits      cuttext.Limits
		begin, end  string
		bytes, line int
	}{
		"head by lines":     {numbered(100), cuttext.Limits{1000, 4, cuttext.Head}, "line 1\nline 2\nline 3\n[", "from 21]", 21, 3},
		"tail by lines":     {numbered(100), cuttext.Limits{1000, 4, cuttext.Tail}, "[", "from 0]\nline 98\nline 99\nline 100\n", 25, 3},
		"both by lines":     {numbered(100), cuttext.Limits{1000, 5, cuttext.Both}, "line 1\nline 2\n[", "from 14]\nline 99\nline 100\n", 31, 4},
		"head at a line":    {numbered(100), cuttext.Limits{150, 99, cuttext.Head}, "line 1\n", "]", 95, 13},
		"tail at a line":    {numbered(100), cuttext.Limits{150, 99, cuttext.Tail}, "[", "]\nline 89\n", 0, 0},
		"one long line":     {strings.Repeat("日", 100), cuttext.Limits{150, 9, cuttext.Head}, "日日", "]", 105, 1},
		"its end":           {strings.Repeat("日", 100), cuttext.Limits{150, 9, cuttext.Tail}, "[", "日日", 105, 1},
		"JSON by lines":     {quoted, cuttext.Limits{1000, 3, cuttext.Head}, `{"out":"line 1\nline 2\n` + "\n[", "]", 0, 2},
		"no room for words": {numbered(100), cuttext.Limits{20, 9, cuttext.Head}, "line 1\nline 2\n", "line 2\n", 14, 2},
		"one line":          {numbered(100), cuttext.Limits{500, 1, cuttext.Head}, "line 1\n", "line 1\n", 7, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ok := cuttext.New(tt.text).Cut(tt.limits, mark)
			if !ok || !strings.HasPrefix(c.Text, tt.begin) || !strings.Contains(c.Text, tt.end) {
				t.Errorf("%v, got\n%s", ok, c.Text)
			}
			if tt.bytes > 0 && c.Bytes != tt.bytes || tt.line > 0 && c.Lines != tt.line {
				t.Errorf("%d bytes, %d lines; want %d, %d", c.Bytes, c.Lines, tt.bytes, tt.line)
			}
		})
	}
}

// texts draws texts of lines, of any runes, and JSON of them.
func texts(t *rapid.T) string {
	line := rapid.OneOf(rapid.StringN(0, 40, -1), rapid.Just("\\n"), rapid.Just("\\\\"), rapid.Just("日本語 😀"), rapid.Just(""))
	text := strings.Join(rapid.SliceOfN(line, 0, 60).Draw(t, "lines"), "\n")
	switch rapid.IntRange(0, 2).Draw(t, "form") {
	case 1:
		out, err := json.Marshal(map[string]string{"out": text})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	case 2:
		ascii := strings.ReplaceAll(fmt.Sprintf("%+q", strings.ToValidUTF8(text, "")), `\U0001f600`, `\ud83d\ude00`)
		return ascii
	}
	return text
}

// contract: E13, E14, E15, E16
func TestCutsKeepToTheirLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := texts(t)
		l := cuttext.Limits{
			Bytes: rapid.IntRange(1, 600).Draw(t, "bytes"), Lines: rapid.IntRange(1, 40).Draw(t, "most lines"),
			Retain: rapid.SampledFrom([]cuttext.Retain{cuttext.Head, cuttext.Tail, cuttext.Both}).Draw(t, "retain"),
		}
		whole := cuttext.New(text)
		c, ok := whole.Cut(l, mark)
		if fits := len(text) <= l.Bytes && whole.Lines() <= l.Lines; fits == ok {
			t.Fatalf("%d bytes, %d lines: cut %v", len(text), whole.Lines(), ok)
		}
		if !ok {
			return
		}
		if len(c.Text) > l.Bytes || !utf8.ValidString(c.Text) {
			t.Fatalf("%d bytes of %d: %q", len(c.Text), l.Bytes, c.Text)
		}
		if c.Lines > l.Lines || c.TotalBytes != len(text) || c.Bytes > c.TotalBytes {
			t.Fatalf("%+v", c)
		}
		kept := c.Text
		if m := mark(c); strings.Contains(kept, m) {
			kept = strings.Replace(kept, m, "", 1)
		}
		if extra := len(kept) - c.Bytes; extra < 0 || extra > 2 {
			t.Fatalf("%d bytes are said to be kept of %q", c.Bytes, c.Text)
		}
	})
}

// What was left out is read on from where it says, to the end, without a gap.
func TestReadingOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := texts(t)
		whole := cuttext.New(text)
		most := rapid.IntRange(1, 100).Draw(t, "bytes")
		var read strings.Builder
		for at := 0; at < len(text); {
			p := whole.From(at, most, rapid.IntRange(1, 9).Draw(t, "lines"))
			if p.From != at || p.To <= at || !utf8.ValidString(p.Text) {
				t.Fatalf("from %d: %+v", at, p)
			}
			read.WriteString(p.Text)
			at = p.To
		}
		if read.String() != text {
			t.Fatalf("read %q, want %q", read.String(), text)
		}
		if p := whole.Last(most, 5); !strings.HasSuffix(text, p.Text) || len(p.Text) > most {
			t.Fatalf("last %q of %q", p.Text, text)
		}
	})
}

// An escape of JSON is never cut, nor are the halves of a pair.
func TestEscapesAreWhole(t *testing.T) {
	t.Parallel()
	text := `"` + strings.Repeat(`\u00e9\ud83d\ude00\"\\n\n`, 20) + `"`
	whole := cuttext.New(text)
	for most := range len(text) {
		p := whole.From(0, most+2, 999)
		if end := p.Text[1:]; p.To < len(text) && !json.Valid([]byte(`"`+end+`"`)) {
			t.Fatalf("%q", p.Text)
		}
		if strings.HasSuffix(p.Text, `\ud83d`) {
			t.Fatalf("half a pair: %q", p.Text)
		}
	}
}

func TestOffsetInsideARune(t *testing.T) {
	t.Parallel()
	p := cuttext.New("a日b").From(2, 10, 10)
	if p.Text != "b" || p.From != 4 {
		t.Errorf("%+v", p)
	}
	if p := cuttext.New("abc").From(99, 10, 10); p.Text != "" || p.From != 3 || p.To != 3 {
		t.Errorf("behind the end: %+v", p)
	}
	if p := cuttext.New("日本").From(0, 1, 1); p.Text != "日" {
		t.Errorf("a limit below a rune: %+v", p)
	}
}

func TestGrep(t *testing.T) {
	t.Parallel()
	h := cuttext.New(numbered(1000)).Grep(regexp.MustCompile(`line \d*7$`), 10_000)
	if h.All != 100 || h.Shown != 100 || !strings.HasPrefix(h.Text, "7@42: line 7\n17@") {
		t.Errorf("%+v", h)
	}
	if h = cuttext.New(numbered(1000)).Grep(regexp.MustCompile(`line`), 100); h.All != 1000 || h.Shown != 7 || len(h.Text) > 100 {
		t.Errorf("%+v", h)
	}
	long := strings.Repeat("日", 1000) + "needle" + strings.Repeat("本", 1000)
	h = cuttext.New(long).Grep(regexp.MustCompile(`needle`), 10_000)
	if h.All != 1 || len(h.Text) > 600 || !strings.Contains(h.Text, "needle") || !utf8.ValidString(h.Text) {
		t.Errorf("%+v", h)
	}
	quoted := strconv.Quote(numbered(50))
	if h = cuttext.New(quoted).Grep(regexp.MustCompile(`^line 7$`), 1000); h.Text != "7@49: line 7\n" {
		t.Errorf("of JSON: %+v", h)
	}
}
