package registry

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// BenchmarkMemory is what a registry holds of each of 2,000 tools of 50 services,
// with schemas of some 400 bytes: once announced, once all of them were listed, and
// once all services have ended; and how long the first list looks at each.
func BenchmarkMemory(b *testing.B) {
	const tools, services = 2000, 50
	for b.Loop() {
		empty := heap()
		r := New(&bus.Conn{}, Config{Log: slog.New(slog.DiscardHandler)})
		announceMany(b, r, tools, services)
		announced := heap()
		start := time.Now()
		for _, t := range r.Tools() {
			if r.State(t) != Ready {
				b.Fatalf("%s is %s", t.Name, r.State(t))
			}
		}
		each := time.Since(start) / tools
		listed := heap()
		for id := range r.cat.instances {
			r.Gone(id)
		}
		ended := heap()
		report := func(held uint64, name string) { b.ReportMetric(float64(int64(held)-int64(empty))/tools, name) }
		report(announced, "B/tool")
		report(listed, "B/listed-tool")
		report(ended, "B/ended-tool")
		b.ReportMetric(float64(each.Nanoseconds()), "ns/listed-tool")
		runtime.KeepAlive(r)
	}
}

func announceMany(b *testing.B, r *Registry, tools, services int) {
	b.Helper()
	for i := range tools {
		d := &frames.Declaration{Name: fmt.Sprintf("tool-%d", i), Description: "Searches the index and gives what fits, newest first."}
		d.Schema = fmt.Appendf(nil, `{"type":"object","properties":{"query":{"type":"string","description":"what to look for in index %d",`+
			`"minLength":1},"limit":{"type":"integer","minimum":1,"maximum":100},"tags":{"type":"array","items":{"type":"string"}}},`+
			`"required":["query"],"additionalProperties":false}`, i)
		f := frames.Description(d)
		data, err := frames.Encode(frames.Msgpack, &f)
		if err != nil {
			b.Fatal(err)
		}
		r.announcement(fmt.Sprintf("wb.announce.local.%d.%s", i%services, d.Name), data)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
