package manifesttools

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool/tooltest"
)

const echoScript = "#!/bin/sh\nread -r args\nprintf '{\"got\":%s}' \"$args\"\n"

// A declared program conforms as any tool does.
//
// contract: W37, B54, E1
func TestCommandConforms(t *testing.T) {
	t.Parallel()
	r := setup(t)
	in := r.serve(Config{Dirs: []string{folder(t, map[string]string{
		"work.sh": "#!/bin/sh\nread -r args\ncase $args in *slow*) exec sleep 1000;; esac\necho on the way >&2\nprintf '%s\\n' \"$args\"\n",
		"work.yaml": `name: work
description: Works.
inputSchema:
  type: object
  properties: {text: {type: string}, slow: {type: boolean}}
  required: [text]
  additionalProperties: false
outputSchema: {type: object, required: [text]}
command: work.sh
timeoutMs: 600000
`,
	})}})
	s := r.tool("work")
	tooltest.Run(t, r.caller, tooltest.Config{
		Tool: "work", Instance: s.id, Stop: in.stop,
		Good: []json.RawMessage{[]byte(`{"text":""}`), []byte(`{"text":"ü\n"}`)},
		Bad:  []json.RawMessage{[]byte(`{}`), []byte(`{"text":1}`), []byte(`{"text":"x","more":1}`)},
		Slow: json.RawMessage(`{"text":"x","slow":true}`),
	})
}

// contract: W37, E1
func TestCommandOutcomes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	dir := folder(t, map[string]string{
		"sh.json":   declaration("sh", `"command":"/bin/sh","args":["-c","read -r args; eval \"$(printf %s \"$args\" | cut -d\\\" -f4)\""],"timeoutMs":20000`),
		"echo.sh":   echoScript,
		"echo.json": declaration("echo", `"command":"./echo.sh"`),
		"env.json":  declaration("env", `"command":"/usr/bin/env","env":["MY_TOKEN"]`),
		"strict.yml": `name: strict
description: Has a schema of its results.
inputSchema: {type: object}
outputSchema: {type: object, required: [id]}
command: echo.sh
`,
	})
	r.serve(Config{
		Dirs: []string{dir}, ResultBytes: 1000, AllowSecrets: []string{"MY_TOKEN"},
		Environ: []string{"PATH=" + os.Getenv("PATH"), "MY_TOKEN=t0ken", "OPENAI_API_KEY=sk", "HOME=/home/x"},
	})
	echo, env, sh, strict := r.tool("echo"), r.tool("env"), r.tool("sh"), r.tool("strict")

	echo.want(`{"b":1.0,"a":[9007199254740993]}`, `{"got":{"b":1.0,"a":[9007199254740993]}}`)
	sh.want(`{"do":"true"}`, `{}`)
	sh.want(`{"do":"echo null"}`, `null`)
	sh.want(`{"do":"echo two words"}`, `"two words"`)
	sh.want(`{"do":"pwd"}`, `"`+dir+`"`)
	strict.fails(`{}`, frames.CodeValidationOutput, "", "id")

	res := sh.fails(`{"do":"echo 5; echo no luck >&2; exit 3"}`, frames.CodeExecution, "exit_status", "exited with status 3: no luck")
	if string(res.Result) != "5" || res.Err.Retryable {
		t.Errorf("got %s, retryable %v", res.Result, res.Err.Retryable)
	}
	if res = sh.fails(`{"do":"exit 75"}`, frames.CodeExecution, "exit_status"); !res.Err.Retryable {
		t.Error("exit code 75 is not retryable")
	}
	sh.fails(`{"do":"kill -9 $$"}`, frames.CodeExecution, "signal", "SIGKILL")
	sh.fails(`{"do":"head -c 2000 /dev/zero | tr '\\0' x"}`, frames.CodeTooLarge, "", "2000 bytes, the limit is 1000")

	_, live := sh.call(`{"do":"echo seen >&2; echo hidden"}`)
	var text strings.Builder
	for _, f := range live {
		if f.Type == frames.TypeText && f.Metadata.Text("stream") == "stderr" {
			s, _ := f.Content.Lookup("text").Text()
			text.WriteString(s)
		}
	}
	if text.String() != "seen\n" {
		t.Errorf("live text is %q", text.String())
	}

	res, _ = env.call(`{}`, frames.WithMeta("caller", "ada"), frames.WithCall("c1", "env"))
	out := string(res.Result)
	for _, want := range []string{"MY_TOKEN=t0ken", "WEAVEBUS_TOOL=env", "WEAVEBUS_CALL_ID=c1", "WEAVEBUS_CALLER=ada", "HOME=/home/x"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing in %s", want, out)
		}
	}
	if strings.Contains(out, "OPENAI") {
		t.Errorf("a secret was inherited: %s", out)
	}
}

