package bustest

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble tells by the clock: a bubble's starts at the year 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// requireSequential fails a test that other tests may run beside, as Setenv
// panics there.
func requireSequential(t testing.TB) {
	t.Helper()
	defer func() {
		if recover() != nil {
			t.Fatal("bustest: a test with a mesh in a synctest bubble must not be parallel; see the package's doc")
		}
	}()
	t.Setenv("WEAVEBUS_TEST_BUBBLE", t.Name())
}

// leaveBubble drops the bubble's timers from nats.go's pool, once those that the
// closed connections woke have given theirs back: a sync.Pool keeps its values
// for one collection and drops them in the second.
func leaveBubble() {
	synctest.Wait()
	runtime.GC()
	runtime.GC()
}
