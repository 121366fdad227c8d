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
}

type reader struct{}

func (reader) Skip() {}