// At its time-out, and when it is cancelled, the whole process group of a program
// ends. The other end of the pipe is held by all of it.
//
// contract: W37
func TestStoppedCommandsLeaveNothing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	alive := fifo(t)
	dir := folder(t, map[string]string{
		"hang.sh":   "#!/bin/sh\nexec 9>" + alive + "\necho up >&9\ntrap '' TERM\nsleep 1000 &\nsleep 1000\n",
		"hang.json": declaration("hang", `"command":"hang.sh","timeoutMs":600000`),
	})
	r.serve(Config{Dirs: []string{dir}})
	s := r.tool("hang")
	for _, how := range []string{"time-out", "cancel"} {
		held, err := os.OpenFile(alive, os.O_RDWR, 0) // so that the program's open does not wait
		ok(t, err)
		f := frames.Call("hang", json.RawMessage(`{}`), frames.WithCall("c-"+how, "hang"))
		if how == "time-out" {
			f.Metadata.Set("timeoutMs", frames.Value(500))
		}
		x, err := r.caller.Open(r.within(), r.caller.InstTool("manifest", s.id, "hang"), frames.Msgpack, &f)
		ok(t, err)
		witness, err := os.OpenFile(alive, os.O_RDONLY, 0)
		ok(t, err)
		_, err = io.ReadFull(witness, make([]byte, len("up\n")))
		ok(t, err)
		ok(t, held.Close())
		if how == "cancel" {
			c := frames.Cancel("c-"+how, "hang")
			_, err := r.caller.Request(r.within(), r.caller.Inst("manifest", s.id), &c)
			ok(t, err)
		}
		var res *frames.ToolResult
		for f, err := range x.All(r.within()) {
			ok(t, err)
			if f.Type == frames.TypeToolResult {
				res, err = f.Result()
				ok(t, err)
			}
		}
		want := map[string]frames.Code{"time-out": frames.CodeTimeout, "cancel": frames.CodeCancelled}[how]
		if res == nil || res.Err == nil || res.Err.Code != want || res.Err.Effect != frames.EffectUnknown {
			t.Errorf("%s: got %+v", how, res)
		}
		if n, err := witness.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // else the test hangs here
			t.Errorf("%s: read %d bytes, %v", how, n, err)
		}
		ok(t, witness.Close())
	}
}

