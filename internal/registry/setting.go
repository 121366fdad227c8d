package registry

import (
	"encoding/json"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Setting is what operators decided about a tool; its zero value is nothing. It
// holds for the name, whoever serves it, and survives restarts.
type Setting struct {
	// Disabled: calls are DISABLED.
	Disabled bool `json:"disabled,omitempty"`
	// Retired: the name is gone, calls are NOT_FOUND.
	Retired bool `json:"retired,omitempty"`
	// Route is the identity that has the name; empty is the one that declared it
	// first.
	Route string `json:"route,omitempty"`
	// Auto: Route was noted by a router, since several identities declare the
	// name, and holds for as long as that identity is known to serve it.
	Auto   bool   `json:"auto,omitempty"`
	Limits Limits `json:"limits,omitzero"`
	// By is who decided last, At when, in milliseconds since 1970.
	By string `json:"by,omitempty"`
	At int64  `json:"at,omitempty"`
	// Nonce tells one write from all others.
	Nonce string `json:"nonce,omitempty"`
}

// Limits are an operator's bounds of a tool's calls. They only tighten what the
// tool declares; 0 leaves it.
type Limits struct {
	// Concurrency is how many calls a dispatcher runs on one instance at once.
	Concurrency int   `json:"concurrency,omitempty"`
	TimeoutMs   int64 `json:"timeoutMs,omitempty"`
}

// Off reports whether the tool cannot be called because of an operator.
func (s *Setting) Off() bool { return s.Disabled || s.Retired }

// apply holds a declaration to the limits.
func (l Limits) apply(d *frames.Declaration) *frames.Declaration {
	limit := time.Duration(l.TimeoutMs) * time.Millisecond
	if l.TimeoutMs <= 0 || d.Timeout() <= limit {
		return d
	}
	held := *d
	held.TimeoutMs = &l.TimeoutMs
	return &held
}

// slots gives how many calls an instance may run at once; 0 is no limit.
func (l Limits) slots(declared int) int {
	if l.Concurrency > 0 && (declared == 0 || l.Concurrency < declared) {
		return l.Concurrency
	}
	return declared
}

// kept is a setting with the number of its revision.
type kept struct {
	Setting
	revision uint64
}

// settingFrom reads a stored setting; nothing stored is nothing decided.
func settingFrom(data []byte) (s Setting, err error) {
	if len(data) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return Setting{}, err
	}
	return s, nil
}

// set takes what was decided about a tool, unless something newer is known.
func (c *catalogue) set(tool string, revision uint64, s Setting) {
	c.change(false, func(ch *changes) {
		if revision <= c.settings[tool].revision {
			return
		}
		c.settings[tool] = kept{s, revision}
		ch.add(tool)
	})
}

// setting gives what is decided about a tool.
func (c *catalogue) setting(tool string) Setting {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.settings[tool].Setting
}

// contest is a name whose owner is to be noted, or no longer, where owner is empty.
type contest struct{ owner, was string }

// contend asks a keeper to note who has a name that several identities declare,
// so that all dispatchers, those that start later too, give it to the same one.
func (c *catalogue) contend(name string) {
	if c.settings[name].Route != "" || c.owners[name] == "" {
		return
	}
	for in := range c.serving[name] {
		if in.Identity != c.owners[name] {
			c.note(name, contest{owner: c.owners[name]})
			return
		}
	}
}

func (c *catalogue) note(name string, n contest) {
	c.contests[name] = n
	select {
	case c.contested <- struct{}{}:
	default:
	}
}

// unpin forgets who a name was noted for, as nobody serves it for that identity.
func (c *catalogue) unpin(name string) {
	k := c.settings[name]
	if !k.Auto {
		return
	}
	c.note(name, contest{was: k.Route})
	k.Route, k.Auto = "", false
	c.settings[name] = k
}

// noteAgain keeps a note for the next time, unless there is a newer one.
func (c *catalogue) noteAgain(name string, n contest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, newer := c.contests[name]; !newer {
		c.contests[name] = n
	}
}

// takeContests gives the names that are to be noted.
func (c *catalogue) takeContests() map[string]contest {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.contests
	c.contests = map[string]contest{}
	return out
}
