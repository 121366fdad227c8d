package frames

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files and the appendix of docs/protocol.md")

// archive is a file in testdata that holds small files, in txtar's form: a
// comment, then each file behind a line "-- name --".
type archive struct {
	path, comment string
	files         []archiveFile
}

type archiveFile struct{ name, data string }

func readArchive(t *testing.T, name string) *archive {
	t.Helper()
	a := &archive{path: filepath.Join("testdata", name)}
	text, err := os.ReadFile(a.path)
	if err != nil {
		t.Fatal(err)
	}
	p := parseArchive(string(text))
	a.comment, a.files = p.comment, p.files
	return a
}

func parseArchive(text string) *archive {
	a := &archive{}
	for line := range strings.Lines(text) {
		switch name, ok := fileMark(line); {
		case ok:
			a.files = append(a.files, archiveFile{name: name})
		case len(a.files) == 0:
			a.comment += line
		default:
			a.files[len(a.files)-1].data += line
		}
	}
	return a
}

func fileMark(line string) (string, bool) {
	name, ok := strings.CutPrefix(strings.TrimSpace(line), "-- ")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, " --")
}

func (a *archive) get(name string) (string, bool) {
	i := slices.IndexFunc(a.files, func(f archiveFile) bool { return f.name == name })
	if i < 0 {
		return "", false
	}
	return a.files[i].data, true
}

// put sets a file; a new one stands behind the others of its stem.
func (a *archive) put(name, data string) {
	stem, _, _ := strings.Cut(name, ".")
	at := len(a.files)
	for i, f := range a.files {
		if f.name == name {
			a.files[i].data = data
			return
		}
		if strings.HasPrefix(f.name, stem+".") {
			at = i + 1
		}
	}
	a.files = slices.Insert(a.files, at, archiveFile{name, data})
}

func (a *archive) save(t *testing.T) {
	t.Helper()
	var b strings.Builder
	b.WriteString(a.comment)
	for _, f := range a.files {
		b.WriteString("-- " + f.name + " --\n" + f.data)
	}
	if err := os.WriteFile(a.path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// expect compares with a file of the archive, or writes it with -update.
func (a *archive) expect(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		a.put(name, got)
		return
	}
	want, ok := a.get(name)
	if !ok {
		t.Fatalf("%s has no %s: run go test -update", a.path, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-golden +got):\n%s", name, diff)
	}
}

func fromHex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := parseHex(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// parseHex reads hex with line breaks and # comments.
func parseHex(text string) ([]byte, error) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		b.WriteString(strings.TrimSpace(line))
	}
	return hex.DecodeString(b.String())
}

func toHex(data []byte) string {
	var b strings.Builder
	for len(data) > 0 {
		n := min(48, len(data))
		fmt.Fprintf(&b, "%x\n", data[:n])
		data = data[n:]
	}
	return b.String()
}

// describe shows what a message is read as, one line a field.
func describe(data []byte) string {
	m, err := Decode(data)
	if err != nil {
		return "refused: " + err.Error() + "\n"
	}
	var b strings.Builder
	for i := range m.Frames {
		describeFrame(&b, &m.Frames[i])
	}
	return b.String()
}

func describeFrame(b *strings.Builder, f *Frame) {
	fmt.Fprintf(b, "%s\n", f.Type)
	line := func(name string, set bool, value any) {
		if set {
			fmt.Fprintf(b, "  %s: %v\n", name, value)
		}
	}
	line("id", f.ID != "", f.ID)
	line("ts", f.TS != 0, f.TS)
	line("streamId", f.StreamID != "", f.StreamID)
	line("seq", f.Seq != 0, f.Seq)
	line("entry", f.Entry != 0, f.Entry)
	line("part", f.Part != 0, f.Part)
	line("last", f.Last, f.Last)
	line("epoch", f.Epoch != 0, f.Epoch)
	line("toolCallId", f.ToolCallID != "", f.ToolCallID)
	line("name", f.Name != "", f.Name)
	line("key", f.Key != "", f.Key)
	line("value", f.Value != nil, notation(f.Value))
	line("content", f.Content != nil, notation(f.Content))
	line("metadata", f.Metadata != nil, notation(f.Metadata.Raw()))
	for _, x := range f.Extra {
		line("+"+x.Key, true, notation(x.Value))
	}
	switch f.Type {
	case TypeToolCall:
		args, err := f.Arguments()
		line("→ arguments", err == nil, string(args))
		line("→ arguments", err != nil, err)
	case TypeToolResult:
		r, err := f.Result()
		if err != nil {
			line("→ result", true, err)
			return
		}
		line("→ result", r.Result != nil, string(r.Result))
		line("→ error", r.Err != nil, r.Err)
	case TypeError:
		line("→ error", true, f.Err())
	}
}

