package workspace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/weavebus/weavebus/internal/validtext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// sniffed is how much of a file's beginning decides whether it is text.
const sniffed = 8 << 10

// window is the part of a file that is wanted: lines from a number on, at most
// so many, at most so many bytes.
type window struct{ from, lines, bytes int }

// part is what a window showed.
type part struct {
	text        []byte
	first, last int   // lines shown
	next        int   // the line to read on from; 0 at the end of the file
	cut         bool  // text is the beginning of one too long line
	seen        int64 // bytes of the file that were looked at
}

// source reads a file line by line in bounded memory.
type source struct {
	br   *bufio.Reader
	line int // the line that the next byte belongs to
	open bool
	part part
}

func newSource(r io.Reader) *source {
	return &source{br: bufio.NewReaderSize(r, 32<<10), line: 1}
}

// lines gives what the window shows.
func (s *source) lines(ctx context.Context, want window) (part, error) {
	s.part.first, s.part.last = want.from, want.from-1
	for {
		piece, err := s.br.ReadSlice('\n')
		if len(piece) > 0 && s.take(piece, want) {
			return s.part, ctx.Err()
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.part, s.checkStart(want)
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return s.part, err
		case ctx.Err() != nil:
			return s.part, ctx.Err()
		}
	}
}

// take looks at a piece of the current line and says whether the window is full.
func (s *source) take(piece []byte, want window) (full bool) {
	if s.line >= want.from {
		if s.past(piece, want) {
			s.part.next = s.line
			return true
		}
		s.add(piece, want)
	}
	s.part.seen += int64(len(piece))
	s.open = piece[len(piece)-1] != '\n'
	if !s.open {
		s.line++
	}
	return false
}

// past says that the piece belongs to a line after the window; the beginning of
// a line that does not fit whole is taken back.
func (s *source) past(piece []byte, want window) bool {
	if s.line >= want.from+want.lines || s.part.cut && s.line > want.from {
		return true
	}
	if s.line == want.from || len(s.part.text)+len(piece) <= want.bytes {
		return false
	}
	if s.open {
		s.part.text = s.part.text[:bytes.LastIndexByte(s.part.text, '\n')+1]
		s.part.last--
	}
	return true
}

// add appends what fits of the piece. Only the first line can be cut.
func (s *source) add(piece []byte, want window) {
	s.part.last = s.line
	if s.part.cut {
		return
	}
	s.part.text = append(s.part.text, piece...)
	if len(s.part.text) > want.bytes {
		s.part.text = s.part.text[:validtext.Cut(s.part.text, want.bytes)]
		s.part.cut = true
	}
}

// checkStart refuses a window that begins after the end of the file.
func (s *source) checkStart(want window) error {
	count := s.line - 1
	if s.open {
		count = s.line
	}
	if want.from <= max(1, count) {
		return nil
	}
	return refused(frames.CodeValidationInput, ReasonInvalidRange,
		"offset %d is after the end of the file, which has %d lines", want.from, count)
}
