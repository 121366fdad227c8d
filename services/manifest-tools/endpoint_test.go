package manifesttools

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool/tooltest"
)

// backend is a server that endpoints lie on.
func backend(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

// answers gives an answer for each path.
func answers(t *testing.T) http.HandlerFunc {
	t.Helper()
	say := func(status int, media, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"method":%q,"type":%q,"body":%s}`, r.Method, r.Header.Get("Content-Type"), body)
	})
	for path, h := range map[string]http.HandlerFunc{
		"/text": say(200, "text/plain", "plain words\n"), "/none": say(204, "", ""), "/null": say(200, "application/json", "null"),
		"/liar": say(200, "application/json", "{oops"), "/binary": say(200, "image/png", "\x89PNG\xff"),
		"/missing": say(404, "application/json", `{"hint":"no such city"}`), "/busy": say(503, "text/plain", "later"),
		"/broken": say(500, "text/html", "<h1>sorry</h1>"), "/large": say(200, "text/plain", strings.Repeat("x", 2000)),
		"/moved": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/echo", http.StatusPermanentRedirect)
		},
		"/away": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost:1/", http.StatusTemporaryRedirect)
		},
		"/get": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/echo", http.StatusFound) },
		"/round": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/round", http.StatusTemporaryRedirect)
		},
		"/cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
		},
		"/slow": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client is gone
			<-r.Context().Done()
		},
	} {
		mux.HandleFunc(path, h)
	}
	return mux.ServeHTTP
}

// published is a manifest in which each tool has the path of its name.
func published(base string, names ...string) string {
	var tools []string
	for _, n := range names {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"d","inputSchema":{"type":"object"},"endpoint":%q}`, n, base+"/"+n))
	}
	return `{"version":"1.0","tools":[` + strings.Join(tools, ",") + `]}`
}

// contract: W38, S38, S41
func TestEndpointOutcomes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	s := backend(t, answers(t))
	names := []string{
		"echo", "text", "none", "null", "liar", "binary", "missing", "busy", "broken", "large", "moved", "away", "get", "round", "cut", "slow",
	}
	dir := folder(t, map[string]string{"m.json": published(s.URL, names...), "gone.json": published("http://127.0.0.1:1", "gone")})
	r.serve(Config{Dirs: []string{dir}, AllowPrivate: []string{"loopback"}, ResultBytes: 1000})
	gone := r.tool("gone")
	tools := map[string]*served{}
	for _, n := range names {
		tools[n] = r.tool(n)
	}
	tools["echo"].want(`{"a":1.0}`, `{"method":"POST","type":"application/json","body":{"a":1.0}}`)
	tools["moved"].want(`{"a":2}`, `{"method":"POST","type":"application/json","body":{"a":2}}`)
	tools["text"].want(`{}`, `"plain words"`)
	tools["none"].want(`{}`, `{}`)
	tools["null"].want(`{}`, `null`)
	tools["liar"].fails(`{}`, frames.CodeExecution, "invalid_json")
	tools["binary"].fails(`{}`, frames.CodeExecution, "not_text", "image/png")
	tools["large"].fails(`{}`, frames.CodeTooLarge, "", "limit is 1000")
	tools["away"].fails(`{}`, frames.CodeDenied, "redirect", "another host")
	tools["get"].fails(`{}`, frames.CodeDenied, "redirect", "another method")
	tools["round"].fails(`{}`, frames.CodeDenied, "redirect", "more than 3 times")
	tools["cut"].fails(`{}`, frames.CodeExecution, "unreachable")

	res := tools["missing"].fails(`{}`, frames.CodeExecution, "http_status", "HTTP 404: Not Found")
	if string(res.Result) != `{"hint":"no such city"}` || res.Err.Effect != frames.EffectNone || res.Err.Retryable {
		t.Errorf("got %s, %#v", res.Result, res.Err)
	}
	res = tools["busy"].fails(`{}`, frames.CodeExecution, "http_status", "HTTP 503: Service Unavailable")
	if !res.Err.Retryable || res.Err.RetryAfter != 7*time.Second {
		t.Errorf("got %#v", res.Err)
	}
	res = tools["broken"].fails(`{}`, frames.CodeExecution, "http_status", "HTTP 500")
	if res.Err.Effect != frames.EffectUnknown || res.Err.Retryable {
		t.Errorf("got %#v", res.Err)
	}
	res = gone.fails(`{}`, frames.CodeExecution, "unreachable")
	if !res.Err.Retryable || res.Err.Effect != frames.EffectNone || strings.Contains(res.Err.LLMMessage, "127.0.0.1") {
		t.Errorf("got %#v", res.Err)
	}
	res, _ = tools["slow"].call(`{}`, frames.WithMeta("timeoutMs", 200))
	if res.Err == nil || res.Err.Code != frames.CodeTimeout {
		t.Errorf("got %+v", res)
	}
}