// A folder is followed: new files, changes, files that break, mend and go.
//
// contract: W37, S37, S41
func TestFolderIsFollowed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	answer := func(name, text string) string {
		return declaration(name, `"command":"/bin/echo","args":["`+text+`"]`)
	}
	dir := folder(t, map[string]string{
		"a.json": answer("a", "one"), ".hidden.json": answer("hidden", "x"), "notes.txt": "x", "b.yaml": "name: [",
		"c.json~": answer("backup", "x"),
	})
	ok(t, os.Mkdir(filepath.Join(dir, "sub.json"), 0o755))
	r.serve(Config{Dirs: []string{dir}})
	one := r.tool("a")
	one.want(`{}`, `"one"`)
	if reasons := r.skipped("tools/b.yaml"); !strings.Contains(reasons[0], "line 1") {
		t.Errorf("skipped because of %q", reasons)
	}
	for _, want := range []string{"file skipped", "tools/b.yaml"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log does not hold %q: %s", want, r.log)
		}
	}

	put(t, dir, "b.yaml", answer("b", "mended")) // JSON is YAML
	r.tool("b").want(`{}`, `"mended"`)
	r.skipped()

	put(t, dir, "a.json", answer("a", "two"))
	two := r.tool("a")
	two.want(`{}`, `"two"`)
	if two.id == one.id {
		t.Error("the change is no new instance")
	}
	one.gone()

	put(t, dir, "a.json", answer("a", "three")+"}")
	r.skipped("tools/a.json")
	two.want(`{}`, `"two"`) // the last good one is kept

	put(t, dir, "c.json", answer("a", "thief"))
	if reasons := r.skipped("tools/a.json", "tools/c.json"); !strings.Contains(reasons[1], "declared by tools/a.json already") {
		t.Errorf("skipped because of %q", reasons)
	}
	ok(t, os.Remove(filepath.Join(dir, "a.json")))
	r.tool("a").want(`{}`, `"thief"`)
	r.skipped()

	ok(t, os.Rename(dir, dir+".old"))
	ok(t, os.Mkdir(dir, 0o755))
	put(t, dir, "d.json", answer("d", "other folder"))
	r.tool("d").want(`{}`, `"other folder"`)
}

// What runs when its declaration changes runs to its end, and so does what runs
// when the service is stopped.
//
// contract: W37
func TestRunningCallsFinish(t *testing.T) {
	t.Parallel()
	r := setup(t)
	gates := map[string]string{"old": fifo(t), "new": fifo(t)}
	wait := func(answer string) string {
		return declaration("wait", `"command":"/bin/sh","args":["-c","echo up >&2; read x < `+gates[answer]+`; echo `+answer+`"]`)
	}
	dir := folder(t, map[string]string{"wait.json": wait("old")})
	in, err := r.tryServe(Config{Dirs: []string{dir}})
	ok(t, err)
	var results []chan *frames.ToolResult
	start := func(s *served) {
		f := frames.Call("wait", json.RawMessage(`{}`))
		x, err := r.caller.Open(r.within(), r.caller.InstTool("manifest", s.id, "wait"), frames.Msgpack, &f)
		ok(t, err)
		up, done := make(chan struct{}), make(chan *frames.ToolResult, 1)
		go func() {
			defer close(done)
			for f := range x.All(r.within()) {
				switch f.Type {
				case frames.TypeText:
					close(up)
				case frames.TypeToolResult:
					res, _ := f.Result()
					done <- res
				}
			}
		}()
		<-up
		results = append(results, done)
	}
	old := r.tool("wait")
	start(old)
	put(t, dir, "wait.json", wait("new"))
	start(r.tool("wait"))
	old.gone()
	stopped := make(chan error, 1)
	go func() { stopped <- in.stop() }()
	r.await("the end of all", func(h heard) bool { return h.id != old.id && h.frame.Type == frames.TypeEnd })
	for i, answer := range []string{"old", "new"} {
		ok(t, os.WriteFile(gates[answer], []byte("go\n"), 0))
		if res := <-results[i]; res == nil || string(res.Result) != `"`+answer+`"` {
			t.Errorf("got %+v, want %s", res, answer)
		}
	}
	ok(t, <-stopped)
}

