package frames

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// benchFrames are a call as a client sends it, and an END behind it.
func benchFrames() []*Frame {
	call := Call("read_file", []byte(`{"path":"docs/protocol.md","offset":100,"limit":50}`),
		WithID("01JC3Z5G8Q"), WithStream("s-1"), WithMeta("timeoutMs", 30000), WithMeta("sessionId", "demo"))
	call.TS, call.Seq, call.ToolCallID = 1732900000123, 1, "Xk2sM0aQ9rT1bV7cN4dE5f-1-0"
	end := End(EndCompleted, WithID("01JC3Z5G8R"), WithStream("s-1"))
	end.TS, end.Seq = 1732900000125, 2
	return []*Frame{&call, &end}
}

// plainFrames are the least that a client sends.
func plainFrames() []*Frame {
	call := Call("read_file", []byte(`{"path":"README.md"}`), WithID("c1"), WithCall("call-1", "read_file"))
	call.TS = 1732900000123
	end := End(EndCompleted)
	return []*Frame{&call, &end}
}

func BenchmarkDecode(b *testing.B) {
	run := func(name string, enc Encoding, fs []*Frame) {
		b.Run(name, func(b *testing.B) {
			data, err := Encode(enc, fs...)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("msgpack", Msgpack, benchFrames())
	run("msgpack-plain", Msgpack, plainFrames())
	run("json", JSON, benchFrames())
}

func BenchmarkEncode(b *testing.B) {
	run := func(name string, enc Encoding, fs []*Frame) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encode(enc, fs...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("msgpack", Msgpack, benchFrames())
	run("msgpack-plain", Msgpack, plainFrames())
	run("json", JSON, benchFrames())
}

// TestAllocations holds the number of allocations of the hot paths: the frames,
// their texts, and metadata where there is some.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		name           string
		frames         []*Frame
		decode, encode float64
	}{{"plain", plainFrames(), 2, 1}, {"full", benchFrames(), 3, 1}} {
		data, err := Encode(Msgpack, c.frames...)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = Decode(data) }); n > c.decode {
			t.Errorf("%s: Decode allocates %v times, the most is %v", c.name, n, c.decode)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = Encode(Msgpack, c.frames...) }); n > c.encode {
			t.Errorf("%s: Encode allocates %v times, the most is %v", c.name, n, c.encode)
		}
	}
}

// BenchmarkLibraryDecode reads the same message with the library's decoder,
// by hand and without reflection: no scan, no unknown keys, no leniency.
func BenchmarkLibraryDecode(b *testing.B) {
	data, err := Encode(Msgpack, benchFrames()...)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if fs, err := libraryDecode(data); err != nil || len(fs) != 2 {
			b.Fatal(err)
		}
	}
}

// BenchmarkScannedLibraryDecode is the same behind our scan, which makes it safe.
func BenchmarkScannedLibraryDecode(b *testing.B) {
	data, err := Encode(Msgpack, benchFrames()...)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s := scanner{walk: walk{data: data}}
		for s.pos < len(data) {
			if _, bad := s.scanValue(); bad != nil {
				b.Fatal(bad.err())
			}
		}
		if fs, err := libraryDecode(data); err != nil || len(fs) != 2 {
			b.Fatal(err)
		}
	}
}

func BenchmarkLibraryEncode(b *testing.B) {
	fs := benchFrames()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := libraryEncode(fs); err != nil {
			b.Fatal(err)
		}
	}
}

func libraryDecode(data []byte) ([]Frame, error) {
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	r := bytes.NewReader(data)
	dec.Reset(r)
	out := make([]Frame, 0, 2)
	for r.Len() > 0 {
		out = append(out, Frame{})
		if err := libraryDecodeFrame(dec, &out[len(out)-1]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func libraryDecodeFrame(dec *msgpack.Decoder, f *Frame) error {
	n, err := dec.DecodeMapLen()
	for i := 0; i < n && err == nil; i++ {
		var key string
		if key, err = dec.DecodeString(); err != nil {
			return err
		}
		switch key {
		case "v":
			_, err = dec.DecodeInt64()
		case "type":
			var t string
			t, err = dec.DecodeString()
			f.Type = Type(t)
		case "id":
			f.ID, err = dec.DecodeString()
		case "ts":
			var ts float64
			ts, err = dec.DecodeFloat64()
			f.TS = int64(ts)
		case "streamId":
			f.StreamID, err = dec.DecodeString()
		case "seq":
			f.Seq, err = dec.DecodeUint64()
		case "toolCallId":
			f.ToolCallID, err = dec.DecodeString()
		case "name":
			f.Name, err = dec.DecodeString()
		case "content":
			var raw msgpack.RawMessage
			raw, err = dec.DecodeRaw()
			f.Content = Raw(raw)
		case "metadata":
			f.Metadata, err = libraryDecodeFields(dec)
		default:
			err = dec.Skip()
		}
	}
	return err
}

func libraryDecodeFields(dec *msgpack.Decoder) (Fields, error) {
	n, err := dec.DecodeMapLen()
	fs := make(Fields, 0, max(n, 0))
	for i := 0; i < n && err == nil; i++ {
		var key string
		if key, err = dec.DecodeString(); err != nil {
			return nil, err
		}
		var raw msgpack.RawMessage
		raw, err = dec.DecodeRaw()
		fs = append(fs, Field{key, Raw(raw)})
	}
	return fs, err
}

func libraryEncode(fs []*Frame) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(512)
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(&buf)
	for _, f := range fs {
		if err := libraryEncodeFrame(enc, f); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

func libraryEncodeFrame(enc *msgpack.Encoder, f *Frame) error {
	texts := []struct{ key, value string }{
		{"type", string(f.Type)}, {"id", f.ID}, {"streamId", f.StreamID}, {"toolCallId", f.ToolCallID}, {"name", f.Name},
	}
	n := 4
	for _, t := range texts {
		if t.value != "" {
			n++
		}
	}
	if len(f.Metadata) > 0 {
		n++
	}
	if err := enc.EncodeMapLen(n); err != nil {
		return err
	}
	for _, t := range texts {
		if t.value == "" {
			continue
		}
		if err := libraryEncodeKey(enc, t.key, func() error { return enc.EncodeString(t.value) }); err != nil {
			return err
		}
	}
	for _, write := range []func() error{
		func() error { return libraryEncodeKey(enc, "v", func() error { return enc.EncodeUint(Version) }) },
		func() error {
			return libraryEncodeKey(enc, "ts", func() error { return enc.EncodeFloat64(float64(f.TS)) })
		},
		func() error { return libraryEncodeKey(enc, "seq", func() error { return enc.EncodeUint(f.Seq) }) },
		func() error {
			return libraryEncodeKey(enc, "content", func() error { return enc.Encode(msgpack.RawMessage(f.Content)) })
		},
		func() error { return libraryEncodeFields(enc, f.Metadata) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

func libraryEncodeKey(enc *msgpack.Encoder, key string, value func() error) error {
	if err := enc.EncodeString(key); err != nil {
		return err
	}
	return value()
}

func libraryEncodeFields(enc *msgpack.Encoder, fs Fields) error {
	if len(fs) == 0 {
		return nil
	}
	if err := enc.EncodeString("metadata"); err != nil {
		return err
	}
	if err := enc.EncodeMapLen(len(fs)); err != nil {
		return err
	}
	for _, f := range fs {
		if err := libraryEncodeKey(enc, f.Key, func() error { return enc.Encode(msgpack.RawMessage(f.Value)) }); err != nil {
			return err
		}
	}
	return nil
}
