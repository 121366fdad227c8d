package provider_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

func TestMessagesAreRead(t *testing.T) {
	t.Parallel()
	const text = `[
		{"role":"system","content":"s"},
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","mediaType":"image/png","data":"AQID"}],"unknown":1},
		{"role":"assistant","content":null,"toolCalls":[
			{"toolCallId":"c1","modelCallId":"m1","name":"f","argumentsJson":"{\"n\": 1.0"},
			{"toolCallId":"c2","name":"g","arguments":{"n": 9007199254740993, "d": 1.10}},
			{"toolCallId":"c3","name":"h","arguments":null},
			{"toolCallId":"c4","name":"h","argumentsJson":"","arguments":{"x":1}}],
		 "thinking":[{"text":"t","signature":"s"},{"text":"","redacted":true}],"providerData":{"a": 1.0}},
		{"role":"tool","toolCallId":"c1","isError":true,"content":"e","timestamp":1.7e12,"epoch":2,"entry":18446744073709551615},
		{"role":"assistant"},
		{"role":"user","content":[]}
	]`
	got, err := provider.ParseMessages([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []provider.Message{
		{Role: provider.RoleSystem, Text: "s"},
		{Role: provider.RoleUser, Parts: []provider.Part{{Type: provider.PartText, Text: "a"}, {Type: provider.PartImage, MediaType: "image/png", Data: []byte{1, 2, 3}}}},
		{
			Role: provider.RoleAssistant,
			Calls: []provider.Call{
				{ID: "c1", ModelID: "m1", Name: "f", Arguments: `{"n": 1.0`},
				{ID: "c2", Name: "g", Arguments: `{"n": 9007199254740993, "d": 1.10}`},
				{ID: "c3", Name: "h", Arguments: `{}`}, {ID: "c4", Name: "h"},
			},
			Thinking: []provider.Thinking{{Text: "t", Signature: "s"}, {Redacted: true}}, ProviderData: json.RawMessage(`{"a": 1.0}`),
		},
		{Role: provider.RoleTool, ToolCallID: "c1", IsError: true, Text: "e", Timestamp: 1700000000000, Epoch: 2, Entry: 18446744073709551615},
		{Role: provider.RoleAssistant},
		{Role: provider.RoleUser, Parts: []provider.Part{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestMessagesAreWritten(t *testing.T) {
	t.Parallel()
	m := provider.Message{
		Role: provider.RoleAssistant, Text: "a", Calls: []provider.Call{{ID: "c1", ModelID: "m1", Name: "f", Arguments: `{"n":9007199254740993}`}},
		ProviderData: json.RawMessage(`{"a":1.0}`), Timestamp: 5,
	}
	const want = `{"role":"assistant","content":"a","toolCalls":[{"toolCallId":"c1","modelCallId":"m1","name":"f","argumentsJson":"{\"n\":9007199254740993}"}],"providerData":{"a":1.0},"timestamp":5}`
	if got, err := json.Marshal(m); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestMessagesAreRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		`{`:                                 "not a list",
		`{"role":"user"}`:                   "not a list",
		`[{"role":"bot","content":"x"}]`:    `messages[0]: role "bot" is not one of system, user, assistant, tool`,
		`[{"role":"user"},{"content":"x"}]`: `messages[1]: role ""`,
		`[5]`:                               "messages[0]: not a message",
		`[{"role":5}]`:                      "messages[0]: not a message",
		`[{"role":"user","content":5}]`:     "content is neither",
		`[{"role":"user","content":{}}]`:    "content is neither",
		`[{"role":"user","content":["a"]}]`: "content",
		`[{"role":"user","content":[{"type":"video"}]}]`:                       `content[0]: type "video"`,
		`[{"role":"user","content":[{"type":"image","data":"%"}]}]`:            "content",
		`[{"role":"assistant","toolCalls":[{"argumentsJson":"{}"}]}]`:          "toolCalls[0] has no name",
		`[{"role":"assistant","toolCalls":[{"name":"f","argumentsJson":{}}]}]`: "argumentsJson",
		`[{"role":"user","timestamp":1.5}]`:                                    "timestamp is not a whole number",
		`[{"role":"user","epoch":-1}]`:                                         "epoch is not a whole number",
		`[{"role":"user","entry":18446744073709551616}]`:                       "entry is not a whole number",
		`[{"role":"` + strings.Repeat("x", 9000) + `"}]`:                       "is not one of",
		"[{\"role\":\"user\",\"content\":\"\xff\"}]":                           "UTF-8",
	} {
		_, err := provider.ParseMessages([]byte(text))
		wantError(t, err, frames.CodeValidationInput, says)
		if len(err.Error()) > 500 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	}
	_, err := provider.ParseMessages([]byte(`[{"role":"user"},{"role":"bot"}]`))
	if issues := frames.AsError(err).Issues; len(issues) != 1 || issues[0].Path != "/1" {
		t.Errorf("issues %+v", issues)
	}
}

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMessage(rt)
		text, err := json.Marshal([]provider.Message{m})
		if err != nil {
			rt.Fatal(err)
		}
		got, err := provider.ParseMessages(text)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff([]provider.Message{m}, got); diff != "" {
			rt.Fatalf("messages (-want +got):\n%s", diff)
		}
	})
}

func drawMessage(rt *rapid.T) provider.Message {
	m := provider.Message{
		Role:       rapid.SampledFrom([]provider.Role{provider.RoleSystem, provider.RoleUser, provider.RoleAssistant, provider.RoleTool}).Draw(rt, "role"),
		ToolCallID: rapid.String().Draw(rt, "id"), IsError: rapid.Bool().Draw(rt, "isError"),
		Timestamp: rapid.Int64Min(0).Draw(rt, "timestamp"), Epoch: rapid.Uint64().Draw(rt, "epoch"), Entry: rapid.Uint64().Draw(rt, "entry"),
	}
	if rapid.Bool().Draw(rt, "rich") {
		m.Parts = []provider.Part{
			{Type: provider.PartText, Text: rapid.String().Draw(rt, "part")},
			{Type: provider.PartAudio, Data: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(rt, "data"), MediaType: "audio/wav", Name: "n", URI: "u"},
		}
	} else {
		m.Text = rapid.String().Draw(rt, "text")
	}
	for range rapid.IntRange(0, 2).Draw(rt, "calls") {
		m.Calls = append(m.Calls, provider.Call{ID: "c", ModelID: rapid.String().Draw(rt, "model id"), Name: "f", Arguments: rapid.String().Draw(rt, "arguments")})
	}
	return m
}

func TestContent(t *testing.T) {
	t.Parallel()
	m := provider.Message{Text: "not this", Parts: []provider.Part{
		{Type: provider.PartText, Text: "a"}, {Type: provider.PartImage, MediaType: "image/png", Data: make([]byte, 1234)},
		{Type: provider.PartResource, Name: "r", URI: "file:r"}, {Type: provider.PartResource, Text: "text of it"},
		{Type: provider.PartImage, URI: "data:image/png;base64,AAAA"},
	}}
	const want = "a\n[image image/png, 1234 bytes]\n[resource r file:r]\ntext of it\n[image]"
	if got := m.Content(); got != want {
		t.Errorf("%q", got)
	}
	if m = (provider.Message{Text: "t"}); m.Content() != "t" {
		t.Errorf("%q", m.Content())
	}
}
