package frames

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	protocolPage  = "../../docs/protocol.md"
	appendixBegin = "<!-- golden: begin, written by go test ./pkg/frames -run TestAppendix -update -->\n"
	appendixEnd   = "<!-- golden: end -->\n"
)

// TestAppendix: the protocol's page shows the golden bytes that the other tests
// hold.
//
// contract: B51, F6
func TestAppendix(t *testing.T) {
	page, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(page), appendixBegin)
	shown, tail, ok2 := strings.Cut(rest, appendixEnd)
	if !ok1 || !ok2 {
		t.Fatal("the page has no place for the golden bytes")
	}
	want := "\n" + goldenSection(t) + foreignSection(t)
	if *update {
		text := head + appendixBegin + want + appendixEnd + tail
		if err := os.WriteFile(protocolPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("run go test -update (-want +page):\n%s", diff)
	}
}

func goldenSection(t *testing.T) string {
	a := readArchive(t, "golden.txtar")
	var b strings.Builder
	for _, f := range a.files {
		name, isHex := strings.CutSuffix(f.name, ".hex")
		if !isHex {
			continue
		}
		note, bytes := splitNote(f.data)
		text, _ := a.get(name + ".json")
		fmt.Fprintf(&b, "**%s**: %s\n\n```\n%s```\n\n```json\n%s```\n\n", name, note, bytes, text)
	}
	return b.String()
}

func splitNote(data string) (note, rest string) {
	first, rest, _ := strings.Cut(data, "\n")
	return strings.TrimPrefix(first, "# "), rest
}

func foreignSection(t *testing.T) string {
	a := readArchive(t, "foreign.txtar")
	var b strings.Builder
	b.WriteString("What other clients pack, and how it is read. The bytes are in\npkg/frames/testdata/foreign.txtar.\n\n| bytes | read as |\n|---|---|\n")
	for _, f := range a.files {
		name, isHex := strings.CutSuffix(f.name, ".hex")
		if !isHex {
			continue
		}
		note, _ := splitNote(f.data)
		want, _ := a.get(name + ".want")
		fmt.Fprintf(&b, "| %s | %s |\n", note, outcome(want))
	}
	return b.String() + "\n"
}

// outcome sums up what a message is read as: the refusal, or the frames and
// what their payloads are.
func outcome(want string) string {
	if why, refused := strings.CutPrefix(want, "refused: "); refused {
		return strings.TrimSpace(why)
	}
	var parts []string
	for line := range strings.Lines(want) {
		switch payload, found := strings.CutPrefix(line, "  → "); {
		case found:
			parts = append(parts, "`"+strings.TrimSpace(payload)+"`")
		case !strings.HasPrefix(line, " "):
			parts = append(parts, strings.TrimSpace(line))
		}
	}
	return strings.Join(parts, ", ")
}
