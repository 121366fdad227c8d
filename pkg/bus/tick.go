package bus

import "github.com/weavebus/weavebus/pkg/frames"

// Tick answers with TICK, as the holder of an open exchange does each 5 s, and
// calls gone if nobody listens for the answers any more: the caller's process
// ended, or it stopped reading. gone may run on another goroutine and must not
// block. After END nothing is sent.
func (r *Request) Tick(gone func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.reply == "" {
		return nil
	}
	f := frames.Tick() // without a number: it may be sent again
	data, err := frames.Encode(r.Encoding, &f)
	if err != nil {
		return err
	}
	r.stopTick()
	r.tick = r.c.NewAsk(func(_ frames.Message, err error) {
		if frames.CodeOf(err) == frames.CodeUnavailable {
			gone()
		}
	})
	return r.tick.Send(r.reply, data, nil)
}

// stopTick ends the wait for the last TICK's word, under the lock.
func (r *Request) stopTick() {
	if r.tick != nil {
		r.tick.Stop()
		r.tick = nil
	}
}
