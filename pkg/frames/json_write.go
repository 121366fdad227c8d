package frames

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// JSON gives the value as JSON text: whole numbers exact, a timestamp in
// RFC 3339, bin as padded base64. NaN, infinities and what is nested deeper
// than MaxDepth are refused with BAD_FRAME.
func (r Raw) JSON() (json.RawMessage, error) {
	if len(r) == 0 {
		return json.RawMessage("null"), nil
	}
	w := jsonWriter{b: make([]byte, 0, len(r)+len(r)/4+8)}
	if f := w.value(r, hintNone); f != nil {
		return nil, NewError(CodeBadFrame, "value cannot be written as JSON%s: %s", f.at(), f.why)
	}
	return w.b, nil
}

// ContentJSON gives the frame's content as it stands in a JSON frame: arguments,
// results and schemas as raw JSON.
func (f *Frame) ContentJSON() (json.RawMessage, error) { return contentJSON(f.Content) }

func contentJSON(content Raw) (json.RawMessage, error) {
	if len(content) == 0 {
		return json.RawMessage("{}"), nil
	}
	w := jsonWriter{depth: 1, budget: MaxNodes}
	if f := w.value(content, hintContent); f != nil {
		return nil, NewError(CodeBadFrame, "content cannot be written as JSON%s: %s", f.at(), f.why)
	}
	return w.b, nil
}

func appendJSONFrames(b []byte, fs []*Frame) ([]byte, error) {
	w := jsonWriter{b: b, budget: MaxNodes}
	raws := make([]Raw, len(fs))
	for i, f := range fs {
		raws[i] = appendFrame(make([]byte, 0, f.size()), f)
		w.budget -= raws[i].nodes()
	}
	for i, f := range fs {
		if i > 0 {
			w.b = append(w.b, '\n')
		}
		w.param = f.Key
		if bad := w.value(raws[i], hintFrame); bad != nil {
			return nil, NewError(CodeBadFrame, "frame %s cannot be written as JSON%s: %s", shorten(string(f.Type)), bad.at(), bad.why)
		}
	}
	return w.b, nil
}

// nodes counts the values in r, r itself too.
func (r Raw) nodes() int {
	n, pos := 0, 0
	for todo := 1; todo > 0; todo-- {
		h, ok := readHeader(r[pos:])
		if !ok {
			return n
		}
		n++
		pos += h.size
		switch h.kind {
		case KindMap:
			todo += 2 * h.n
			n -= h.n // the keys
		case KindArray:
			todo += h.n
		default:
			pos = min(pos+h.n, len(r))
		}
	}
	return n
}

// jsonWriter writes msgpack as JSON.
type jsonWriter struct {
	b     []byte
	depth int
	// budget is how many values the message may still gain from payload texts
	// that are written as raw JSON.
	budget int
	// param is the key of the PARAM that is being written.
	param string
}

func (w *jsonWriter) value(r Raw, h hint) *fault {
	head, p := r.payload()
	switch head.kind {
	case KindBool:
		w.b = strconv.AppendBool(w.b, r[0] == 0xc3)
	case KindInt:
		w.b = strconv.AppendInt(w.b, r.signed(p), 10)
	case KindUint:
		w.b = strconv.AppendUint(w.b, r.unsigned(p), 10)
	case KindFloat:
		return w.float(float(p))
	case KindString:
		w.str(p, h)
	case KindBin:
		return w.bin(p, h)
	case KindTime:
		t, _ := r.Time()
		w.b = append(t.AppendFormat(append(w.b, '"'), time.RFC3339Nano), '"')
	default:
		return w.container(r, h)
	}
	return nil
}

func (w *jsonWriter) container(r Raw, h hint) *fault {
	kind := r.Kind()
	if kind != KindMap && kind != KindArray {
		w.b = append(w.b, "null"...)
		return nil
	}
	if w.depth++; w.depth > MaxDepth {
		return faultf(0, "", "nested deeper than %d", MaxDepth)
	}
	defer func() { w.depth-- }()
	if kind == KindMap {
		return w.object(r, h)
	}
	return w.array(r, h)
}

