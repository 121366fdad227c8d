package frames

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// reader reads frames in the one pass that also checks them.
type reader struct {
	scanner
	f     *Frame
	start int
	// known has a bit for each field that was read.
	known uint32
	// v is the field's value.
	v value
	// window is a copy of data from windowAt on: the texts of small frames are
	// parts of one string.
	window   string
	windowAt int
}

const windowSize = 512

// frame reads the frame at r.pos into f and moves behind it.
func (r *reader) frame(f *Frame) *fault {
	r.f, r.start, r.known, r.notFinite, r.root = f, r.pos, 0, nil, keyRef{}
	left, bad := r.openFrame()
	if bad != nil {
		return bad
	}
	for range left {
		if bad := r.pair(); bad != nil {
			return r.orVersion(bad)
		}
	}
	if bad := r.pop(); bad != nil {
		return bad
	}
	return r.finish()
}

func (r *reader) openFrame() (pairs int, bad *fault) {
	h, ok := readHeader(r.data[r.pos:])
	switch {
	case !ok:
		return 0, r.badHeader()
	case h.kind == KindExt:
		return 0, r.failExt(int8(r.data[r.pos+h.size-1]))
	case h.kind != KindMap:
		return 0, r.fail("a frame is a map, not %s%s", h.kind, r.plainText())
	case h.n > MaxKeys:
		return 0, r.fail("a frame of %d keys, the most is %d", h.n, MaxKeys)
	}
	r.nodes++
	return h.n, r.open(h, len(r.data)-r.pos-h.size)
}

// plainText shows the beginning of a message that is no frames but a text: what a
// program printed, say.
func (r *reader) plainText() string {
	const most = 40
	text := r.data[:min(len(r.data), most)]
	if r.pos > 0 || len(text) < 2 || bytes.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\n' || c > '~' }) {
		return ""
	}
	return fmt.Sprintf(": it is the text %q", text)
}

func (r *reader) pair() *fault {
	r.top().index++
	key, text, bad := r.readKey()
	if bad != nil {
		return bad
	}
	id := fieldOf(text)
	if bad := r.noteField(id, key, text); bad != nil {
		return bad
	}
	if id == fieldMetadata {
		return r.metadata()
	}
	r.v.at = r.pos
	if r.v.header, bad = r.scanValue(); bad != nil || r.v.kind == KindNil {
		return bad
	}
	r.v.raw = Raw(r.data[r.v.at:r.pos:r.pos])
	if id == fieldUnknown {
		r.f.Extra = append(r.f.Extra, Field{r.textAt(int(key.off), int(key.n)), r.v.raw})
		return nil
	}
	return r.field(id)
}

// noteField refuses a field that stands twice. The keys of unknown ones are
// checked like those of any map.
func (r *reader) noteField(id fieldID, key keyRef, text []byte) *fault {
	if id == fieldUnknown {
		r.root = keyRef{}
		return r.noteKey(key, text)
	}
	if bit := uint32(1) << id; r.known&bit == 0 {
		r.known |= bit
		r.root = key
		return nil
	}
	return r.failTwice(key)
}

// value is one that was scanned, with its header and its place in data.
type value struct {
	header
	raw Raw
	at  int
}

func (v *value) isText() bool {
	return v.kind == KindString || (v.kind == KindBin && utf8.Valid(v.raw[v.size:]))
}

// orVersion prefers to say that the frame is of an unknown version: whatever
// else is wrong with it may be right there.
func (r *reader) orVersion(bad *fault) *fault {
	if v := Raw(r.data[r.start:]).Lookup("v"); !v.Absent() {
		if unknown := r.version(v); unknown != nil {
			return unknown
		}
	}
	return bad
}

func (r *reader) field(id fieldID) *fault {
	f, v := r.f, r.v.raw
	switch id {
	case fieldV:
		return r.version(v)
	case fieldType:
		return r.typ()
	case fieldFrameID:
		return r.str(&f.ID, "id")
	case fieldTS:
		return r.ts(v)
	case fieldStreamID:
		return r.str(&f.StreamID, "streamId")
	case fieldSeq:
		return r.uint(&f.Seq, "seq", v)
	case fieldEntry:
		return r.uint(&f.Entry, "entry", v)
	case fieldEpoch:
		return r.uint(&f.Epoch, "epoch", v)
	case fieldPart:
		return r.part(v)
	case fieldLast:
		return r.bool(&f.Last, "last", v)
	case fieldToolCallID:
		return r.str(&f.ToolCallID, "toolCallId")
	case fieldName:
		return r.str(&f.Name, "name")
	case fieldKey:
		return r.str(&f.Key, "key")
	case fieldValue:
		f.Value = v
	case fieldContent:
		f.Content = v
	}
	return nil
}

func (r *reader) version(v Raw) *fault {
	if n, ok := v.Int64(); !ok || n != Version {
		return r.refuse("v", "protocol version "+v.preview()+" is not spoken, only "+strconv.Itoa(Version)+" is")
	}
	return nil
}

