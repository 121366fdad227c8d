package frames

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// hint tells the transcoder where in a frame it is: a few fields are written
// otherwise in JSON than in msgpack.
type hint uint8

const (
	hintNone    hint = iota
	hintFrame        // the frame itself
	hintContent      // its content: arguments, result and schemas are raw JSON
	hintParts        // content.parts
	hintPart         // one of them: data is base64
)

func (h hint) child(key string) hint {
	switch {
	case h == hintFrame && key == "content":
		return hintContent
	case h == hintContent && key == "parts":
		return hintParts
	}
	return hintNone
}

func (h hint) element() hint {
	if h == hintParts {
		return hintPart
	}
	return hintNone
}

// payloadKeys are the content keys that hold JSON text in msgpack, with "Json"
// appended to their name, and raw JSON in a JSON frame.
var payloadKeys = []string{"arguments", "result", "schema", "outputSchema"}

func decodeJSON(data []byte) (Message, error) {
	if err := checkJSONLimits(data); err != nil {
		return Message{}, err
	}
	t := transcoder{dec: json.NewDecoder(bytes.NewReader(data)), data: data}
	t.dec.UseNumber()
	m := Message{Encoding: JSON}
	for {
		start := int(t.dec.InputOffset())
		raw, err := t.value(nil, hintFrame)
		if err == io.EOF {
			return m, nil
		}
		if err != nil {
			return Message{}, t.fail(err)
		}
		f, err := decodeFrame(raw, start)
		if err != nil {
			return Message{}, err
		}
		m.Frames = append(m.Frames, f)
	}
}

// checkJSONLimits holds a JSON text to the limits of the scan before a decoder
// sees it: UTF-8, depth, number of values.
func checkJSONLimits(data []byte) *Error {
	if !utf8.Valid(data) {
		return badFrame(0, "", "invalid UTF-8")
	}
	depth, nodes, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			nodes++
		case c == '}' || c == ']':
			depth--
		case c == ',' || c == ':':
			nodes++
		}
		if depth > MaxDepth {
			return badFrame(i, "", "nested deeper than "+strconv.Itoa(MaxDepth))
		}
		if nodes > MaxNodes {
			return badFrame(i, "", "more than "+strconv.Itoa(MaxNodes)+" values")
		}
	}
	return nil
}

// FromJSON reads one JSON value. Whole numbers that fit 64 bits stay exact,
// other numbers become float64; a number out of its range is refused.
func FromJSON(text []byte) (Raw, error) {
	if err := checkJSONLimits(text); err != nil {
		return nil, err
	}
	t := transcoder{dec: json.NewDecoder(bytes.NewReader(text)), data: text}
	t.dec.UseNumber()
	raw, err := t.value(nil, hintNone)
	if err == nil {
		if _, more := t.dec.Token(); more != io.EOF {
			return nil, badFrame(int(t.dec.InputOffset()), "", "more than one JSON value")
		}
		return raw, nil
	}
	return nil, t.fail(err)
}

// transcoder writes JSON tokens as msgpack.
type transcoder struct {
	dec  *json.Decoder
	data []byte
}

func (t *transcoder) fail(err error) *Error {
	if e, ok := err.(*Error); ok {
		return e
	}
	why := "broken JSON"
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		why += ": cut off"
	case err != nil:
		why += ": " + shorten(err.Error())
	}
	return badFrame(int(t.dec.InputOffset()), "", why)
}

func (t *transcoder) value(b []byte, h hint) ([]byte, error) {
	tok, err := t.dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '[' {
			return t.array(b, h)
		}
		return t.object(b, h)
	case json.Number:
		return t.number(b, v)
	case string:
		return appendString(b, v), nil
	case bool:
		return appendBool(b, v), nil
	}
	return append(b, 0xc0), nil
}

func (t *transcoder) number(b []byte, n json.Number) ([]byte, error) {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return appendInt(b, i), nil
	}
	if u, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return appendUint(b, u), nil
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return nil, badFrame(int(t.dec.InputOffset()), "", "number "+shorten(string(n))+" is out of range")
	}
	return appendFloat(b, f), nil
}

func (t *transcoder) array(b []byte, h hint) ([]byte, error) {
	var body []byte
	n := 0
	for ; t.dec.More(); n++ {
		var err error
		if body, err = t.value(body, h.element()); err != nil {
			return nil, cut(err)
		}
	}
	if _, err := t.dec.Token(); err != nil {
		return nil, cut(err)
	}
	return append(appendArrayHeader(b, n), body...), nil
}

func (t *transcoder) object(b []byte, h hint) ([]byte, error) {
	fs, err := t.fields(h)
	if err != nil {
		return nil, err
	}
	return fs.append(b), nil
}

// fields reads the rest of an object. In a frame's content the raw JSON of a
// payload is kept as text, unless the text stands there itself.
func (t *transcoder) fields(h hint) (Fields, error) {
	fs := make(Fields, 0, 8)
	for t.dec.More() {
		tok, err := t.dec.Token()
		if err != nil {
			return nil, cut(err)
		}
		key, _ := tok.(string)
		v, err := t.field(key, h)
		if err != nil {
			return nil, cut(err)
		}
		fs = append(fs, Field{key, v})
	}
	if _, err := t.dec.Token(); err != nil {
		return nil, cut(err)
	}
	if key, twice := duplicate(fs); twice {
		return nil, badFrame(int(t.dec.InputOffset()), "", "duplicate key "+strconv.Quote(shorten(key)))
	}
	if h == hintContent {
		fs = renamePayloads(fs)
	}
	return fs, nil
}

