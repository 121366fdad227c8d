package engine

import (
	"context"
	"fmt"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Memory is the journal of a run that ends with its process. It keeps nothing but
// the count from which it makes call ids, <uid>-<n>-<i>, and shows each commit.
type Memory struct {
	uid  string
	n    int
	show func(...frames.Frame) error
}

var _ Journal = (*Memory)(nil)

// NewMemory makes a journal. uid is never used twice; show takes the frames of
// each commit, and its error is that of the commit.
func NewMemory(uid string, show func(...frames.Frame) error) *Memory {
	return &Memory{uid: uid, show: show}
}

// Commit implements [Journal].
func (m *Memory) Commit(_ context.Context, c *Commit) ([]string, error) {
	var ids []string
	if c.Answer != nil {
		m.n++
		for i := range c.Answer.Message.Calls {
			ids = append(ids, fmt.Sprintf("%s-%d-%d", m.uid, m.n, i))
		}
	}
	return ids, m.show(c.Frames(ids)...)
}
