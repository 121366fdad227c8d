package scripted_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/scripted"
)

// workspace runs the demo's calls on a folder, as the workspace tools would.
type workspace struct {
	t     *testing.T
	files fstest.MapFS
	// fail makes calls of these tools fail, plain shows text instead of JSON.
	fail  map[string]string
	plain bool
	// rounds are the calls of each round, as "name arguments".
	rounds [][]string
}

var tools = []provider.Tool{{Name: "read_file", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)}, {Name: "run_command"}}

// run talks to the demo until it answers without calls.
func (w *workspace) run(req *provider.Request) string {
	w.t.Helper()
	p := newProvider(w.t, scripted.Config{})
	for round := 0; ; round++ {
		if round > 5 {
			w.t.Fatalf("no answer after %d rounds: %v", round, w.rounds)
		}
		turn, err := provider.Collect(p.Stream(w.t.Context(), req))
		if err != nil {
			w.t.Fatal(err)
		}
		message := turn.Message()
		if len(message.Calls) == 0 {
			req.Messages = append(req.Messages, message)
			return turn.Text
		}
		w.round(req, message, turn.Calls)
	}
}

func (w *workspace) round(req *provider.Request, message provider.Message, calls []provider.ToolCall) {
	for i := range message.Calls {
		message.Calls[i].ID = fmt.Sprintf("u-%d-%d", len(req.Messages), i)
	}
	req.Messages = append(req.Messages, message)
	var said []string
	for i, c := range calls {
		if c.Invalid != nil {
			w.t.Fatal(c.Invalid)
		}
		text, failed := w.call(c)
		said = append(said, c.Name+" "+c.Arguments)
		req.Messages = append(req.Messages, provider.Message{Role: provider.RoleTool, ToolCallID: message.Calls[i].ID, Text: text, IsError: failed})
	}
	w.rounds = append(w.rounds, said)
}

func (w *workspace) call(c provider.ToolCall) (text string, failed bool) {
	if text, ok := w.fail[c.Name]; ok {
		return text, true
	}
	var in struct {
		Path    string `json:"path"`
		Command string `json:"command"`
	}
	if err := json.Unmarshal([]byte(c.Arguments), &in); err != nil {
		w.t.Fatal(err)
	}
	if c.Name == "run_command" {
		n := 0
		_ = fs.WalkDir(w.files, ".", func(_ string, e fs.DirEntry, _ error) error {
			if !e.IsDir() {
				n++
			}
			return nil
		})
		return w.show(map[string]any{"success": true, "command": in.Command, "stdout": fmt.Sprintf("%d\n", n), "exitCode": 0}, fmt.Sprintf("%d\n", n)), false
	}
	return w.read(path.Clean(in.Path))
}

func (w *workspace) read(name string) (text string, failed bool) {
	if name != "." {
		data, err := fs.ReadFile(w.files, name)
		if err != nil {
			return err.Error(), true
		}
		return w.show(map[string]any{"success": true, "path": name, "content": string(data), "size": len(data)}, string(data)), false
	}
	list, err := fs.ReadDir(w.files, ".")
	if err != nil {
		return err.Error(), true
	}
	files := []map[string]any{}
	for _, e := range list {
		kind := "file"
		if e.IsDir() {
			kind = "dir"
		}
		info, err := e.Info()
		if err != nil {
			w.t.Fatal(err)
		}
		files = append(files, map[string]any{"name": e.Name(), "type": kind, "size": info.Size()})
	}
	return w.show(map[string]any{"success": true, "path": ".", "isDirectory": true, "files": files}, ""), false
}

