package provider_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// A message can be written and read, whatever parts a tool gave: no result makes a
// session's next request unreadable.
//
// contract: E6
func TestToolMessageOfAnyParts(t *testing.T) {
	t.Parallel()
	m := provider.ToolMessage("c1", &frames.ToolResult{Details: json.RawMessage(`"secret"`), Parts: []frames.Part{
		{Type: "text", Text: "a"}, {Type: "image", MediaType: "image/png", Data: []byte{1}},
		{Type: "video", MediaType: "video/mp4", Data: []byte{1, 2}, Name: "a\nfilm"}, {Type: "note", Text: "b"}, {},
	}})
	text, err := json.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	var back provider.Message
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	want := []provider.Part{
		{Type: provider.PartText, Text: "a"}, {Type: provider.PartImage, MediaType: "image/png", Data: []byte{1}},
		{Type: provider.PartText, Text: "[video video/mp4 a film, 2 bytes]"}, {Type: provider.PartText, Text: "b"}, {Type: provider.PartText, Text: "[]"},
	}
	if diff := cmp.Diff(want, back.Parts); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("details: %s", text)
	}
}

func TestToolMessageIsBounded(t *testing.T) {
	t.Parallel()
	r := &frames.ToolResult{Parts: []frames.Part{{Type: "text", Text: "begin"}}}
	for range 1000 {
		r.Parts = append(r.Parts, frames.Part{Type: "resource", URI: "file:///" + strings.Repeat("日", 10_000), Name: strings.Repeat("é", 3000)})
	}
	r.Parts = append(r.Parts, frames.Part{Type: "text", Text: "end"})
	m := provider.ToolMessage("c1", r)
	got := m.Content()
	if len(got) > 200_000 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
	if !strings.HasPrefix(got, "begin\n[resource é") || !strings.HasSuffix(got, "\nend\n[936 more parts are left out]") || strings.Count(got, "[resource ") != 64 {
		t.Errorf("%.50s … %s", got, got[len(got)-100:])
	}
}
