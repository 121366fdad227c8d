package schema

import (
	"sync"
	"sync/atomic"

	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// budget is the work that one validation may cost, a second at most on a
	// slow machine; an ordinary call costs some hundred units. Without a bound a
	// schema of a few hundred bytes keeps a validator busy for years: branches
	// that refer to branches double the work at each step.
	budget = 4 << 20
	// perVisit is the work of applying a part of a schema to a value; looking
	// at one member or item of it costs 1.
	perVisit = 8
)

// meter counts the work of all validations of one schema. The compiled form has
// no place for a count of its own to each validation, so they share one; when
// that is used up, the validation runs again alone, with a budget to itself. A
// schema that used up even that is heavy: its validations run one at a time.
type meter struct {
	mu    sync.RWMutex
	spent atomic.Int64
	heavy atomic.Bool
}

// exhausted unwinds a validation through the library. It never leaves run.
type exhausted struct{}

func (m *meter) spend(units int) {
	if m.spent.Add(int64(units)) > budget {
		panic(exhausted{})
	}
}

// run calls check; done is false if it took more than the budget. The error is
// a panic of the validator itself.
func (m *meter) run(check func()) (done bool, err error) {
	if !m.heavy.Load() {
		m.mu.RLock()
		done, err = unwound(check)
		m.mu.RUnlock()
		if done || err != nil {
			return done, err
		}
	}
	return m.alone(check)
}

func (m *meter) alone(check func()) (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent.Store(0)
	done, err = unwound(check)
	m.spent.Store(0)
	if !done && err == nil {
		m.heavy.Store(true)
	}
	return done, err
}

func unwound(check func()) (done bool, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil, exhausted:
		default:
			err = frames.NewError(frames.CodeInternal, "the schema validator failed: %v", r)
		}
	}()
	check()
	return true, nil
}