func (w *workspace) show(result map[string]any, plain string) string {
	if w.plain && plain != "" {
		return plain
	}
	text, err := json.Marshal(result)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func folder(files ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

func describe(text string) *provider.Request {
	return &provider.Request{Model: "demo", Tools: tools, Messages: []provider.Message{{Role: provider.RoleSystem, Text: "s"}, user(text)}}
}

func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}

func TestDemoPlansFromWhatTheToolsReturn(t *testing.T) {
	t.Parallel()
	goFolder := &workspace{t: t, files: folder("README.md", "<img>\n[![ci](x)]\n\n# Weave <things>\n", "go.mod", "module example.com/weave\n\ngo 1.26\n", "cmd/main.go", "package main", "notes.txt", "x")}
	jsFolder := &workspace{t: t, files: folder("package.json", `{"name":"shop","description":"sells tea"}`, "index.js", "// entry point\n", "logo.png", "\x89PNG")}
	one := goFolder.run(describe("Describe this folder"))
	two := jsFolder.run(describe("Describe this folder"))
	says(t, one, "3 files (README.md, go.mod, notes.txt) and 1 folder (cmd/)", "README.md begins: “Weave <things>”", "go.mod declares the Go module example.com/weave", "there are 4 files")
	says(t, two, "3 files (index.js, logo.png, package.json)", "package.json declares the package shop: sells tea", "index.js begins: “// entry point”", "there are 3 files")
	want := [][]string{
		{"read_file {}"}, {`read_file {"path":"README.md"}`, `read_file {"path":"go.mod"}`},
		{`run_command {"command":"find . -type f -not -path './.git/*' | head -n 100000 | wc -l"}`},
	}
	if diff := cmp.Diff(want, goFolder.rounds); diff != "" {
		t.Errorf("rounds (-want +got):\n%s", diff)
	}
}

func TestDemoReadsPlainResults(t *testing.T) {
	t.Parallel()
	w := &workspace{t: t, plain: true, files: folder("README", "Plain words\n===\n")}
	says(t, w.run(describe("x")), "1 file (README)", "README begins: “Plain words”", "there is 1 file.")
}

func TestDemoReadsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	w := &workspace{t: t, files: folder("README.md", "# R", "go.mod", "module m", "data.bin", "the bytes", "a", "x")}
	says(t, w.run(describe("What is a thing in DATA.BIN, please?")), "a begins: “x”", "data.bin begins: “the bytes”")
	if got := w.rounds[1]; len(got) != 2 || got[1] != `read_file {"path":"data.bin"}` {
		t.Errorf("reads %v", got)
	}
}

func TestDemoInAnEmptyFolder(t *testing.T) {
	t.Parallel()
	w := &workspace{t: t, files: folder()}
	says(t, w.run(describe("x")), "This folder is empty.", "there are 0 files")
	if len(w.rounds) != 2 {
		t.Errorf("rounds %v", w.rounds)
	}
}

func TestDemoTellsOfFailures(t *testing.T) {
	t.Parallel()
	w := &workspace{t: t, files: folder("README.md", "# R"), fail: map[string]string{"run_command": "DENIED: not allowed\nat all"}}
	says(t, w.run(describe("x")), "README.md begins: “R”", "Counting the files failed: “DENIED: not allowed”.")
	w.fail["run_command"] = `{"success":true,"stdout":"","stderr":"find: not found\n","exitCode":127}`
	says(t, w.run(describe("x")), "Counting the files failed: “find: not found”.")
	w = &workspace{t: t, files: folder("README.md", "# R"), fail: map[string]string{"read_file": "no workspace", "run_command": "gone"}}
	says(t, w.run(describe("x")), "Listing the folder failed: “no workspace”.", "Counting the files failed: “gone”.")
	if len(w.rounds) != 2 {
		t.Errorf("rounds %v", w.rounds)
	}
}

func TestDemoWithoutATool(t *testing.T) {
	t.Parallel()
	for i, want := range map[int]string{0: "README.md begins: “R”.", 1: "there is 1 file."} {
		w := &workspace{t: t, files: folder("README.md", "# R")}
		req := describe("x")
		req.Tools = tools[i : i+1]
		says(t, w.run(req), want)
	}
	for _, req := range []*provider.Request{
		{Model: "demo", Messages: []provider.Message{user("hello")}},
		{Model: "demo", Messages: []provider.Message{user("hello")}, Tools: []provider.Tool{{Name: "other"}}},
		{Model: "demo", Messages: []provider.Message{user("hello")}, Tools: tools, ToolChoice: provider.ToolChoice{Mode: provider.ChoiceNone}},
		{Model: "demo"},
	} {
		w := &workspace{t: t}
		if got := w.run(req); !strings.Contains(got, "I cannot look at the folder") || len(w.rounds) > 0 {
			t.Errorf("%q, rounds %v", got, w.rounds)
		}
	}
}

// A tool that wants a path gets one.
func TestDemoGivesARequiredPath(t *testing.T) {
	t.Parallel()
	w := &workspace{t: t, files: folder("README.md", "# R")}
	req := describe("x")
	req.Tools = []provider.Tool{{Name: "read_file", Schema: json.RawMessage(`{"type":"object","required":["path"]}`)}}
	says(t, w.run(req), "README.md begins")
	if w.rounds[0][0] != `read_file {"path":"."}` {
		t.Errorf("rounds %v", w.rounds)
	}
}

