package dispatch

import (
	"slices"
	"time"
)

const (
	// paceSamples are the durations by which a tool is judged, paceEach how many
	// new ones it takes to judge again.
	paceSamples = 64
	paceEach    = 16
	// shortRun is the median, and steadyRun the p95 over the median, up to which a
	// call is sent ahead: handing a call over costs up to 1 ms, which is worth
	// saving where a call runs no longer than ten times that, and a call that was
	// sent ahead is not to wait behind a long one.
	shortRun  = 10 * time.Millisecond
	steadyRun = 3
	// paceNoise is a p95 that says nothing but that the machine is busy.
	paceNoise = 2 * time.Millisecond
)

// pace is how long the calls of a lane run.
type pace struct {
	// mean is smoothed; 0 where none has ended.
	mean time.Duration
	// short: the calls are short, all of them.
	short bool

	samples [paceSamples]uint32 // microseconds
	n       int
}

// measure takes how long a call ran.
func (p *pace) measure(took time.Duration) {
	if p.mean == 0 {
		p.mean = took
	} else {
		p.mean += (took - p.mean) / 8
	}
	p.samples[p.n%paceSamples] = uint32(min(took, time.Hour) / time.Microsecond)
	if p.n++; p.n%paceEach == 0 {
		p.judge()
	}
	p.short = p.short && took <= steadyRun*shortRun
}

func (p *pace) judge() {
	sorted := p.samples
	known := sorted[:min(p.n, paceSamples)]
	slices.Sort(known)
	at := func(percent int) time.Duration {
		return time.Duration(known[len(known)*percent/100]) * time.Microsecond
	}
	median, p95 := at(50), at(95)
	p.short = median <= shortRun && p95 <= max(steadyRun*median, paceNoise)
}
