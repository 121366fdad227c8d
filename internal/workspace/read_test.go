package workspace

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: P34, P36
func TestReadText(t *testing.T) {
	t.Parallel()
	b := setup(t, WithReadLimits(12, 3))
	b.put(t, "f", "1\r\n2\n3\n4\n5")
	b.put(t, "empty", "")
	b.put(t, "wide", "äöüäöüäöü\nnext\n")
	b.put(t, "latin", "gr\xfc\xdfe, Welt")
	tests := []struct {
		req  ReadRequest
		want FileText
	}{
		{ReadRequest{Path: "f"}, FileText{Content: "1\r\n2\n3\n", Size: 10, StartLine: 1, EndLine: 3, NextOffset: 4}},
		{ReadRequest{Path: "f", Offset: 4}, FileText{Content: "4\n5", Size: 10, StartLine: 4, EndLine: 5}},
		{ReadRequest{Path: "f", Offset: 2, Limit: 1}, FileText{Content: "2\n", Size: 10, StartLine: 2, EndLine: 2, NextOffset: 3}},
		{ReadRequest{Path: "f", Offset: 5, Limit: 900}, FileText{Content: "5", Size: 10, StartLine: 5, EndLine: 5}},
		{ReadRequest{Path: "empty"}, FileText{StartLine: 1}},
		{ReadRequest{Path: "wide"}, FileText{Content: "äöüäöü", Size: 24, StartLine: 1, EndLine: 1, LineCut: true, NextOffset: 2}},
		{ReadRequest{Path: "wide", Offset: 2}, FileText{Content: "next\n", Size: 24, StartLine: 2, EndLine: 2}},
		{ReadRequest{Path: "latin"}, FileText{Content: "gr\uFFFD\uFFFDe, Welt", Size: 11, StartLine: 1, EndLine: 1, InvalidBytes: 2}},
	}
	for _, tt := range tests {
		res, err := b.ReadFile(t.Context(), tt.req)
		ok(t, err)
		equal(t, fmt.Sprint(tt.req), *res.FileText, tt.want)
		equal(t, "path", res.Path, tt.req.Path)
		equal(t, "truncated", res.Truncated, tt.want.NextOffset > 0)
	}
	for _, req := range []ReadRequest{{Path: "f", Offset: 6}, {Path: "empty", Offset: 2}, {Path: "f", Offset: -1}, {Path: "f", Limit: -1}} {
		_, err := b.ReadFile(t.Context(), req)
		b.refused(t, err, frames.CodeValidationInput, ReasonInvalidRange)
	}
}

// contract: P36
func TestReadDefaultLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "lines", strings.Repeat("x\n", 2500))
	b.put(t, "bytes", strings.Repeat(strings.Repeat("y", 99)+"\n", 1000))
	res, err := b.ReadFile(t.Context(), ReadRequest{Path: "lines"})
	ok(t, err)
	equal(t, "end line", res.EndLine, 2000)
	equal(t, "next", res.NextOffset, 2001)
	res, err = b.ReadFile(t.Context(), ReadRequest{Path: "bytes"})
	ok(t, err)
	equal(t, "bytes", len(res.Content), 51200)
	equal(t, "next", res.NextOffset, 513)
}

// Reading on from NextOffset gives the whole file back, whatever the limits.
func TestReadPagesJoinToTheFile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.StringOfN(rapid.RuneFrom([]rune("aé中🙂\r ")), 0, 8, -1)
		text := strings.Join(rapid.SliceOfN(line, 0, 20).Draw(t, "lines"), "\n")
		want := window{lines: rapid.IntRange(1, 5).Draw(t, "lines a page"), bytes: rapid.IntRange(34, 80).Draw(t, "bytes a page")}
		var got strings.Builder
		for want.from = 1; want.from > 0; {
			part, err := newSource(strings.NewReader(text)).lines(context.Background(), want)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(part.text); n > want.bytes || part.last-part.first+1 > want.lines || !utf8.Valid(part.text) {
				t.Fatalf("page of %d bytes, lines %d to %d, window %+v", n, part.first, part.last, want)
			}
			got.Write(part.text)
			want.from = part.next
		}
		if got.String() != text {
			t.Fatalf("got %q, want %q", got.String(), text)
		}
	})
}

