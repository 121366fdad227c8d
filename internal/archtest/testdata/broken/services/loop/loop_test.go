package loop

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/nats-io/nats-server/v2/server"
)

type bundle struct{ t *testing.T }

func TestVirtual(t *testing.T) {
	os.Getenv("ALLOWED")
	synctest.Test(t, func(t *testing.T) { time.Sleep(time.Hour) })
}

func TestReal(t *testing.T) {
	time.Sleep(time.Second)
	if testing.Short() {
		t.Skip("short")
	}
	bundle{t}.t.SkipNow()
	reader{}.Skip()
	func(t reader) { t.Skip() }(reader{})
}

type reader struct{}

func (reader) Skip() {}

func inBubble(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) { test(t) })
}

func TestVirtualByHelpers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		after := reader{}
		pause(after)
		time.Sleep(time.Hour)
	})
}

func TestRealByHelpers(t *testing.T) {
	after()
	rest(reader{})
}

func pause(r reader) { r.wait() }

func (reader) wait() { time.Sleep(time.Hour) }

// Named by nobody here: an interface of the code under test.
func (reader) Read() { time.Sleep(time.Hour) }

func rest(r reader) { r.both(); time.Sleep(time.Second) }

func after() { time.Sleep(time.Second) }

func (r reader) both() { time.Sleep(time.Second) }

func TestWaitsByTheClock(t *testing.T) {
	<-time.After(time.Second)
	select {
	case <-t.Context().Done():
	case <-time.After(time.Minute):
	}
}

func TestTable(t *testing.T) {
	for _, test := range []func(){handedOn} {
		synctest.Test(t, func(t *testing.T) { test() })
	}
}

func handedOn() { time.Sleep(time.Hour) }
