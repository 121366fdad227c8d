package argstream

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// The names of the repairs that [Repair] makes.
const (
	// RepairBlank: a blank text, or null, is {}.
	RepairBlank = "blank"
	// RepairBOM: a byte order mark before the text is left out.
	RepairBOM = "byte_order_mark"
	// RepairFence: the code fence around the object is left out.
	RepairFence = "code_fence"
	// RepairString: a JSON string holds the object's text.
	RepairString = "unwrapped_json_string"
	// RepairComma: commas behind the last item or member are left out.
	RepairComma = "trailing_comma"
	// RepairControl: control characters in strings are written as escapes.
	RepairControl = "control_character"
)

// MaxStrings is how many JSON strings may be around an object.
const MaxStrings = 3

// Repair is [Parse] for a text that may be mended without a guess: what it gives
// holds every value that the text holds, and nothing else. repairs names what
// was done, in the order in which it was done; nil says that text is unchanged.
// A text that was cut off is never repaired, nor one with two meanings: then the
// error is that of the text as it came.
func Repair(text []byte) (args json.RawMessage, repairs []string, err error) {
	if len(text) > MaxBytes {
		return nil, nil, tooLarge(MaxBytes)
	}
	p := check(text)
	if p == nil {
		return text, nil, nil
	}
	m := mending{text: text}
	if !m.mend() {
		if m.cut {
			p = &problem{reason: ReasonIncomplete, what: "the text ends before its JSON value does", path: p.path, at: len(text)}
		}
		return nil, nil, p.refuse(text)
	}
	if len(m.text) > MaxBytes {
		return nil, nil, tooLarge(MaxBytes)
	}
	return m.text, m.done, nil
}

// mending is a text on its way to be an object.
type mending struct {
	text []byte
	done []string
	cut  bool // it ends too early
}

func (m *mending) did(name string, text []byte) {
	m.text = text
	if !slices.Contains(m.done, name) {
		m.done = append(m.done, name)
	}
}

// mend tries what may help until the text is an object, or nothing does.
func (m *mending) mend() bool {
	for wrapped := 0; ; wrapped++ {
		if m.outside(); wrapped == 0 && (blank(m.text) || string(bytes.TrimSpace(m.text)) == "null") {
			m.did(RepairBlank, []byte("{}"))
			return true
		}
		p := m.inside()
		if p == nil {
			return true
		}
		m.cut = p.reason == ReasonIncomplete || openFence(m.text)
		if p.reason != ReasonNotObject || m.text[p.at] != '"' || wrapped == MaxStrings {
			return false
		}
		m.did(RepairString, []byte(jsontext.Unquote(bytes.TrimSpace(m.text))))
	}
}

// outside takes away what stands around the text.
func (m *mending) outside() {
	if rest, ok := bytes.CutPrefix(m.text, []byte("\ufeff")); ok {
		m.did(RepairBOM, rest)
	}
	if inner, ok := unfence(m.text); ok {
		m.did(RepairFence, inner)
	}
}

// inside mends the JSON itself, as far as its grammar says what was meant.
func (m *mending) inside() *problem {
	p := check(m.text)
	if p == nil || p.reason != ReasonInvalid {
		return p
	}
	text, commas, controls := rewrite(m.text)
	if !commas && !controls {
		return p
	}
	again := check(text)
	if again != nil && again.reason == ReasonInvalid {
		return p
	}
	if commas {
		m.did(RepairComma, text)
	}
	if controls {
		m.did(RepairControl, text)
	}
	return again
}

var fence = []byte("```")

// unfence gives what stands in a text that is an object, or a string that may hold
// one, in one code fence and nothing else.
func unfence(text []byte) ([]byte, bool) {
	inner, ok := bytes.CutPrefix(bytes.TrimSpace(text), fence)
	if !ok {
		return nil, false
	}
	if inner, ok = bytes.CutSuffix(inner, fence); !ok {
		return nil, false
	}
	inner = bytes.TrimSpace(bytes.TrimLeftFunc(inner, isLanguage))
	return inner, len(inner) > 0 && (inner[0] == '{' || inner[0] == '"')
}

// openFence reports whether text begins a code fence that does not end.
func openFence(text []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(text), fence)
	return ok && !bytes.Contains(rest, fence)
}

// isLanguage reports whether r may stand in the word behind the opening fence.
func isLanguage(r rune) bool {
	return 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

// rewrite leaves out commas behind a last item or member, and escapes control
// characters in strings. Whether the outcome is JSON is for [check] to say.
func rewrite(text []byte) (out []byte, commas, controls bool) {
	out = make([]byte, 0, len(text)+16)
	last := byte(0) // significant one before
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			var escaped bool
			i, out, escaped = copyString(text, i, out)
			controls = controls || escaped
		case c == ',' && endsValue(last) && closes(text[i+1:]):
			commas = true
			continue
		default:
			out = append(out, c)
		}
		if c > ' ' {
			last = c
		}
	}
	return out, commas, controls
}

// endsValue reports whether a value may end in c.
func endsValue(c byte) bool { return c > ' ' && strings.IndexByte("{[,:", c) < 0 }

// closes reports whether the next significant byte ends a container.
func closes(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && (rest[0] == '}' || rest[0] == ']')
}

// copyString appends the string that begins at i, and gives its last byte.
func copyString(text []byte, i int, out []byte) (end int, _ []byte, escaped bool) {
	out = append(out, text[i])
	for i++; i < len(text); i++ {
		c := text[i]
		switch {
		case c < ' ':
			out, escaped = append(out, jsontext.EscapeOf(c)...), true
			continue
		case c == '\\' && i+1 < len(text): // also before a control character: that has no one meaning
			out = append(out, c)
			i++
		case c == '"':
			return i, append(out, c), escaped
		}
		out = append(out, text[i])
	}
	return i, out, escaped
}
