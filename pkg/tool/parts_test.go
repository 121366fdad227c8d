package tool_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
)

// contract: E6, E19
func TestParts(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "rich", give(tool.Result[count]{Value: count{7}, Parts: []frames.Part{
		tool.TextPart("a\nb"), tool.ImagePart("image/png", []byte{1}), tool.AudioPart("audio/wav", []byte{2, 3}), tool.ResourcePart("file:///a.md", "notes", "text/markdown"),
	}})))
	m := provider.ToolMessage("c1", setup(t).serve(s, "i1").call("rich", "{}").result)
	want := "a\nb\n[image image/png, 1 bytes]\n[audio audio/wav, 2 bytes]\n[resource text/markdown notes file:///a.md]"
	if diff := cmp.Diff(want, m.Content()); diff != "" {
		t.Error(diff)
	}
	if m.Parts[1].Type != provider.PartImage || m.Parts[2].Type != provider.PartAudio || m.Parts[3].Type != provider.PartResource {
		t.Errorf("%+v", m.Parts)
	}
}
