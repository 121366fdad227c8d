package bus

import (
	"sync/atomic"
	"time"
)

// logPause is the least time between two lines of the log about what others cause,
// as often as they like.
const logPause = time.Second

// sparse lets one line pass in each logPause, and counts those between.
type sparse struct {
	last   atomic.Int64 // nanoseconds since 1970
	silent atomic.Uint64
}

// pass reports whether the line may be logged, and how many were not since the
// last one.
func (s *sparse) pass() (silent uint64, ok bool) {
	last, now := s.last.Load(), time.Now().UnixNano()
	if now-last < int64(logPause) || !s.last.CompareAndSwap(last, now) {
		s.silent.Add(1)
		return 0, false
	}
	return s.silent.Swap(0), true
}