// contract: W38, B54, S39
func TestEndpointConforms(t *testing.T) {
	t.Parallel()
	r := setup(t)
	s := backend(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "slow") {
			<-r.Context().Done()
		}
		_, _ = w.Write(body)
	})
	in := r.serve(Config{AllowPrivate: []string{"127.0.0.1"}, Dirs: []string{folder(t, map[string]string{"mirror.yaml": `
name: mirror
description: Gives back what it gets.
version: 1.2.3
inputSchema: {type: object, properties: {text: {type: string}, slow: {type: boolean}}, required: [text], additionalProperties: false}
outputSchema: {type: object, required: [text]}
annotations: {readOnly: true, openWorld: true}
timeoutMs: 600000
replay: safe
executionMode: sequential
concurrency: 4
retries: 2
capabilities: [demo]
endpoint: ` + s.URL + `
x-team: {name: demo, size: 3}
`})}})
	tool := r.tool("mirror")
	d := tool.decl
	if d.Version != "1.2.3" || !d.Annotations.ReadOnly || !d.ReplaySafe() || d.Concurrency != 4 || d.Retries != 2 || len(d.OutputSchema) == 0 {
		t.Errorf("declared %+v", d)
	}
	if name, _ := d.Extra.Get("x-team").Lookup("name").Text(); name != "demo" {
		t.Errorf("x-team is %v", d.Extra)
	}
	tooltest.Run(t, r.caller, tooltest.Config{
		Tool: "mirror", Instance: tool.id, Stop: in.stop,
		Good: []json.RawMessage{[]byte(`{"text":"ü"}`)}, Bad: []json.RawMessage{[]byte(`{}`), []byte(`{"text":1}`)},
		Slow: json.RawMessage(`{"text":"x","slow":true}`),
	})
}

// Without leave, no address that is not public is dialled, whatever name it has.
//
// contract: S38
func TestPrivateEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var hits atomic.Int64
	s := backend(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	bases := map[string]string{
		"ip": s.URL, "name": "http://localhost:" + port, "mapped": "http://[::ffff:127.0.0.1]:" + port, "zero": "http://0.0.0.0:" + port,
		"six": "http://[::1]:" + port, "private": "http://10.1.2.3", "metadata": "http://169.254.169.254/latest", "local": "http://[fe80::1]",
	}
	files := map[string]string{}
	for name, base := range bases {
		files[name+".json"] = published(base, name)
	}
	r.serve(Config{Dirs: []string{folder(t, files)}, AllowPrivate: []string{"10.9.0.0/16"}})
	tools := map[string]*served{}
	for range bases {
		h := r.await("a tool", func(h heard) bool { return h.tool != "" && tools[h.tool] == nil })
		tools[h.tool] = &served{r: r, id: h.id, name: h.tool}
	}
	for name, tool := range tools {
		res := tool.fails(`{}`, frames.CodeDenied, "private_address", "--allow-private")
		if strings.Contains(res.Err.LLMMessage, "127.0.0.1") || res.Err.Effect != frames.EffectNone {
			t.Errorf("%s: %#v", name, res.Err)
		}
	}
	if hits.Load() > 0 {
		t.Errorf("%d requests arrived", hits.Load())
	}
}

