package llm

import (
	"sync"
	"sync/atomic"
)

var (
	table   = map[string]int{"read": 1}
	written = map[string]int{}
	lock    sync.Mutex
	buffers sync.Pool
	current atomic.Pointer[int]
	counted struct{ n int }
	pool    = sync.OnceValue(func() int { return table["read"] })
)

func local() {
	table := 1
	table++
	_ = table
	elsewhere = table + pool()
	counted.n++
	delete(written, "x")
}