// A line longer than the reader's buffer, alone and after a short one.
func TestReadLineOverTheBuffer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "long", "short\n"+strings.Repeat("ä", 60000)+"\nend\n")
	res, err := b.ReadFile(t.Context(), ReadRequest{Path: "long"})
	ok(t, err)
	equal(t, "content", res.Content, "short\n")
	equal(t, "end line", res.EndLine, 1)
	equal(t, "next", res.NextOffset, 2)
	res, err = b.ReadFile(t.Context(), ReadRequest{Path: "long", Offset: 2})
	ok(t, err)
	equal(t, "content", res.Content, strings.Repeat("ä", 25600))
	equal(t, "next", res.NextOffset, 3)
	equal(t, "cut", res.LineCut, true)
}

// contract: P36, P37
// case: WS-F23, WS-F27, WS-F28
func TestReadRefusesWhatIsNoText(t *testing.T) {
	t.Parallel()
	b := setup(t, WithExtensions("", "txt"))
	b.fifo(t, "pipe")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", b.at("work/socket"))
	ok(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	b.link(t, "other.key", "innocent.txt")
	for name, content := range map[string]string{
		"zero": "text\x00text", "late": strings.Repeat("x\n", 9000) + "\x00", "png": "\x89PNG\r\n\x1a\nrest",
		"pdf": "%PDF-1.7\n", "utf16bom": "\xff\xfeh\x00i\x00", "utf16": "/\x00/\x00 \x00h\x00i\x00",
		"koi8": strings.Repeat("\xf0\xd2\xc9\xd7\xc5\xd4 ", 9), "other.key": "k",
	} {
		b.put(t, name, content)
	}
	tests := []struct {
		path   string
		code   frames.Code
		reason string
		says   string
	}{
		{"pipe", frames.CodeExecution, ReasonNotRegular, "not a regular file"},
		{"socket", frames.CodeExecution, ReasonNotRegular, "not a regular file"},
		{"zero", frames.CodeExecution, ReasonBinary, "binary data"},
		{"png", frames.CodeExecution, ReasonBinary, "image/png"},
		{"pdf", frames.CodeExecution, ReasonBinary, "application/pdf"},
		{"utf16bom", frames.CodeExecution, ReasonBinary, "UTF-16"},
		{"utf16", frames.CodeExecution, ReasonBinary, "UTF-16"},
		{"koi8", frames.CodeExecution, ReasonBinary, "binary data"},
		{"other.key", frames.CodeDenied, ReasonExtension, "no extension, .txt"},
		{"innocent.txt", frames.CodeDenied, ReasonExtension, "not allowed"},
	}
	for _, tt := range tests {
		_, err := b.ReadFile(t.Context(), ReadRequest{Path: tt.path})
		b.refused(t, err, tt.code, tt.reason)
		if !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: the error does not say %q: %v", tt.path, tt.says, err)
		}
	}
	_, err = b.ReadFile(t.Context(), ReadRequest{Path: "late", Offset: 8000})
	b.refused(t, err, frames.CodeExecution, ReasonBinary)
}

func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "f", "text\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.ReadFile(ctx, ReadRequest{Path: "f"})
	b.refused(t, err, frames.CodeCancelled, "")
}

// The fields of a file and of a directory stand beside success and path.
func TestReadResultAsJSON(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "d/f", "")
	for path, want := range map[string]string{
		"d/f": `{"success":true,"path":"d/f","truncated":false,"content":"","size":0,"startLine":1,"endLine":0}`,
		"d": `{"success":true,"path":"d","truncated":false,"isDirectory":true,"files":[{"name":"f","type":"file","size":0}],"total":1,` +
			`"hint":"This is a directory. Join its path and the name of an entry to read that entry."}`,
	} {
		res, err := b.ReadFile(t.Context(), ReadRequest{Path: path})
		ok(t, err)
		got, err := json.Marshal(res)
		ok(t, err)
		equal(t, path, string(got), want)
	}
}
