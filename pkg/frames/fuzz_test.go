package frames

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seeds gives the golden and the foreign messages, and the small hostile ones.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	var out [][]byte
	for _, name := range []string{"golden.txtar", "foreign.txtar"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range parseArchive(string(text)).files {
			switch {
			case strings.HasSuffix(file.name, ".hex"):
				data, err := parseHex(file.data)
				if err != nil {
					f.Fatal(err)
				}
				out = append(out, data)
			case strings.HasSuffix(file.name, ".json"):
				out = append(out, []byte(file.data))
			}
		}
	}
	for _, group := range [][]hostileCase{hugeLengths, deepNesting, badValues, notWhole} {
		for _, c := range group {
			if len(c.data) < 512 {
				out = append(out, c.data)
			}
		}
	}
	return out
}

// FuzzDecode: no message panics or makes Decode allocate much; one that is read
// is read the same after it was written again, in both encodings.
//
// contract: F7, F8
func FuzzDecode(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Message
		var err error
		if n := allocated(func() { m, err = Decode(data) }); n > uint64(1<<20+8*len(data)) {
			t.Fatalf("allocated %d bytes for %d", n, len(data))
		}
		if err != nil {
			if CodeOf(err) != CodeBadFrame || len(m.Frames) != 0 {
				t.Fatalf("%d frames and %v", len(m.Frames), err)
			}
			return
		}
		checkStable(t, &m)
	})
}

func checkStable(t *testing.T, m *Message) {
	packed := write(t, Msgpack, m)
	again := read(t, packed)
	if diff := cmp.Diff(m.Frames, again.Frames, equalRaw); diff != "" {
		t.Fatalf("-read +written and read:\n%s", diff)
	}
	text, err := Encode(JSON, pointers(m)...)
	if err != nil {
		for i := range m.Frames {
			if hasNoJSON(&m.Frames[i]) {
				return
			}
		}
		t.Fatalf("no JSON: %v", err)
	}
	fromText := read(t, text)
	if twice := write(t, JSON, &fromText); !bytes.Equal(text, twice) {
		t.Fatalf("JSON\n%s\nis written again as\n%s", text, twice)
	}
}

// hasNoJSON reports whether a payload tree has no JSON form.
func hasNoJSON(f *Frame) bool {
	found := false
	var look func(r Raw)
	look = func(r Raw) {
		for k, v := range r.Pairs() {
			if _, err := r.Payload(k); isPayload(k) && err != nil {
				found = true
			}
			look(v)
		}
		for v := range r.Items() {
			look(v)
		}
	}
	look(f.Content)
	look(f.Value)
	look(f.Extra.Raw())
	return found
}

func pointers(m *Message) []*Frame {
	out := make([]*Frame, len(m.Frames))
	for i := range m.Frames {
		out[i] = &m.Frames[i]
	}
	return out
}

func write(t *testing.T, enc Encoding, m *Message) []byte {
	t.Helper()
	data, err := Encode(enc, pointers(m)...)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func read(t *testing.T, data []byte) Message {
	t.Helper()
	m, err := Decode(data)
	if err != nil {
		t.Fatalf("what was written is not read: %v\n%q", err, data)
	}
	return m
}

// FuzzScanAgainstMsgpack: a value that the scan accepts, the library decodes,
// and to the same.
func FuzzScanAgainstMsgpack(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := scanner{walk: walk{data: data}}
		if _, bad := s.scanValue(); bad != nil {
			return
		}
		value := data[:s.pos]
		if n := valueLen(data); n != s.pos {
			t.Fatalf("%x: scanned %d bytes, walked %d", value, s.pos, n)
		}
		got, err := libraryValues(value)
		if err != nil || len(got) != 1 {
			t.Fatalf("%x: %v", value, err)
		}
		if !same(toGo(value), got[0], false) {
			t.Fatalf("%x\nis %v\nto the library %v", value, toGo(value), got[0])
		}
	})
}

// FuzzJSON: what we take as JSON is JSON, and says the same to encoding/json;
// what we refuse is none, or breaks a rule that we name.
func FuzzJSON(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
	}
	for _, text := range []string{`[1,-0,1e5,0.1,""]`, `{"a":{"b":[true,false,null]}}`, `"\ud83d\ude00\u0000"`, ` [ ] `, `1 2`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkJSONAgrees(t, text) })
}

// FuzzContents: no content makes its readers panic, whether it was scanned or
// not; what they read is written and read the same.
func FuzzContents(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
		if m, err := Decode(data); err == nil {
			f.Add([]byte(m.Frames[0].Content))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		readAll(data)
		s := scanner{walk: walk{data: data}}
		if _, bad := s.scanValue(); bad != nil || Raw(data).Kind() != KindMap {
			return
		}
		content := Raw(data[:s.pos])
		readAll(content)
		checkDeclaration(t, content)
		checkResult(t, content)
		if e := ErrorFrom(content); !cmp.Equal(e, ErrorFrom(e.Raw()), ignoreCause) && e.LLMMessage != "" {
			t.Fatalf("%+v is read again as %+v", e, ErrorFrom(e.Raw()))
		}
	})
}

// readAll calls every reader.
func readAll(r Raw) {
	f := Frame{Type: TypeError, Content: r}
	_, _ = f.Text(), f.Reason()
	_ = f.Err()
	_, _ = f.Arguments()
	_, _ = f.Result()
	_, _ = f.ContentJSON()
	_, _ = DeclarationFrom(r)
	_, _ = r.JSON()
	_, _ = r.Time()
	_, _ = r.Int64()
	_, _ = r.Uint64()
	_, _ = r.Float64()
	_, _ = r.nodes(), r.preview()
	_ = r.Len()
}

var ignoreCause = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".cause" }, cmp.Ignore())

func checkDeclaration(t *testing.T, content Raw) {
	d, err := DeclarationFrom(content)
	if err != nil {
		return
	}
	again, err := DeclarationFrom(d.Raw())
	if err != nil {
		t.Fatalf("what was written is not read: %v", err)
	}
	if diff := cmp.Diff(d, again, equalRaw); diff != "" {
		t.Fatalf("-read +written and read:\n%s", diff)
	}
	d.SetDigest()
	again.SetDigest()
	if d.Digest != again.Digest {
		t.Fatalf("the digest changed")
	}
}

func checkResult(t *testing.T, content Raw) {
	f := Frame{Type: TypeToolResult, Content: content}
	r, err := f.Result()
	if err != nil {
		if CodeOf(err) != CodeValidationOutput {
			t.Fatal(err)
		}
		return
	}
	written := Result(r)
	again, err := written.Result()
	if err != nil {
		t.Fatal(err)
	}
	twice := Result(again)
	if !bytes.Equal(written.Content, twice.Content) {
		t.Fatalf("%s\nis written again as\n%s", notation(written.Content), notation(twice.Content))
	}
}
