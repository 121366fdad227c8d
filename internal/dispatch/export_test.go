package dispatch

// Held is what a dispatcher holds, for tests.
type Held struct{ Lanes, Calls, Slots, Queued, Bytes int }

// Held counts what the dispatcher holds.
func (d *Dispatcher) Held() Held {
	h := Held{Calls: d.InFlight()}
	for _, l := range d.allLanes() {
		l.mu.Lock()
		h.Lanes++
		h.Queued += len(l.queue)
		h.Calls = max(h.Calls, len(l.calls))
		for _, n := range l.loads {
			h.Slots += n.slots
		}
		l.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h.Bytes = d.bytes
	return h
}
