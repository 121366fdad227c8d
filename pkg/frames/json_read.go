package frames

import (
	"bytes"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// FromJSON reads one JSON value, by the rules of [CheckJSON]. Whole numbers
// that fit 64 bits stay exact, other numbers become float64.
func FromJSON(text []byte) (Raw, error) {
	s := newJSONScanner(text)
	if f := s.scanText(); f != nil {
		return nil, f.err()
	}
	j := newJSONReader(s)
	if f := j.value(hintNone); f != nil {
		return nil, f.err()
	}
	return j.b, nil
}

func decodeJSON(data []byte) ([]Frame, *fault) {
	s := newJSONScanner(data)
	starts, f := s.scanFrames()
	if f != nil {
		return nil, f
	}
	j := newJSONReader(s)
	ends := make([]int, len(starts))
	for i, start := range starts {
		if f := j.frame(start); f != nil {
			return nil, f
		}
		ends[i] = len(j.b)
	}
	return readTranscoded(walk{data: j.b, many: s.many}, starts, ends)
}

// readTranscoded reads frames that came from JSON; their faults are told at
// the frame's place in the JSON text.
func readTranscoded(w walk, starts, ends []int) ([]Frame, *fault) {
	out := make([]Frame, len(starts))
	r := reader{scanner: scanner{walk: w}}
	for i := range out {
		r.pos = 0
		if i > 0 {
			r.pos = ends[i-1]
		}
		if f := r.frame(&out[i]); f != nil {
			f.offset = starts[i]
			return nil, f
		}
	}
	return out, nil
}

// jsonReader writes a JSON text that was scanned as msgpack.
type jsonReader struct {
	data   []byte
	pos    int
	counts []uint32
	next   int // in counts
	b      []byte
}

// newJSONReader makes room for what will be written: payloads stay JSON text,
// so large messages are taken as values and grow where one comes.
func newJSONReader(s *jsonScanner) *jsonReader {
	room := s.size + 16
	if len(s.data) < 1<<16 {
		room = max(room, len(s.data)+64)
	}
	return &jsonReader{data: s.data, counts: s.counts, b: make([]byte, 0, room)}
}

func (j *jsonReader) frame(start int) *fault {
	j.pos = start
	return j.value(hintFrame)
}

// paramOf gives the key of the PARAM that begins at start.
func (j *jsonReader) paramOf(start int) string {
	for _, name := range []string{"key", "name"} {
		if v, ok := j.sibling(start, name); ok && len(v) > 2 && v[0] == '"' {
			return string(unescape(v))
		}
	}
	return ""
}

func (j *jsonReader) space() {
	for {
		switch j.data[j.pos] {
		case ' ', '\t', '\r', '\n', ',', ':':
			j.pos++
		default:
			return
		}
	}
}

func (j *jsonReader) value(h hint) *fault {
	j.space()
	switch j.data[j.pos] {
	case '{':
		return j.object(h)
	case '[':
		return j.array(h)
	case '"':
		return j.str(h)
	case 't':
		j.pos, j.b = j.pos+4, appendBool(j.b, true)
	case 'f':
		j.pos, j.b = j.pos+5, appendBool(j.b, false)
	case 'n':
		j.pos, j.b = j.pos+4, appendNil(j.b)
	default:
		n, _ := numberLen(j.data[j.pos:])
		j.b = appendNumber(j.b, string(j.data[j.pos:j.pos+n]))
		j.pos += n
	}
	return nil
}

func appendNumber(b []byte, text string) []byte {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil && (i != 0 || text[0] != '-') {
		return appendInt(b, i)
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return appendUint(b, u)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		f = math.NaN() // never so: the scan refused it
	}
	return appendFloat(b, f)
}

func (j *jsonReader) str(h hint) *fault {
	start := j.pos
	text := j.rawString()
	if h != hintData {
		j.b = appendText(j.b, text)
		return nil
	}
	data, err := base64.StdEncoding.Strict().DecodeString(string(unescape(text)))
	if err != nil {
		return faultf(start, "", "data is no padded base64")
	}
	j.b = appendBin(j.b, data)
	return nil
}

// rawString passes over a string and gives it with its quotes.
func (j *jsonReader) rawString() []byte {
	start := j.pos
	for j.pos++; j.data[j.pos] != '"'; j.pos++ {
		if j.data[j.pos] == '\\' {
			j.pos++
		}
	}
	j.pos++
	return j.data[start:j.pos]
}

func (j *jsonReader) take() int {
	j.next++
	return int(j.counts[j.next-1])
}

func (j *jsonReader) array(h hint) *fault {
	n := j.take()
	j.pos++
	j.b = appendArrayHeader(j.b, n)
	for i := range n {
		if f := j.value(h.element()); f != nil {
			return f.under(strconv.Itoa(i))
		}
	}
	j.space()
	j.pos++
	return nil
}

func (j *jsonReader) object(h hint) *fault {
	start, n := j.pos, j.take()
	j.pos++
	j.b = appendMapHeader(j.b, n)
	for range n {
		j.space()
		key := unescape(j.rawString())
		if f := j.field(start, string(key), h); f != nil {
			return f.under(string(key))
		}
	}
	j.space()
	j.pos++
	return nil
}

// field writes a key and its value. The raw JSON of a payload is kept as text,
// unless such a text stands beside it, which wins anyway.
func (j *jsonReader) field(object int, key string, h hint) *fault {
	j.space()
	if h.holdsPayloads() && isPayload(key) {
		if _, both := j.sibling(object, key+"Json"); !both {
			text := j.skip()
			j.b = appendString(j.b, key+"Json")
			if len(text) > cap(j.b)-len(j.b) {
				j.b = slices.Grow(j.b, len(text)+len(j.data)-j.pos+8)
			}
			j.b = append(appendStringHeader(j.b, len(text)), text...)
			return nil
		}
	}
	j.b = appendString(j.b, key)
	param := ""
	if h == hintFrame && key == "value" {
		param = j.paramOf(object)
	}
	return j.value(h.child(key, param))
}

// skip passes over a value and gives its text.
func (j *jsonReader) skip() []byte {
	start, depth := j.pos, 0
	for {
		switch j.data[j.pos] {
		case '"':
			j.rawString()
		case '{', '[':
			j.next++
			depth++
			j.pos++
		case '}', ']':
			depth--
			j.pos++
		case ' ', '\t', '\r', '\n', ',', ':':
			j.pos++
			continue
		default:
			j.pos += scalarLen(j.data[j.pos:])
		}
		if depth == 0 {
			return j.data[start:j.pos]
		}
	}
}

// scalarLen gives the length of a number or a literal.
func scalarLen(b []byte) int {
	if n := bytes.IndexAny(b, " \t\r\n,]}"); n >= 0 {
		return n
	}
	return len(b)
}

// sibling looks a key up in the object that begins at start.
func (j *jsonReader) sibling(start int, key string) (value []byte, ok bool) {
	look := jsonReader{data: j.data, pos: start + 1}
	for {
		if look.space(); look.data[look.pos] == '}' {
			return nil, false
		}
		found := string(unescape(look.rawString())) == key
		look.space()
		if v := look.skip(); found {
			return v, true
		}
	}
}

// appendText writes a JSON string as a str.
func appendText(b, quoted []byte) []byte {
	text := unescape(quoted)
	return append(appendStringHeader(b, len(text)), text...)
}

// unescape gives what a JSON string says; without escapes it copies nothing.
func unescape(quoted []byte) []byte {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	return appendUnescaped(make([]byte, 0, len(text)), text)
}

func appendUnescaped(b, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(b, text...)
		}
		b, text = append(b, text[:i]...), text[i:]
		var n int
		b, n = appendEscape(b, text)
		text = text[n:]
	}
}

// appendEscape writes what an escape says and gives its length.
func appendEscape(b, text []byte) ([]byte, int) {
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(from, text[1]); i >= 0 {
		return append(b, to[i]), 2
	}
	r, _ := hex4(text)
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(b, r), 6
	}
	low, _ := hex4(text[6:])
	return utf8.AppendRune(b, utf16.DecodeRune(r, low)), 12
}
