package bus

import (
	"testing"
	"testing/synctest"
	"time"
)

// Who sends nonsense as fast as it can fills no disk with lines.
func TestLinesThatOthersCauseAreSparse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sparse
		for _, want := range []uint64{0, 99, 99} {
			lines := 0
			for range 100 {
				silent, ok := s.pass()
				if !ok {
					continue
				}
				if lines++; silent != want {
					t.Errorf("%d were not logged, want %d", silent, want)
				}
			}
			if lines != 1 {
				t.Errorf("%d lines of 100", lines)
			}
			time.Sleep(logPause)
		}
	})
}
