package manifesttools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// read parses a file.
func read(name string, data []byte, r rules) ([]entry, error) {
	f := found{key: name, text: data, dir: "dir"}
	if r.remote {
		f.dir = ""
	}
	text, err := new(source).json(f)
	if err != nil {
		return nil, err
	}
	return r.parse(text)
}

// What is garbled is found out once, not at each look at the folder.
func TestGarbledFilesAreParsedOnce(t *testing.T) {
	src := &source{}
	look := func(text string) error {
		_, err := src.json(found{key: "t.yaml", text: []byte(text), dir: "dir"})
		return err
	}
	first, second := look("a: ["), look("a: [")
	if first == nil || first != second { //nolint:errorlint // the same value: it was not parsed again
		t.Errorf("got %v and %v", first, second)
	}
	if other := look("a: {"); other == nil || other == first { //nolint:errorlint // as above
		t.Errorf("got %v for another text", other)
	}
	if err := look("a: []"); err != nil {
		t.Error(err)
	}
	if look("a: {") == nil {
		t.Error("the fault of a text was forgotten")
	}
}

// load parses a file and compiles what it declares, as the service does.
func load(name, text string, r rules) ([]entry, error) {
	all, err := read(name, []byte(text), r)
	if err != nil {
		return nil, err
	}
	set := tool.NewSet("s")
	for _, e := range all {
		if err := set.AddRaw(e.decl, new(web).handler()); err != nil {
			return nil, e.at.refused(err)
		}
	}
	return all, nil
}

func (w *web) handler() tool.Handler { return (&service{web: w}).endpointHandler(nil) }

