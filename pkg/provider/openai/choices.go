package openai

// choices picks the one choice that is read. We ask for one; a server may send
// more, and some count the index up with each chunk. The two look alike until
// the third index, so choices after the first are held back until it is clear.
type choices struct {
	begun    bool
	base     int64 // the index of the first choice seen
	next     int64 // the index that comes next if the server counts
	counting bool
	settled  bool // several choices: only base is read
	early    bool // nothing came at index 0, which may still come
	held     []choice
}

// earlyMost is how many chunks at another index are held back for one at 0.
const earlyMost = 8

// pick gives the choices of one chunk that are to be read now.
func (cs *choices) pick(list []choice) []choice {
	if len(list) == 0 {
		return nil
	}
	if !cs.begun {
		cs.begin(list)
	}
	if len(list) > 1 {
		cs.settle()
	}
	var out []choice
	for _, c := range list {
		out = append(out, cs.judge(c)...)
	}
	return out
}

func (cs *choices) begin(list []choice) {
	cs.begun, cs.base = true, list[0].Index.value
	for _, c := range list {
		cs.base = min(cs.base, c.Index.value)
	}
	cs.next = cs.base
	cs.early = cs.base > 0 && len(list) == 1
}

func (cs *choices) settle() {
	if !cs.counting {
		cs.settled, cs.held = true, nil
	}
}

func (cs *choices) judge(c choice) []choice {
	at := c.Index.value
	if cs.early {
		return cs.wait(c)
	}
	switch {
	case cs.counting:
		return []choice{c}
	case at == cs.base:
		if cs.next > cs.base+1 { // it went on and came back
			cs.settle()
		}
		cs.next = max(cs.next, cs.base+1)
		return []choice{c}
	case cs.settled:
		return nil
	case at != cs.next:
		cs.settle()
		return nil
	}
	return cs.hold(c)
}

// wait keeps the choice that came first until it is clear that it is the one.
func (cs *choices) wait(c choice) []choice {
	switch at := c.Index.value; {
	case at < cs.base: // it is not
		cs.early, cs.settled, cs.held = false, true, nil
		cs.base, cs.next = at, at+1
		return []choice{c}
	case at == cs.base && len(cs.held) < earlyMost:
		cs.held, cs.next = append(cs.held, c), at+1
		return nil
	}
	cs.early = false
	return append(cs.rest(), cs.judge(c)...)
}

// hold keeps a choice; the third index in a row shows that the server counts.
func (cs *choices) hold(c choice) []choice {
	const enough = 2
	cs.held = append(cs.held, c)
	cs.next++
	if len(cs.held) < enough {
		return nil
	}
	cs.counting = true
	return cs.rest()
}

// rest gives what is held back: at the end of the stream it belongs to the
// answer if the choice that was read never finished.
func (cs *choices) rest() []choice {
	out := cs.held
	cs.held = nil
	return out
}