func (r *reader) typ() *fault {
	v := &r.v
	if !v.isText() || v.n == 0 {
		return r.want("type", v.raw, "a string")
	}
	if t, known := knownType(v.raw[v.size:]); known {
		r.f.Type = t
		return nil
	}
	r.f.Type = Type(r.textAt(v.at+v.size, v.n))
	return nil
}

func (r *reader) str(to *string, key string) *fault {
	v := &r.v
	if !v.isText() {
		return r.want(key, v.raw, "a string")
	}
	*to = r.textAt(v.at+v.size, v.n)
	return nil
}

// textAt gives n bytes of data as a string. Places may only grow; those of one
// frame lie close together, so they are copied at once.
func (r *reader) textAt(at, n int) string {
	if n == 0 {
		return ""
	}
	if at < r.windowAt || at+n > r.windowAt+len(r.window) {
		end := min(at+max(n, windowSize), len(r.data))
		r.window, r.windowAt = string(r.data[at:end]), at
	}
	return r.window[at-r.windowAt:][:n]
}

func (r *reader) uint(to *uint64, key string, v Raw) *fault {
	n, ok := v.Uint64()
	if !ok {
		return r.want(key, v, "a whole number, 0 or more")
	}
	*to = n
	return nil
}

func (r *reader) part(v Raw) *fault {
	n, ok := v.Uint64()
	if !ok || n > math.MaxInt32 {
		return r.want("part", v, "a whole number, 0 or more")
	}
	r.f.Part = int(n)
	return nil
}

func (r *reader) bool(to *bool, key string, v Raw) *fault {
	b, ok := v.Bool()
	if !ok {
		return r.want(key, v, "a bool")
	}
	*to = b
	return nil
}

func (r *reader) ts(v Raw) *fault {
	ms, ok := millisOf(v)
	if !ok {
		return r.want("ts", v, "milliseconds since 1970")
	}
	r.f.TS = ms
	return nil
}

// maxMillis is the end of time of the clients that keep it in a float64.
const maxMillis = 8.64e15

// millisOf reads a time: milliseconds in any numeric form, fractions cut off,
// or a timestamp.
func millisOf(v Raw) (int64, bool) {
	if t, ok := v.Time(); ok {
		return t.UnixMilli(), true
	}
	f, ok := v.Float64()
	if !ok || math.IsNaN(f) || math.Abs(f) > maxMillis {
		return 0, false
	}
	return int64(f), true
}

// metadata reads its fields in the one pass too.
func (r *reader) metadata() *fault {
	h, _ := readHeader(r.data[r.pos:])
	if h.kind != KindMap {
		return r.noMetadata()
	}
	if h.n > MaxKeys {
		return r.refuse("metadata", "has "+strconv.Itoa(h.n)+" keys, the most is "+strconv.Itoa(MaxKeys))
	}
	r.nodes++
	if bad := r.open(h, len(r.data)-r.pos-h.size); bad != nil {
		return bad
	}
	r.f.Metadata = make(Fields, 0, h.n)
	for range h.n {
		r.top().index++
		key, bad := r.scanKey()
		if bad != nil {
			return bad
		}
		at := r.pos
		if _, bad := r.scanValue(); bad != nil {
			return bad
		}
		r.f.Metadata = append(r.f.Metadata, Field{r.textAt(int(key.off), int(key.n)), Raw(r.data[at:r.pos:r.pos])})
	}
	return r.pop()
}

// noMetadata takes nil, and refuses what is no map.
func (r *reader) noMetadata() *fault {
	at := r.pos
	h, bad := r.scanValue()
	if bad != nil || h.kind == KindNil {
		return bad
	}
	return r.want("metadata", Raw(r.data[at:r.pos]), "a map")
}

// finish checks what no single field can tell.
func (r *reader) finish() *fault {
	f := r.f
	if f.Type == "" {
		return r.refuse("type", "missing")
	}
	if f.Type == TypeParam && f.Key == "" {
		f.Key, f.Name = f.Name, ""
	}
	if len(f.Extra) > 0 {
		f.adoptOldLayout()
	}
	if k := f.Content.Kind(); k != KindMap && k != KindAbsent {
		return r.refuse("content", "is "+k.String()+", want a map")
	}
	if f.Type == TypeCancel {
		f.adoptCall()
	}
	if r.notFinite != nil && !f.takes(r.payload) {
		return r.notFinite
	}
	return nil
}

// takes reports whether the payload of that name is the frame's own: then it is
// judged as arguments or result, not as part of the message.
func (f *Frame) takes(payload string) bool {
	return (f.Type == TypeToolCall && payload == "arguments") || (f.Type == TypeToolResult && payload == "result")
}

func (r *reader) want(key string, got Raw, want string) *fault {
	return r.refuse(key, "is "+got.preview()+", want "+want)
}

func (r *reader) refuse(key, why string) *fault {
	return &fault{r.start, "/" + key, why}
}