// notation writes a value so that every kind looks its own way: 1 and 1.0,
// "text" and h'ff', and the timestamp as t'…'.
func notation(r Raw) string {
	switch r.Kind() {
	case KindAbsent:
		return "absent"
	case KindNil:
		return "nil"
	case KindMap:
		return notationMap(r)
	case KindArray:
		var items []string
		for v := range r.Items() {
			items = append(items, notation(v))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case KindString:
		s, _ := r.Text()
		return strconv.Quote(s)
	case KindBin:
		p, _ := r.Bytes()
		return fmt.Sprintf("h'%x'", p)
	case KindTime:
		t, _ := r.Time()
		return "t'" + t.Format(time.RFC3339Nano) + "'"
	case KindFloat:
		f, _ := r.Float64()
		if f == math.Trunc(f) && math.Abs(f) < 1e15 {
			return strconv.FormatFloat(f, 'f', 1, 64)
		}
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	text, _ := r.JSON()
	return string(text)
}

func notationMap(r Raw) string {
	var pairs []string
	for k, v := range r.Pairs() {
		pairs = append(pairs, k+": "+notation(v))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// TestForeign reads bytes as other msgpack libraries write them.
//
// contract: G60, B51, F8
func TestForeign(t *testing.T) {
	a := readArchive(t, "foreign.txtar")
	for _, f := range slices.Clone(a.files) {
		name, isHex := strings.CutSuffix(f.name, ".hex")
		if !isHex {
			continue
		}
		t.Run(name, func(t *testing.T) {
			a.expect(t, name+".want", describe(fromHex(t, f.data)))
		})
	}
	if *update {
		a.save(t)
	}
}

// TestGolden holds the bytes of every frame type in both encodings: they are
// written so, and read back as the same frames.
//
// contract: P27, G46, G47, B51, F6
func TestGolden(t *testing.T) {
	a := readArchive(t, "golden.txtar")
	for _, g := range goldenMessages() {
		t.Run(g.name, func(t *testing.T) {
			for _, enc := range []Encoding{Msgpack, JSON} {
				data, err := Encode(enc, g.frames...)
				if err != nil {
					t.Fatal(err)
				}
				if enc == JSON {
					a.expect(t, g.name+".json", string(data)+"\n")
				} else {
					a.expect(t, g.name+".hex", "# "+g.note+"\n"+toHex(data))
				}
				checkReads(t, data, enc, g.frames)
			}
		})
	}
	if *update {
		a.save(t)
	}
}

func checkReads(t *testing.T, data []byte, enc Encoding, want []*Frame) {
	t.Helper()
	m, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if m.Encoding != enc || len(m.Frames) != len(want) {
		t.Fatalf("read %d frames in %s, want %d in %s", len(m.Frames), m.Encoding, len(want), enc)
	}
	for i, f := range want {
		if diff := cmp.Diff(*f, m.Frames[i], equalRaw); diff != "" {
			t.Errorf("%s, frame %d (-want +read):\n%s", enc, i, diff)
		}
	}
}

// equalRaw compares absent values as equal, others by their bytes.
var equalRaw = cmp.Options{
	cmp.Comparer(func(a, b Raw) bool { return (a.Absent() && b.Absent()) || bytes.Equal(a, b) }),
	cmp.Comparer(func(a, b Fields) bool { return bytes.Equal(a.Raw(), b.Raw()) }),
}

type goldenMessage struct {
	name, note string
	frames     []*Frame
}

func goldenMessages() []goldenMessage {
	at := time.UnixMilli(1732900000123)
	all := func(id string) []Option { return []Option{WithID(id), WithTime(at)} }
	call := func(id string) []Option { return append(all(id), WithCall("call-1", "read_file")) }
	one := func(name, note string, f Frame) goldenMessage { return goldenMessage{name, note, []*Frame{&f}} }
	return []goldenMessage{
		one("describe", "ask for the declaration of one tool", Describe("read_file", all("a1")...)),
		one("description", "a tool's declaration", Description(goldenDeclaration(), all("a2")...)),
		goldenCall(call("a3")...),
		goldenResult(call("a4")...),
		one("result-error", "a failed call; a tool error and no result", FailedResult(Timeout("read_file", 1500*time.Millisecond), call("a5")...)),
		goldenParts(call("a6")...),
		one("text", "a piece of model text, live", withLive(Text("Grüße, 世界", all("a7")...))),
		one("thinking", "a model's reasoning", Thinking("Look at the files first.", "c2ln", all("a8")...)),
		one("progress", "a tool's progress", Progress(map[string]any{"progress": 3, "total": 10, "message": "reading"}, call("a9")...)),
		one("data", "a model's answer from outside", Data(map[string]any{"type": "llm-response", "content": "Hello."}, all("b1")...)),
		one("meta", "acknowledgement of a session's input", Meta(map[string]any{"accepted": "a7"}, all("b2")...)),
		one("tick", "work goes on", Tick(call("b3")...)),
		one("cancel", "stop one call", Cancel("call-1", "read_file", all("b4")...)),
		one("cancel-turn", "stop the turn of epoch 4", CancelTurn(4, all("b5")...)),
		one("abort", "stop a session or a run", Abort(all("b6")...)),
		one("error", "an error outside of a call", Fail(NewError(CodeConflict, "Harness not initialized. Send START frame first."), append(all("b7"), WithMeta("inputId", "a7"))...)),
		one("error-text", "an error of a text", FailText("boom", all("b8")...)),
		one("end", "the end of an exchange", End(EndCompleted, all("b9")...)),
		goldenRun(all),
		one("call-opened", "open a call whose arguments come in pieces", OpenCall("read_file", "call-1", all("d1")...)),
		one("call-sink", "where its pieces go", Meta(map[string]any{"sink": "wb.sink.me.r1", "state": "open"}, call("d2")...)),
		one("call-piece", "a piece of its arguments", ArgumentPiece("call-1", 1, []byte(`{"path":"READ`), all("d3")...)),
		goldenClosed(all("d4"), all("d5")),
		goldenRepaired(call("d6")...),
	}
}

func goldenClosed(last, closing []Option) goldenMessage {
	piece, end := ArgumentPiece("call-1", 2, []byte(`ME.md",}`), last...), CloseCall("call-1", 3, closing...)
	return goldenMessage{"call-closed", "its last piece and what closes it, in one request", []*Frame{&piece, &end}}
}

func goldenRepaired(opts ...Option) goldenMessage {
	repairs := []string{"trailing_comma"}
	meta := Meta(map[string]any{"repairs": repairs}, opts...)
	result := Result(&ToolResult{Result: []byte(`{"content":"# Weavebus\n"}`)}, append(opts, WithMeta("repairs", repairs))...)
	end := End(EndCompleted)
	for i, f := range []*Frame{&meta, &result, &end} {
		f.Seq = uint64(i) + 1
	}
	return goldenMessage{"call-repaired", "its answer; the arguments were repaired", []*Frame{&meta, &result, &end}}
}

func goldenDeclaration() *Declaration {
	ms := DefaultTimeout.Milliseconds()
	d := &Declaration{
		TimeoutMs: &ms,
		Name:      "read_file", Title: "Read a file", Description: "Reads a file of the workspace.",
		Schema:       []byte(`{"type":"object","properties":{"path":{"type":"string"}}}`),
		Version:      "1.2.0",
		Annotations:  Annotations{ReadOnly: true, Idempotent: true},
		Capabilities: []string{"read"},
		Replay:       ReplaySafe,
		Concurrency:  DefaultConcurrency,
		Extra:        Fields{{"x-team", Value("files")}},
	}
	d.fillDefaults()
	d.SetDigest()
	d.Service, d.Identity, d.Instance = "workspace-tools", "local", "i1"
	return d
}

func goldenCall(opts ...Option) goldenMessage {
	f := Call("read_file", []byte(`{"path":"README.md","limit":9007199254740993,"ratio":1.0}`), opts...)
	f.Metadata.Set("timeoutMs", Value(5000))
	return goldenMessage{"call", "a call; its arguments are JSON text", []*Frame{&f}}
}

func goldenResult(opts ...Option) goldenMessage {
	result := Result(&ToolResult{
		Result: []byte(`{"success":true,"path":"README.md","content":"# Weavebus\n"}`), Duration: 12 * time.Millisecond, Attempts: 1, Instance: "i1",
	}, opts...)
	result.Seq = 1
	end := End(EndCompleted, WithID("a4e"))
	end.Seq = 2
	return goldenMessage{"result", "a result and its END in one message", []*Frame{&result, &end}}
}

func goldenParts(opts ...Option) goldenMessage {
	f := Result(&ToolResult{
		Result: []byte("null"),
		Parts: []Part{
			{Type: "text", Text: "a picture", MediaType: "text/plain"},
			{Type: "image", MediaType: "image/png", Data: []byte{0x89, 0x50, 0x4e, 0x47, 0xff}},
		},
	}, opts...)
	return goldenMessage{"result-parts", "a result with parts for the model; data is bin, in JSON base64", []*Frame{&f}}
}

func withLive(f Frame) Frame {
	f.StreamID, f.Seq, f.Epoch = "turn-2", 7, 2
	return f
}

func goldenRun(all func(string) []Option) goldenMessage {
	messages := []any{map[string]any{"role": "user", "content": "Describe this folder"}}
	model, history, start := Param("model", "scripted/demo", all("c1")...), Param("messages", messages, all("c2")...), Start(all("c3")...)
	return goldenMessage{"run", "a run in one message: two PARAMs and a START", []*Frame{&model, &history, &start}}
}
