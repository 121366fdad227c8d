package modelbus_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/modelbus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	words = rapid.String()
	names = rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)
	texts = rapid.SampledFrom([]json.RawMessage{[]byte(`0.5`), []byte(`9007199254740993`), []byte(`["a",null]`), []byte(`{"a":{"b":true}}`)})
)

func anyMessage(t *rapid.T) provider.Message {
	m := provider.Message{Role: rapid.SampledFrom([]provider.Role{
		provider.RoleSystem, provider.RoleUser, provider.RoleAssistant, provider.RoleTool,
	}).Draw(t, "role"), Text: words.Draw(t, "text"), IsError: rapid.Bool().Draw(t, "isError")}
	for range rapid.IntRange(0, 2).Draw(t, "calls") {
		m.Calls = append(m.Calls, provider.Call{
			ID: words.Draw(t, "id"), ModelID: words.Draw(t, "modelId"), Name: names.Draw(t, "name"), Arguments: words.Draw(t, "arguments"),
		})
	}
	return m
}

func anyRequest(t *rapid.T) *provider.Request {
	req := &provider.Request{Model: "fake/" + names.Draw(t, "model"), StreamID: names.Draw(t, "stream")}
	for range rapid.IntRange(0, 3).Draw(t, "messages") {
		req.Messages = append(req.Messages, anyMessage(t))
	}
	for range rapid.IntRange(0, 2).Draw(t, "tools") {
		req.Tools = append(req.Tools, provider.Tool{Name: names.Draw(t, "tool"), Description: words.Draw(t, "says"), Schema: texts.Draw(t, "schema")})
	}
	for range rapid.IntRange(0, 2).Draw(t, "settings") {
		if req.Settings == nil {
			req.Settings = map[string]json.RawMessage{}
		}
		req.Settings["x-"+names.Draw(t, "setting")] = texts.Draw(t, "value")
	}
	return req
}

func TestRequestsComeOutAsTheyWentIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyRequest(t)
		fs, err := modelbus.RequestFrames(want)
		if err != nil {
			t.Fatal(err)
		}
		enc := rapid.SampledFrom([]frames.Encoding{frames.Msgpack, frames.JSON}).Draw(t, "encoding")
		data, err := frames.Encode(enc, fs...)
		if err != nil {
			t.Fatal(err)
		}
		m, err := frames.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := modelbus.ReadRequest("fake", &m)
		if err != nil {
			t.Fatal(err)
		}
		got.Model = "fake/" + got.Model
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}
