package client

import "github.com/weavebus/weavebus/pkg/frames"

// gap is the error of a reader whose next entries are not kept any more, CONFLICT
// with the reason gap; the harness says the same of an entry that the session never
// had. The reader asks for the state and goes on from its entry.
func (r *reader) gap(first uint64) error {
	return frames.NewError(frames.CodeConflict, "session %s: entries from %d to %d are not kept any more: read it from its state on",
		r.s.ID, r.entry+1, first-1).WithReason("gap")
}
