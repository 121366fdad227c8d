package workspace

import (
	"context"
	"io/fs"
	"os"

	"github.com/weavebus/weavebus/internal/validtext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// ReadRequest says what to read.
type ReadRequest struct {
	// Path is relative to the workspace, or absolute inside it. Absent or blank:
	// the workspace itself.
	Path string `json:"path,omitempty"`
	// Offset is the first line wanted, counted from 1. Default 1.
	Offset int `json:"offset,omitempty"`
	// Limit is the most lines wanted. Default, and at most: the read limit.
	Limit int `json:"limit,omitempty"`
}

// ReadResult is what reading gave: exactly one of FileText and Listing is set,
// and their fields stand beside the common ones in JSON.
type ReadResult struct {
	// Success is true whenever there is a result.
	Success bool `json:"success"`
	// Path is relative to the workspace; "." is its root.
	Path string `json:"path"`
	// Truncated says that text after Content, or entries after Files, were left out.
	Truncated bool `json:"truncated"`
	*FileText
	*Listing
}

// FileText is a part of a text file, as it stands in the file.
type FileText struct {
	// Content is valid UTF-8. Only whole lines are cut off, unless LineCut says else.
	Content string `json:"content"`
	// Size is the file's size in bytes.
	Size int64 `json:"size"`
	// StartLine and EndLine are the first and last line of Content, from 1. An
	// empty file has StartLine 1 and EndLine 0.
	StartLine int `json:"startLine"`
	EndLine   int `json:"endLine"`
	// NextOffset is the offset that reads on; 0 when there is nothing more.
	NextOffset int `json:"nextOffset,omitempty"`
	// LineCut says that Content is the beginning of one line over the limit.
	LineCut bool `json:"lineCut,omitempty"`
	// InvalidBytes counts the bytes that were not UTF-8: each shows as U+FFFD.
	InvalidBytes int64 `json:"invalidBytes,omitempty"`
}

// ReadFile reads a part of a text file, or lists a directory.
func (w *Workspace) ReadFile(ctx context.Context, req ReadRequest) (ReadResult, error) {
	if req.Offset < 0 || req.Limit < 0 {
		return ReadResult{}, refused(frames.CodeValidationInput, ReasonInvalidRange, "offset and limit must not be negative")
	}
	loc, err := w.locate(req.Path)
	if err != nil {
		return ReadResult{}, err
	}
	f, info, err := w.open(loc)
	if err != nil {
		return ReadResult{}, err
	}
	defer func() { _ = f.Close() }()
	res := ReadResult{Success: true, Path: loc.name}
	if info.IsDir() {
		if res.Listing, err = w.list(ctx, loc.opened()); err == nil {
			res.Truncated = res.Total > len(res.Files)
		}
	} else if res.FileText, err = w.readText(ctx, f, info, req); err == nil {
		res.Truncated = res.NextOffset > 0 || res.LineCut
	}
	if err != nil {
		return ReadResult{}, w.failed("read", loc.name, err)
	}
	return res, nil
}

// readText reads the wanted lines of an open regular file. The size that the
// file system tells bounds nothing: it is 0 for some files that have text.
func (w *Workspace) readText(ctx context.Context, f *os.File, info fs.FileInfo, req ReadRequest) (*FileText, error) {
	src := newSource(f)
	if kind := src.binaryKind(); kind != "" {
		return nil, binary(kind, info.Size())
	}
	part, err := src.lines(ctx, window{
		from: max(1, req.Offset), lines: limitOr(req.Limit, w.readLines), bytes: w.readBytes,
	})
	if err != nil {
		return nil, err
	}
	text, invalid := validtext.Of(part.text)
	if mostlyBinary(part.text, invalid) {
		return nil, binary("binary data", info.Size())
	}
	return &FileText{
		Content: text, InvalidBytes: invalid, Size: max(info.Size(), part.seen),
		StartLine: part.first, EndLine: part.last,
		NextOffset: part.next, LineCut: part.cut,
	}, nil
}

func limitOr(asked, most int) int {
	if asked == 0 {
		return most
	}
	return min(asked, most)
}

func binary(kind string, size int64) error {
	return refused(frames.CodeExecution, ReasonBinary,
		"the file is not UTF-8 text (%s, %d bytes); use a command to inspect or convert it", kind, size)
}