func TestDemoAnswersWithToolsOff(t *testing.T) {
	t.Parallel()
	for _, final := range []provider.Message{
		{Role: provider.RoleSystem, Text: "Answer directly using the tool result. Do not call tools."},
		user("Answer directly using the tool result. Do not call tools."),
	} {
		w := &workspace{t: t, files: folder("README.md", "# R")}
		req := describe("Describe this folder")
		w.run(req)
		req.Tools, req.Messages = nil, append(req.Messages[:len(req.Messages)-1:len(req.Messages)-1], final)
		got := w.run(req)
		says(t, got, "README.md", "there is 1 file")
		if strings.Contains(got, "Answer directly") {
			t.Errorf("%q takes the instruction for a question", got)
		}
	}
}

func TestDemoLooksAgainInTheSecondTurn(t *testing.T) {
	t.Parallel()
	w := &workspace{t: t, files: folder("README.md", "# R")}
	req := describe("Describe this folder")
	w.run(req)
	w.files["new.txt"] = &fstest.MapFile{Data: []byte("fresh")}
	req.Messages = append(req.Messages, user("And new.txt?"))
	says(t, w.run(req), "You asked: “And new.txt?”.", "2 files (README.md, new.txt)", "new.txt begins: “fresh”", "there are 2 files")
	ids := map[string]bool{}
	for _, m := range req.Messages {
		for _, c := range m.Calls {
			if ids[c.ModelID] {
				t.Errorf("id %s is there twice", c.ModelID)
			}
			ids[c.ModelID] = true
		}
	}
}

// A listing that was cut to a limit, names only, hostile names, many names.
func TestDemoReadsAnyListing(t *testing.T) {
	t.Parallel()
	many := make([]string, 0, 60)
	for i := range 60 {
		many = append(many, fmt.Sprintf("f%02d.bin", i))
	}
	names, err := json.Marshal(map[string]any{"files": many})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"isDirectory":true,"files":[{"name":"a.txt","type":"file","size":5},{"name":"b","type":"directory"},{"name":"c.tx`: "1 file (a.txt) and 1 folder (b/)",
		`{"total":7,"files":[{"name":"a","type":"file","size":0},{"name":"l","type":"link","size":0}]}`:                      "1 file (a) and 1 special file (l), and 5 more that",
		`{"files":["README.md","src/"]}`: "1 file (README.md) and 1 folder (src/)",
		string(names):                    "f19.bin and 40 more",
		"{\"files\":[{\"name\":\"a\\nb\\u0000" + strings.Repeat("x", 500) + "\"}]}": "1 file (a b xxx",
		`{"files":[null,5,{}]}`: "This folder is empty.",
		"nothing of that kind":  "The listing cannot be read: “nothing of that kind”.",
	} {
		req := describe("x")
		req.Messages = append(
			req.Messages,
			provider.Message{Role: provider.RoleAssistant, Calls: []provider.Call{{ID: "a", Name: "read_file", Arguments: "{}"}}},
			provider.Message{Role: provider.RoleTool, ToolCallID: "a", Text: text},
		)
		req.Tools = nil
		got := (&workspace{t: t}).run(req)
		says(t, got, want)
		if len(got) > 1000 {
			t.Errorf("answer of %d bytes", len(got))
		}
	}
}

// A call whose result never came is not made again.
func TestDemoWithAMissingResult(t *testing.T) {
	t.Parallel()
	req := describe("x")
	req.Messages = append(req.Messages, provider.Message{Role: provider.RoleAssistant, Calls: []provider.Call{{ID: "a", Name: "read_file", Arguments: "{}"}}})
	w := &workspace{t: t, files: folder()}
	says(t, w.run(req), "Listing the folder gave no result.", "there are 0 files")
}

func TestDemoStreamsItsAnswer(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{})
	got, err := events(p, "demo", user("hello there, how are you today?"))
	if err != nil || len(got) < 5 {
		t.Fatalf("%d events, %v", len(got), err)
	}
	stop, ok := got[len(got)-1].(provider.Stop)
	if !ok || stop.Reason != provider.StopDone || stop.Usage.InputTokens == 0 || stop.Usage.TotalTokens != stop.Usage.InputTokens+stop.Usage.OutputTokens {
		t.Errorf("stop %+v", got[len(got)-1])
	}
}
