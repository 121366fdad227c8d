package frames

import "slices"

// Append writes frames back to back in the encoding and gives the longer slice.
// The error is BAD_FRAME for a JSON message that cannot say a value (NaN, an
// infinity); a msgpack message cannot fail.
func Append(dst []byte, enc Encoding, fs ...*Frame) ([]byte, error) {
	if enc == JSON {
		return appendJSONFrames(dst, fs)
	}
	for _, f := range fs {
		dst = appendFrame(dst, f)
	}
	return dst, nil
}

// Encode is Append to a new slice.
func Encode(enc Encoding, fs ...*Frame) ([]byte, error) {
	n := 0
	for _, f := range fs {
		n += f.size()
	}
	return Append(make([]byte, 0, n), enc, fs...)
}

// size gives about how long the frame is in msgpack, seldom less.
func (f *Frame) size() int {
	const names, numbers = 96, 64
	n := names + numbers + len(f.Type) + len(f.ID) + len(f.StreamID) + len(f.ToolCallID) + len(f.Name) + len(f.Key)
	return n + len(f.Value) + len(f.Content) + f.Metadata.size() + f.Extra.size()
}

func (fs Fields) size() int {
	n := 0
	for i := range fs {
		n += 2 + len(fs[i].Key) + len(fs[i].Value)
	}
	return n
}

// frameWriter writes the fields of a frame that are set, and counts them.
type frameWriter struct {
	b []byte
	n int
}

func appendFrame(b []byte, f *Frame) []byte {
	head := len(b)
	w := frameWriter{b: append(b, 0x80)}
	w.num("v", Version)
	w.str("type", string(f.Type))
	w.str("id", f.ID)
	if f.TS != 0 {
		w.key("ts")
		w.b = appendFloat(w.b, float64(f.TS))
	}
	w.str("streamId", f.StreamID)
	w.num("seq", f.Seq)
	w.num("entry", f.Entry)
	w.num("part", uint64(max(f.Part, 0)))
	if f.Last {
		w.key("last")
		w.b = appendBool(w.b, true)
	}
	w.num("epoch", f.Epoch)
	w.str("toolCallId", f.ToolCallID)
	w.str("name", f.Name)
	w.str("key", f.Key)
	w.payloads(f)
	return w.close(head)
}

func (w *frameWriter) payloads(f *Frame) {
	w.raw("value", f.Value)
	w.raw("content", f.Content)
	if len(f.Metadata) != 0 {
		w.key("metadata")
		w.b = f.Metadata.append(w.b)
	}
	for i := range f.Extra {
		if x := &f.Extra[i]; len(x.Value) != 0 {
			w.b = append(appendString(w.b, x.Key), x.Value...)
			w.n++
		}
	}
}

// close gives the map its header, for which one byte was left.
func (w *frameWriter) close(head int) []byte {
	if w.n < 16 {
		w.b[head] |= byte(w.n)
		return w.b
	}
	return slices.Replace(w.b, head, head+1, appendMapHeader(nil, w.n)...)
}

// key writes one of the keys of a frame, which are short.
func (w *frameWriter) key(key string) {
	w.b = append(append(w.b, 0xa0|byte(len(key))), key...)
	w.n++
}

func (w *frameWriter) str(key, v string) {
	if v != "" {
		w.key(key)
		w.b = appendString(w.b, v)
	}
}

func (w *frameWriter) num(key string, v uint64) {
	if v != 0 {
		w.key(key)
		w.b = appendUint(w.b, v)
	}
}

func (w *frameWriter) raw(key string, v Raw) {
	if len(v) != 0 {
		w.key(key)
		w.b = append(w.b, v...)
	}
}
