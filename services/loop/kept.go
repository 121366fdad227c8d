package loop

import (
	"context"
	"sync"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/results"
)

// Bytes of cut results that are kept in memory for ephemeral runs: of all of them,
// and of one.
const (
	maxKept    = 128 << 20
	maxKeptRun = 16 << 20
)

// keeping counts what ephemeral runs keep.
type keeping struct {
	most int

	mu   sync.Mutex
	used int
}

// take reserves n bytes, or gives some back.
func (k *keeping) take(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n > 0 && k.used+n > k.most {
		return false
	}
	k.used += n
	return true
}

// runResults are the cut results of an ephemeral run, which end with it. The oldest
// go first.
type runResults struct {
	all *keeping

	mu    sync.Mutex
	cut   bool
	used  int
	texts map[string]string
	order []string
}

var _ cutResults = (*runResults)(nil)

func (k *runResults) keep(ref, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = true
	if _, known := k.texts[ref]; known || len(text) > maxKeptRun {
		return
	}
	for k.used+len(text) > maxKeptRun {
		k.dropOldest()
	}
	for !k.all.take(len(text)) {
		if len(k.order) == 0 {
			return // other runs have it all: this one is not found
		}
		k.dropOldest()
	}
	if k.texts == nil {
		k.texts = map[string]string{}
	}
	k.texts[ref] = text
	k.order = append(k.order, ref)
	k.used += len(text)
}

func (k *runResults) dropOldest() {
	ref := k.order[0]
	n := len(k.texts[ref])
	delete(k.texts, ref)
	k.order = k.order[1:]
	k.used -= n
	k.all.take(-n)
}

// drop ends the keeping: the run is over.
func (k *runResults) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.order) > 0 {
		k.dropOldest()
	}
}

func (k *runResults) anyCut() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cut
}

func (k *runResults) whole(_ context.Context, ref string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, ok := k.texts[ref]
	if !ok {
		return "", results.NotFound(ref)
	}
	return text, nil
}

// keepingJournal keeps the results of a run that were cut for its model.
type keepingJournal struct {
	engine.Journal
	kept *runResults
}

// Commit implements [engine.Journal].
func (j keepingJournal) Commit(ctx context.Context, c *engine.Commit) ([]string, error) {
	for _, r := range c.Results {
		if ref := results.Ref(r.Result); ref != "" {
			j.kept.keep(ref, results.Whole(r.Result))
		}
	}
	return j.Journal.Commit(ctx, c)
}