func (w *jsonWriter) array(r Raw, h hint) *fault {
	w.b = append(w.b, '[')
	i := 0
	for c := r.items(); c.next(); i++ {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if f := w.value(c.value, h.element()); f != nil {
			return f.under(strconv.Itoa(i))
		}
	}
	w.b = append(w.b, ']')
	return nil
}

func (w *jsonWriter) object(r Raw, h hint) *fault {
	w.b = append(w.b, '{')
	first := true
	for c := r.pairs(); c.next(); first = false {
		if !first {
			w.b = append(w.b, ',')
		}
		key := string(c.key)
		if h.holdsPayloads() && w.payload(r, key, c.value) {
			continue
		}
		w.quote(c.key)
		w.b = append(w.b, ':')
		if f := w.field(key, c.value, h); f != nil {
			return f.under(string(c.key))
		}
	}
	w.b = append(w.b, '}')
	return nil
}

func (w *jsonWriter) field(key string, v Raw, h hint) *fault {
	if ms, ok := v.Int64(); ok && h == hintFrame && key == "ts" {
		w.b = strconv.AppendInt(w.b, ms, 10)
		return nil
	}
	return w.value(v, h.child(key, w.param))
}

// payload writes a payload's text as raw JSON, if it is JSON that the message
// can hold, and if no tree stands beside it.
func (w *jsonWriter) payload(object Raw, key string, v Raw) bool {
	name, ok := payloadOf(key)
	if !ok || object.Lookup(name) != nil {
		return false
	}
	text, ok := v.textBytes()
	if !ok {
		return false
	}
	s := newJSONScanner(text)
	s.depth = w.depth
	if s.scanText() != nil || s.nodes-1 > w.budget {
		return false
	}
	w.budget -= s.nodes - 1
	w.quote([]byte(name))
	w.b = append(append(w.b, ':'), trimSpace(text)...)
	return true
}

func (w *jsonWriter) str(p []byte, h hint) {
	if h == hintData {
		w.base64(p)
		return
	}
	w.quote(p)
}

func (w *jsonWriter) bin(p []byte, h hint) *fault {
	if h != hintTree {
		w.base64(p)
		return nil
	}
	if !utf8.Valid(p) {
		return faultf(0, "", "binary data, which arguments and results cannot hold")
	}
	w.quote(p)
	return nil
}

func (w *jsonWriter) base64(p []byte) {
	w.b = append(base64.StdEncoding.AppendEncode(append(w.b, '"'), p), '"')
}

// float writes the shortest text that reads back as f, and keeps a whole one
// apart from an integer: 1.0 stays 1.0.
func (w *jsonWriter) float(f float64) *fault {
	if !isFinite(f) {
		return faultf(0, "", "%v is no number that JSON can say", f)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	start := len(w.b)
	w.b = strconv.AppendFloat(w.b, f, format, -1, 64)
	if !bytes.ContainsAny(w.b[start:], ".e") {
		w.b = append(w.b, ".0"...)
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// quote writes a JSON string; what is no UTF-8 becomes U+FFFD.
func (w *jsonWriter) quote(s []byte) {
	if !utf8.Valid(s) {
		s = bytes.ToValidUTF8(s, []byte("\uFFFD"))
	}
	w.b = append(w.b, '"')
	start := 0
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		w.b = append(w.b, s[start:i]...)
		w.escape(c)
		start = i + 1
	}
	w.b = append(append(w.b, s[start:]...), '"')
}

func (w *jsonWriter) escape(c byte) {
	const from, to = "\"\\\b\f\n\r\t", `"\bfnrt`
	if i := strings.IndexByte(from, c); i >= 0 {
		w.b = append(w.b, '\\', to[i])
		return
	}
	w.b = append(w.b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