func duplicate(fs Fields) (string, bool) {
	keys := make([]string, len(fs))
	for i, f := range fs {
		keys[i] = f.Key
	}
	slices.Sort(keys)
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return keys[i], true
		}
	}
	return "", false
}

// renamePayloads gives raw payloads the names that their text has in msgpack;
// a text that stands there already wins.
func renamePayloads(fs Fields) Fields {
	for _, key := range payloadKeys {
		v := fs.Get(key)
		if v == nil {
			continue
		}
		fs.Delete(key)
		if fs.Get(key+"Json") == nil {
			fs.Set(key+"Json", v)
		}
	}
	return fs
}

func (t *transcoder) field(key string, h hint) (Raw, error) {
	switch {
	case h == hintContent && slices.Contains(payloadKeys, key):
		return t.payload()
	case h == hintPart && key == "data":
		return t.binary()
	}
	return t.value(nil, h.child(key))
}

func (t *transcoder) payload() (Raw, error) {
	var text json.RawMessage
	if err := t.dec.Decode(&text); err != nil {
		return nil, err
	}
	return appendString(nil, string(text)), nil
}

func (t *transcoder) binary() (Raw, error) {
	var text string
	if err := t.dec.Decode(&text); err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, badFrame(int(t.dec.InputOffset()), "/content/parts", "data is no padded base64")
	}
	return appendBin(nil, data), nil
}

func isPayload(key string) bool {
	name, ok := strings.CutSuffix(key, "Json")
	return ok && slices.Contains(payloadKeys, name)
}

// cut makes an EOF inside a value an error of its own.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func appendJSONFrames(b []byte, fs []*Frame) ([]byte, error) {
	var scratch []byte
	for i, f := range fs {
		if i > 0 {
			b = append(b, '\n')
		}
		scratch = appendFrame(scratch[:0], f)
		var err error
		if b, err = appendJSONHinted(b, scratch, hintFrame); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// JSON gives the value as JSON text: whole numbers exact, a timestamp in
// RFC 3339, bin as padded base64. NaN and infinities are refused.
func (r Raw) JSON() (json.RawMessage, error) {
	if len(r) == 0 {
		return json.RawMessage("null"), nil
	}
	return appendJSONValue(nil, r)
}

func appendJSONValue(b []byte, r Raw) ([]byte, error) {
	return appendJSONHinted(b, r, hintNone)
}

func appendJSONHinted(b []byte, r Raw, h hint) ([]byte, error) {
	head, p := r.payload()
	switch r.Kind() {
	case KindMap:
		return appendJSONObject(b, r, h)
	case KindArray:
		return appendJSONArray(b, r, h)
	case KindBool:
		return strconv.AppendBool(b, r[0] == 0xc3), nil
	case KindInt:
		return strconv.AppendInt(b, r.signed(p), 10), nil
	case KindUint:
		return strconv.AppendUint(b, r.unsigned(p), 10), nil
	case KindFloat:
		return appendJSONFloat(b, float(p), head.n*8)
	case KindString:
		return appendJSONString(b, p), nil
	case KindBin:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), p), '"'), nil
	case KindTime:
		return append(timestamp(p).AppendFormat(append(b, '"'), time.RFC3339Nano), '"'), nil
	}
	return append(b, "null"...), nil
}

func appendJSONObject(b []byte, r Raw, h hint) ([]byte, error) {
	b = append(b, '{')
	first := true
	for k, v := range r.pairs() {
		if !first {
			b = append(b, ',')
		}
		first = false
		var err error
		if b, err = appendJSONField(b, string(k), v, h); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendJSONField(b []byte, key string, v Raw, h hint) ([]byte, error) {
	if h == hintContent && isPayload(key) {
		if text, ok := v.textBytes(); ok && json.Valid(text) {
			b = append(appendJSONString(b, []byte(strings.TrimSuffix(key, "Json"))), ':')
			return append(b, text...), nil
		}
	}
	b = append(appendJSONString(b, []byte(key)), ':')
	if ms, ok := v.Int64(); ok && h == hintFrame && key == "ts" {
		return strconv.AppendInt(b, ms, 10), nil
	}
	return appendJSONHinted(b, v, h.child(key))
}

func appendJSONArray(b []byte, r Raw, h hint) ([]byte, error) {
	b = append(b, '[')
	first := true
	for v := range r.Items() {
		if !first {
			b = append(b, ',')
		}
		first = false
		var err error
		if b, err = appendJSONHinted(b, v, h.element()); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendJSONFloat writes the shortest text that reads back as f, and keeps a
// whole one apart from an integer: 1.0 stays 1.0.
func appendJSONFloat(b []byte, f float64, bits int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, badFrame(0, "", strconv.FormatFloat(f, 'g', -1, 64)+" is no JSON number")
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, format, -1, bits)
	if !bytes.ContainsAny(b[start:], ".e") {
		b = append(b, ".0"...)
	}
	return b, nil
}

const hexDigits = "0123456789abcdef"

func appendJSONString(b, s []byte) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