// Each thing that a file may not be is refused, with its place.
//
// contract: S36, S41
func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644))
	ok(t, os.WriteFile(filepath.Join(dir, "run"), []byte("#!/bin/sh\n"), 0o755))
	ok(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	ok(t, os.Symlink("/bin/sh", filepath.Join(dir, "link")))
	r := rules{dir: dir, secrets: &secrets{rules: []secretRule{{ref: "LANG"}}}}
	with := func(more string) string { return declaration("t", more) }
	url := `"endpoint":"https://example.com"`
	for text, want := range map[string]string{
		"":              "there is no JSON value",
		"[]":            "the file: is [], want an object",
		"{":             "the text ends before",
		`{}`:            "/name: is missing",
		"{}{}":          "something follows",
		`{"a":1,"a":2}`: "duplicate key",
		`{"name":"t","description":"d",` + url + `}`:                                             "/inputSchema: is missing",
		`{"name":"t","inputSchema":{},` + url + `}`:                                              "/description: is missing",
		declaration("a b", url):                                                                  "/name: invalid tool name",
		declaration("", url):                                                                     "/name: invalid tool name",
		with(`"handler":"x",` + url):                                                             "/handler: is no key that is read here; those are $schema, annotations",
		with(`"Endpoint":"x",` + url):                                                            "/Endpoint: is no key",
		with(`"version":1,` + url):                                                               "/version: is 1, want a string",
		with(`"timeoutMs":-1,` + url):                                                            "/timeoutMs",
		with(`"timeoutMs":"5s",` + url):                                                          "/timeoutMs",
		with(`"replay":"maybe",` + url):                                                          "/replay",
		with(`"executionMode":"x",` + url):                                                       "/executionMode",
		with(`"annotations":{"readonly":true},` + url):                                           "/annotations/readonly: is no key",
		with(`"annotations":[],` + url):                                                          "/annotations: is [], want an object",
		with(`"annotations":{"readOnly":"yes"},` + url):                                          "/annotations/readOnly",
		with(`"outputLimits":{"bytes":1},` + url):                                                "/outputLimits/bytes: is no key",
		with(`"backoff":{"base":1},` + url):                                                      "/backoff/base: is no key",
		with(`"outputLimits":{"retain":"middle"},` + url):                                        "/outputLimits/retain",
		with(`"outputSchema":{"type":"nothing"},` + url):                                         "/outputSchema",
		`{"name":"t","description":"d","inputSchema":{"type":7},` + url + `}`:                    "/inputSchema",
		`{"name":"t","description":"d","inputSchema":{"$ref":"file:///etc/passwd"},` + url + `}`: "/inputSchema",
		`{"name":"t","description":"` + strings.Repeat("x", 5000) + `","inputSchema":{},` + url + `}`: "description is 5000 bytes",
		with(`"x-a":1`):                    "either a command or an endpoint",
		with(`"command":"/bin/sh",` + url): "either a command or an endpoint",
		with(`"command":["/bin/sh"]`):      "/command: is [\"/bin/sh\"], want a text",
		with(`"command":""`):               "/command",
		with(`"command":"sh"`):             "/command: there is no program \"sh\" in the folder; it is not searched for",
		with(`"command":"../run"`):         "/command: \"../run\" leads out",
		with(`"command":"sub/../../x"`):    "leads out",
		with(`"command":"link"`):           "/command: \"link\" is a link that leads out",
		with(`"command":"plain"`):          "/command: \"plain\" is not executable",
		with(`"command":"sub"`):            "/command: \"sub\" is no file",
		with(`"command":"/no/such"`):       "/command: there is no program",
		with(`"command":"run\u0000"`):      "/command: holds a zero byte",
		with(`"command":"run","args":"x"`): "/args: is \"x\", want a list",
		with(`"command":"run","args":[1]`): "/args/0: is 1, want a text",
		with(`"command":"run","args":["` + strings.Repeat("x", 70000) + `"]`): "/args: has 70000 bytes",
		with(`"command":"run","args":[` + strings.Repeat(`"",`, 64) + `""]`):  "/args: has 65 entries",
		with(`"command":"run","headers":{}`):                                  "/headers",
		with(`"command":"run","env":["AWS_KEY"]`):                             "/env/0: the variable \"AWS_KEY\" is not allowed",
		with(`"command":"run","env":["LANG"]`):                                "/env/0: the variable LANG is not set",
		with(`"endpoint":7`):                                                  "/endpoint: is 7, want a text",
		with(`"endpoint":"/tools"`):                                           "/endpoint: has to begin with http",
		with(`"endpoint":"file:///etc/passwd"`):                               "/endpoint: has to begin with http",
		with(`"endpoint":"http://"`):                                          "/endpoint: names no host",
		with(`"endpoint":"http://u:p@h/"`):                                    "/endpoint: holds a user or a password",
		with(`"endpoint":"http://h:99999/"`):                                  "/endpoint: has a port that is none",
		with(`"endpoint":"http://h/#x"`):                                      "/endpoint: has a fragment",
		with(`"endpoint":"http://h/` + strings.Repeat("x", 3000) + `"`):       "/endpoint: has 3009 bytes",
		with(url + `,"args":[]`):                                              "/args: is for commands only",
		with(url + `,"headers":[]`):                                           "/headers: is [], want an object",
		with(url + `,"headers":{"Host":"x"}`):                                 "/headers/Host: is no header that may be set",
		with(url + `,"headers":{"content-length":"1"}`):                       "/headers/content-length: is no header",
		with(url + `,"headers":{"A B":"x"}`):                                  "/headers/A B: is no header",
		with(url + `,"headers":{"A":"x\r\nB: y"}`):                            "/headers/A: holds a control character",
		with(url + `,"headers":{"A":1}`):                                      "/headers/A: is 1, want an object",
		with(url + `,"headers":{"A":{}}`):                                     "/headers/A: has either env",
		with(url + `,"headers":{"A":{"env":"B","file":"/c"}}`):                "/headers/A: has either env",
		with(url + `,"headers":{"A":{"value":"B"}}`):                          "/headers/A/value: is no key",
		with(url + `,"headers":{"A":{"env":"/b"}}`):                           "/headers/A/env: is \"/b\"",
		with(url + `,"headers":{"A":{"file":"b"}}`):                           "/headers/A/file: is \"b\"",
		with(url + `,"headers":{"A":{"env":"B","prefix":"\n"}}`):              "/headers/A/prefix: holds a control character",
		`{"tools":[]}`:                                                                 "/version: is missing, only the text \"1.0\" is read",
		`{"version":1.0,"tools":[]}`:                                                   "/version: is 1.0",
		`{"version":"1.0.0","tools":[]}`:                                               "/version: is \"1.0.0\"",
		`{"version":"1.0","tools":{}}`:                                                 "/tools: is {}, want a list",
		`{"version":"1.0","tools":[1]}`:                                                "/tools/0: is 1, want an object",
		`{"version":"1.0","tools":[],"more":1}`:                                        "/more: is no key",
		`{"version":"1.0","tools":[` + with(url) + `,` + with(url) + `]}`:              "has a tool \"t\" already",
		`{"version":"1.0","tools":[` + with(url) + `,{"name":"u","description":"d"}]}`: "/tools/1/inputSchema: is missing",
		`{"version":"1.0","tools":[` + strings.Repeat("1,", maxTools) + `1]}`:          "/tools: has 257 tools, the limit is 256",
		strings.Repeat(" ", maxFile+1):                                                 "the limit is 1048576",
	} {
		_, err := load("t.json", text, r)
		e, isErr := err.(*frames.Error) //nolint:errorlint // it must leave unwrapped
		if !isErr || !strings.Contains("VALIDATION_INPUT TOO_LARGE CONFLICT", string(e.Code)) || !strings.Contains(e.Message, want) {
			t.Errorf("%.80s: got %v, want %q", text, err, want)
		}
	}
}

