package loop

import (
	"context"
	"maps"
	"time"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
)

// outside are the calls of a job's session that clients answer, guarded by the
// job's mutex.
type outside struct {
	// pending are those without a result, with a revision at which they had none.
	pending map[string]uint64
	leases  map[string]session.Lease
}

// leased notes how long a client may take for a call.
func (j *job) leased(id string, timeout time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.outside.leases[id] = session.Lease{Until: time.Now().Add(timeout), Timeout: timeout}
}

func (j *job) leases() map[string]session.Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.outside.leases)
}

// forget takes out the calls whose results this loop commits itself.
func (j *job) forget(results []engine.Result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range results {
		delete(j.outside.pending, r.CallID)
		delete(j.outside.leases, r.CallID)
	}
}

// answered tells the runner of the calls that clients have answered by this head.
// What cannot be read now is seen when the session would be given up.
func (j *job) answered(ctx context.Context, head *session.Head) {
	runner, gone, from := j.gone(head)
	if len(gone) == 0 {
		return
	}
	results, err := j.l.store.Results(ctx, j.key, from)
	if err != nil {
		j.log.Warn("a client's result is read later", "error", err)
		return
	}
	for _, id := range gone {
		if r := results[id]; r != nil {
			runner.Recorded(id, r)
		}
	}
}

// gone gives the calls that clients had when this was asked before, and that have
// results since. from is a revision before those.
func (j *job) gone(head *session.Head) (runner *engine.Runner, gone []string, from uint64) {
	waits := map[string]bool{}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range head.State.Pending {
		if waits[c.ID] = c.Outside; c.Outside && j.outside.pending[c.ID] == 0 {
			j.outside.pending[c.ID] = head.Revision
		}
	}
	if j.runner == nil {
		return nil, nil, 0
	}
	for id, at := range j.outside.pending {
		if at > head.Revision || waits[id] {
			continue // a head that was read late, or still open
		}
		if delete(j.outside.pending, id); from == 0 || at < from {
			from = at
		}
		gone = append(gone, id)
	}
	return j.runner, gone, from
}

// answerError makes what a client, or nobody, said of a call into its result.
func answerError(err error) *frames.ToolResult { return &frames.ToolResult{Err: frames.AsError(err)} }