// contract: W37, S36, S38, S41
func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	dir := folder(t, map[string]string{"two.json": `{"version":"2.0","tools":[]}`})
	missing := filepath.Join(dir, "missing")
	for name, tt := range map[string]struct {
		cfg  Config
		code frames.Code
		want string
	}{
		"nothing":       {Config{}, frames.CodeValidationInput, "Dirs and Manifests"},
		"no folder":     {Config{Dirs: []string{missing}}, frames.CodeNotFound, "missing"},
		"a file":        {Config{Dirs: []string{dir + "/two.json"}}, frames.CodeValidationInput, "two.json"},
		"no manifest":   {Config{Manifests: []string{missing}}, frames.CodeValidationInput, "missing: cannot be read"},
		"other version": {Config{Manifests: []string{dir + "/two.json"}}, frames.CodeValidationInput, `/version: is "2.0", only the text "1.0" is read`},
		"no URL":        {Config{Manifests: []string{"ftp://x/y"}}, frames.CodeValidationInput, "http:// or https://"},
		"password":      {Config{Manifests: []string{"https://u:p@x/y"}}, frames.CodeValidationInput, "a password"},
		"nobody there":  {Config{Manifests: []string{"http://127.0.0.1:1/m.json"}}, frames.CodeUnavailable, `Failed to fetch manifest from "http://127.0.0.1:1/m.json"`},
		"network":       {Config{Dirs: []string{dir}, AllowPrivate: []string{"inside"}}, frames.CodeValidationInput, `AllowPrivate: "inside"`},
		"secret":        {Config{Dirs: []string{dir}, AllowSecrets: []string{"a b"}}, frames.CodeValidationInput, "AllowSecrets"},
		"secret's host": {Config{Dirs: []string{dir}, AllowSecrets: []string{"A@"}}, frames.CodeValidationInput, "names no host"},
		"result":        {Config{Dirs: []string{dir}, ResultBytes: 1}, frames.CodeValidationInput, "ResultBytes"},
		"refresh":       {Config{Dirs: []string{dir}, Refresh: 1}, frames.CodeValidationInput, "Refresh"},
	} {
		in, err := r.tryServe(tt.cfg)
		if err == nil {
			ok(t, in.stop())
		}
		if frames.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s with %q", name, err, tt.code, tt.want)
		}
	}
}

func TestCommandsDoNotRunAsRoot(t *testing.T) {
	t.Parallel()
	r := setup(t)
	dir := folder(t, map[string]string{"id.json": declaration("id", `"command":"/usr/bin/id","args":["-u"]`)})
	want := os.Geteuid()
	if want == 0 {
		if _, err := r.tryServeAs(Config{Dirs: []string{dir}}); frames.CodeOf(err) != frames.CodeDenied {
			t.Errorf("as root: %v", err)
		}
		want = 65534
		for up := dir; up != os.TempDir(); up = filepath.Dir(up) {
			ok(t, os.Chmod(up, 0o755)) // t.TempDir lets only root pass
		}
		ok(t, os.Chown(dir, want, want))
	}
	in, err := r.tryServeAs(Config{Dirs: []string{dir}})
	ok(t, err)
	text, err := json.Marshal(want)
	ok(t, err)
	r.tool("id").want(`{}`, string(text))
	ok(t, in.stop())
}

func TestExample(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.serve(Config{Dirs: []string{"../../examples/manifest-tools/tools"}})
	r.tool("define_word")
	count := r.tool("word_count")
	count.want(`{"text":"how many words\nare these?"}`, `{"words": 5}`)
	count.want(`{"text":""}`, `{"words": 0}`)
}

// A service whose work is given up ends at once.
func TestHardStop(t *testing.T) {
	t.Parallel()
	r := setup(t)
	in, err := r.tryServe(Config{Dirs: []string{folder(t, map[string]string{
		"hang.json": declaration("hang", `"command":"/bin/sh","args":["-c","echo up >&2; exec sleep 1000"],"timeoutMs":0`),
	})}})
	ok(t, err)
	s := r.tool("hang")
	f := frames.Call("hang", json.RawMessage(`{}`))
	x, err := r.caller.Open(r.within(), r.caller.InstTool("manifest", s.id, "hang"), frames.Msgpack, &f)
	ok(t, err)
	var res *frames.ToolResult
	stopped := make(chan error, 1)
	for f, err := range x.All(r.within()) {
		ok(t, err)
		if f.Type == frames.TypeText {
			go func() { stopped <- in.stop() }()
			s.gone()
			in.stopWork(app.ErrHardStop)
		}
		if f.Type == frames.TypeToolResult {
			res, err = f.Result()
			ok(t, err)
		}
	}
	if res == nil || res.Err == nil || res.Err.Code != frames.CodeInterrupted {
		t.Errorf("got %+v", res)
	}
	ok(t, <-stopped)
}