// contract: S36, E5
func TestFilesThatAreRead(t *testing.T) {
	t.Parallel()
	for text, count := range map[string]int{
		declaration("t", `"endpoint":"https://example.com/x?y=1","title":null,"x-own":{"a":1}`): 1,
		declaration("t", `"command":"/bin/sh","$schema":"https://example.com/schema"`):          1,
		`{"version":"1.0","tools":[]}`: 0,
		`{"version":"1.0","x-by":"me","tools":[` + declaration("a", `"endpoint":"http://h"`) + `,` + declaration("b", `"endpoint":"http://h:8080/"`) + `]}`: 2,
	} {
		all, err := load("t.json", text, rules{secrets: &secrets{}})
		if err != nil || len(all) != count {
			t.Errorf("%s: got %v, %v", text, all, err)
		}
		if _, err := load("t.yaml", text, rules{secrets: &secrets{}}); err != nil { // JSON is YAML
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What comes from a URL names no programs of this host, and takes secrets only where
// they were meant for.
//
// contract: S36, S39
func TestManifestsFromElsewhere(t *testing.T) {
	t.Parallel()
	r := rules{published: true, remote: true, secrets: &secrets{
		rules: []secretRule{{ref: "ANY"}, {ref: "OURS", host: "a.example.com"}}, environ: []string{"ANY=1", "OURS=2"},
	}}
	header := func(host, env string) string {
		return declaration("t", `"endpoint":"https://`+host+`/x","headers":{"X-A":{"env":"`+env+`"}}`)
	}
	for text, want := range map[string]string{
		declaration("t", `"command":"/bin/sh"`):     "/tools/0/command: a manifest from a URL may not name programs",
		header("a.example.com", "ANY"):              "/tools/0/headers/X-A/env: the secret is not allowed: the operator allows it with --allow-secret ANY@a.example.com",
		header("b.example.com", "OURS"):             "--allow-secret OURS@b.example.com",
		header("A.example.com:8443", "OURS"):        "",
		declaration("a b", `"endpoint":"http://h"`): "/tools/0/name",
	} {
		_, err := load("https://a.example.com/m", `{"version":"1.0","tools":[`+text+`]}`, r)
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	if _, err := load("m", header("a.example.com", "OURS"), r); err == nil || !strings.Contains(err.Error(), "/version: is missing") {
		t.Errorf("a single tool: %v", err)
	}
	if _, err := load("https://a.example.com/m.yaml", "version: '1.0'\ntools: []", r); err == nil {
		t.Error("YAML was read")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		declaration("t", `"endpoint":"https://example.com","headers":{"A":{"env":"B","prefix":"c"}}`),
		declaration("t", `"command":"/bin/sh","args":["-c",""],"env":["A"],"outputLimits":{"maxBytes":1}`),
		`{"version":"1.0","tools":[` + declaration("t", `"endpoint":"http://h","annotations":{"x-a":1}`) + `]}`,
		"name: a\ndescription: b\ninputSchema: {}\nendpoint: http://h\n",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	r := rules{dir: f.TempDir(), secrets: &secrets{}}
	f.Fuzz(func(t *testing.T, text string, isYAML bool) {
		name := map[bool]string{true: "t.yaml", false: "t.json"}[isYAML]
		all, err := load(name, text, r)
		if e, ok := err.(*frames.Error); err != nil && (!ok || e.Message == "") { //nolint:errorlint // it must leave unwrapped
			t.Fatalf("%q: %#v", text, err)
		}
		for _, e := range all {
			if !frames.ValidName(e.decl.Name) || (e.command == nil) == (e.endpoint == nil) {
				t.Errorf("%q gives %+v", text, e)
			}
			if p := jsontext.Check(e.decl.Schema, jsontext.Limits{}); p != nil {
				t.Errorf("%q gives the schema %s: %v", text, e.decl.Schema, p)
			}
		}
	})
}
