package workspacetools_test

import (
	"encoding/json"
	"testing"

	"github.com/weavebus/weavebus/pkg/tool/tooltest"
)

func texts(all ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, s := range all {
		out = append(out, json.RawMessage(s))
	}
	return out
}

// Each tool passes the suite that any tool must pass.
//
// contract: P80, P26
func TestToolsConform(t *testing.T) {
	t.Parallel()
	for _, cfg := range []tooltest.Config{
		{Tool: "read_file",
			Good: texts(`{}`, `{"path":""}`, `{"path":"a.txt"}`, `{"path":"a.txt","offset":2,"limit":1}`),
			Bad:  texts(`{"path":1}`, `{"path":null}`, `{"offset":"2"}`, `{"file":"a.txt"}`)},
		{Tool: "write_file",
			Good: texts(`{"path":"b/c.txt","content":""}`, `{"path":"b/c.txt","content":"ü\n"}`),
			Bad:  texts(`{}`, `{"path":"x"}`, `{"content":"x"}`, `{"path":"x","content":1}`, `{"path":"x","content":"y","mode":7}`)},
		{Tool: "run_command",
			Good: texts(`{"command":"true"}`, `{"command":"echo out; echo err >&2"}`, `{"command":"cat","timeout_ms":5000}`),
			Bad:  texts(`{}`, `{"command":7}`, `{"command":"true","timeout_ms":"5"}`, `{"command":"true","timeout_ms":1.5}`),
			Slow: json.RawMessage(`{"command":"sleep 1000","timeout_ms":600000}`)},
	} {
		t.Run(cfg.Tool, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			in := r.serve(one("w", folder(t, map[string]string{"a.txt": "1\n2\n3\n"})))
			cfg.Instance, cfg.Stop = in.id, in.stop
			tooltest.Run(t, r.caller, cfg)
		})
	}
}
