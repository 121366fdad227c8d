package export

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// shortHash and longHash are how many digits of a name's hash stand in for it:
// the long form only where two names have the same short one.
const (
	shortHash = 10
	longHash  = 32
	hashMark  = "_x"
)

// Names maps the own names of tools to those that a provider takes, and back. A
// name that fits the provider's rule stays as it is; another is cut to what fits,
// with a hash of the own name behind it. So the mapped name depends on the own
// name alone: it stays the same when tools come and go. It does not change and may
// be shared between goroutines.
type Names struct {
	rule rule
	wire map[string]string
	own  map[string]string
}

// NewNames maps names for a format. The error is VALIDATION_INPUT for a name that
// is empty or stands twice.
func NewNames(f Format, own []string) (*Names, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	for i, name := range own {
		if name == "" {
			return nil, frames.NewError(frames.CodeValidationInput, "tool %d has no name", i)
		}
	}
	n := mapNames(f.names(), own)
	if len(n.wire) < len(own) {
		return nil, frames.NewError(frames.CodeValidationInput, "two tools are called %q", clip(twice(own), 64))
	}
	return n, nil
}

func twice(names []string) string {
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return name
		}
		seen[name] = true
	}
	return ""
}

// mapNames maps each name to a short form; all those that would share one have
// the long form instead, so that none depends on the order of names.
func mapNames(r rule, own []string) *Names {
	n := &Names{rule: r, wire: make(map[string]string, len(own)), own: make(map[string]string, len(own))}
	short := make(map[string]string, len(own))
	shared := map[string]bool{}
	for _, name := range own {
		w := r.wire(name, shortHash)
		if first, ok := short[w]; ok && first != name {
			shared[w] = true
		}
		short[w] = name
	}
	for _, name := range own {
		w := r.wire(name, shortHash)
		if shared[w] {
			w = r.wire(name, longHash)
		}
		n.wire[name], n.own[w] = w, name
	}
	return n
}

// Wire gives the name that a provider is told. A name that is not one of the
// mapped ones, of an earlier call for example, has one too.
func (n *Names) Wire(own string) string {
	if w, ok := n.wire[own]; ok {
		return w
	}
	return n.rule.wire(own, shortHash)
}

// Own gives the own name of what a provider said. A model that says the own name
// itself is understood; ok is false for a name that no tool has, which comes back
// as it is.
func (n *Names) Own(wire string) (own string, ok bool) {
	if own, ok = n.own[wire]; ok {
		return own, true
	}
	_, ok = n.wire[wire]
	return wire, ok
}

// Changed gives the mapped names that differ from the own ones, by mapped name.
func (n *Names) Changed() map[string]string {
	out := map[string]string{}
	for w, own := range n.own {
		if w != own {
			out[w] = own
		}
	}
	return out
}

// wire gives the form of a name with so many digits of its hash, where it needs
// one. A name that looks like such a form gets one too: else a tool could take
// the place of another by its name.
func (r rule) wire(name string, digits int) string {
	if r.fits(name) && (r.max == 0 || digits == shortHash && !looksHashed(name)) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	tail := hashMark + hex.EncodeToString(sum[:])[:digits]
	head := r.head(name)
	if most := r.max - len(tail); len(head) > most {
		head = head[:most]
	}
	return head + tail
}

// head gives what fits of a name; of each run of others one _ is left.
func (r rule) head(name string) string {
	var b strings.Builder
	for i := 0; i < len(name) && b.Len() < r.max; i++ {
		switch c := name[i]; {
		case r.allows(c):
			b.WriteByte(c)
		case !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	head := b.String()
	switch {
	case strings.Trim(head, "_") == "":
		return "tool"
	case r.letter && !isLetter(head[0]):
		return "_" + head
	}
	return head
}

func looksHashed(name string) bool {
	for _, digits := range []int{shortHash, longHash} {
		at := len(name) - digits
		if at < len(hashMark) || name[at-len(hashMark):at] != hashMark {
			continue
		}
		if strings.Trim(name[at:], "0123456789abcdef") == "" {
			return true
		}
	}
	return false
}

// clip bounds a foreign word for a message.
func clip(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