// contract: S39
func TestSecretsGoWhereTheyMay(t *testing.T) {
	t.Parallel()
	r := setup(t)
	s := backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `[%q,%q,%q]`, r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.Header.Get("X-Plain"))
	})
	key := filepath.Join(t.TempDir(), "key")
	ok(t, os.WriteFile(key, []byte("first\n"), 0o600))
	with := func(name, headers string) string {
		return declaration(name, `"endpoint":"`+s.URL+`","headers":`+headers)
	}
	dir := folder(t, map[string]string{
		"a.json": with("good", `{"Authorization":{"env":"TOKEN","prefix":"Bearer "},"X-Key":{"file":"`+key+`"},"X-Plain":"p"}`),
		"b.json": with("other", `{"Authorization":{"env":"OTHER"}}`),
		"c.json": with("file", `{"Authorization":{"file":"/etc/hostname"}}`),
		"d.json": with("host", `{"Authorization":{"env":"ELSEWHERE"}}`),
		"e.json": with("unset", `{"Authorization":{"env":"UNSET"}}`),
	})
	r.serve(Config{
		Dirs: []string{dir}, AllowPrivate: []string{"loopback"}, Environ: []string{"TOKEN=s3cret", "OTHER=x", "ELSEWHERE=x"},
		AllowSecrets: []string{"TOKEN@127.0.0.1", key, "ELSEWHERE@example.com", "UNSET"},
	})
	good := r.tool("good")
	good.want(`{}`, `["Bearer s3cret","first","p"]`)
	ok(t, os.WriteFile(key, []byte("second\n"), 0o600))
	good.want(`{}`, `["Bearer s3cret","second","p"]`)
	ok(t, os.WriteFile(key, []byte("two\nlines"), 0o600))
	good.fails(`{}`, frames.CodeExecution, "secret", "control character")
	ok(t, os.Remove(key))
	good.fails(`{}`, frames.CodeExecution, "secret", "cannot read")

	reasons := r.skipped("tools/b.json", "tools/c.json", "tools/d.json", "tools/e.json")
	for i, want := range []string{"--allow-secret OTHER", "--allow-secret /etc/hostname", "--allow-secret ELSEWHERE", "UNSET is not set"} {
		if !strings.Contains(reasons[i], want) || !strings.HasPrefix(reasons[i], "/headers/Authorization/") {
			t.Errorf("%q does not hold %q", reasons[i], want)
		}
	}
	if strings.Contains(r.log.String(), "s3cret") {
		t.Error("a secret was logged")
	}
}

// Over plain http a secret goes to allowed addresses only, even where the endpoint
// is a public one; over https it may go there.
func TestSecretsAreNotSentInTheOpen(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"127.0.0.1:80": "", "[::1]:80": "plain_http", "93.184.216.34:80": "plain_http"} {
		g := guard{inside: true}
		g.allowed, _ = networks([]string{"127.0.0.0/8"})
		if err := g.check(address); err == nil != (want == "") || err != nil && frames.AsError(err).Reason != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	s := &secrets{rules: []secretRule{{ref: "A"}}, environ: []string{"A=1"}}
	for base, insecure := range map[string]bool{"http://example.com": true, "https://example.com": false} {
		all, err := read("t.json", []byte(declaration("t", `"endpoint":"`+base+`","headers":{"X-A":{"env":"A"}}`)), rules{secrets: s})
		ok(t, err)
		if all[0].endpoint.insecure != insecure {
			t.Errorf("%s: insecure is %v", base, !insecure)
		}
	}
}

// A manifest of a URL is fetched again; one that breaks leaves the last good one.
//
// contract: W38, S38
func TestManifestOfAURL(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var manifest atomic.Value
	s := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/m.json" {
			_, _ = io.WriteString(w, r.URL.Path)
			return
		}
		if text, _ := manifest.Load().(string); text != "" {
			_, _ = io.WriteString(w, text)
			return
		}
		http.Error(w, "gone", http.StatusGone)
	})
	manifest.Store(published(s.URL, "one"))
	r.serve(Config{
		Manifests: []string{s.URL + "/m.json?token=t0ken"}, AllowPrivate: []string{"loopback"}, Refresh: time.Second,
	})
	one := r.tool("one")
	one.want(`{}`, `"/one"`)
	manifest.Store(published(s.URL, "two"))
	r.tool("two").want(`{}`, `"/two"`)
	for text, want := range map[string]string{
		"":                             `Failed to fetch manifest from "` + s.URL + `/m.json": HTTP 410: Gone`,
		`{"version":"1.1","tools":[]}`: `/version: is "1.1"`,
	} {
		manifest.Store(text)
		if reasons := r.skippedFor(s.URL+"/m.json", want); len(reasons) != 1 {
			t.Errorf("skipped because of %q", reasons)
		}
	}
	if strings.Contains(r.log.String(), "t0ken") {
		t.Error("the query was logged")
	}
}
