package workspace

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: P34, P35, B10
// case: WS-F12
func TestListing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "b.txt", "four")
	b.put(t, "Dir/inner", "")
	b.put(t, "two\nlines", "x")
	b.put(t, ".hidden", "")
	b.put(t, tempPrefix+"underway", "")
	b.link(t, "../work-evil", "link")
	b.fifo(t, "pipe")
	want := []Entry{
		{".hidden", TypeFile, 0}, {"Dir", TypeDirectory, 0}, {"b.txt", TypeFile, 4},
		{"link", TypeLink, 0}, {"pipe", TypeOther, 0}, {"two\nlines", TypeFile, 1},
	}
	for _, path := range []string{"", "  ", ".", "./", "Dir/..", b.at("work")} {
		res, err := b.ReadFile(t.Context(), ReadRequest{Path: path})
		ok(t, err)
		if diff := cmp.Diff(want, res.Files); diff != "" {
			t.Errorf("%q: %s", path, diff)
		}
		equal(t, "success", res.Success && res.IsDirectory && res.Hint != "", true)
		if path != "Dir/.." {
			equal(t, "path", res.Path, ".")
		}
	}
	for _, path := range []string{"Dir", "Dir/", b.at("work/Dir")} {
		res, err := b.ReadFile(t.Context(), ReadRequest{Path: path})
		ok(t, err)
		equal(t, "path", res.Path, "Dir")
		equal(t, "entries", fmt.Sprint(res.Files), "[{inner file 0}]")
	}
}

// contract: P33, P35
func TestListingIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, WithListLimit(10), WithExtensions("txt"))
	for i := range 1500 {
		b.put(t, fmt.Sprintf("many/%04d.txt", i), "")
	}
	b.put(t, "many/0000.bin", "")
	b.put(t, "many/0000.dir/x", "")
	ok(t, os.Mkdir(b.at("work/empty"), 0o755))
	res, err := b.ReadFile(t.Context(), ReadRequest{Path: "many"})
	ok(t, err)
	equal(t, "first", res.Files[0].Name, "0000.dir")
	equal(t, "second", res.Files[1].Name, "0000.txt")
	equal(t, "last", res.Files[9].Name, "0008.txt")
	equal(t, "shown", len(res.Files), 10)
	equal(t, "total", res.Total, 1501)
	equal(t, "truncated", res.Truncated, true)
	res, err = b.ReadFile(t.Context(), ReadRequest{Path: "empty"})
	ok(t, err)
	equal(t, "an empty list, not null", res.Files != nil && len(res.Files) == 0, true)
}

func TestListingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "f", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.ReadFile(ctx, ReadRequest{})
	b.refused(t, err, frames.CodeCancelled, "")
}
