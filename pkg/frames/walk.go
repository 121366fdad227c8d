package frames

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Limits of a message, msgpack and JSON alike.
const (
	// MaxDepth is how deep maps and arrays may nest, the frame itself counted.
	MaxDepth = 64
	// MaxNodes is how many values one message may hold.
	MaxNodes = 1 << 16
	// MaxFrames is how many frames one message may hold.
	MaxFrames = 1 << 10
	// MaxKeys is how many keys a frame itself may have, and its metadata.
	MaxKeys = 1 << 10
	// MaxInline is the most that arguments, a result or a request may hold
	// inline, whatever the server allows; see [InlineLimit].
	MaxInline = 4 << 20
)

// InlineLimit gives how many bytes of arguments, result or request travel
// inline on a server with that max_payload.
func InlineLimit(maxPayload int64) int {
	return int(min(MaxInline, maxPayload/2))
}

// walk is what the scans of both encodings share: the position, the open maps
// and arrays, and the keys of the open maps.
type walk struct {
	data  []byte
	pos   int
	nodes int
	depth int
	stack [MaxDepth]level
	// The keys of all open maps: nkeys of them, in few, or in many once few was
	// too small.
	nkeys int
	few   [maxCompared]keyRef
	many  []keyRef
	// root is the key of the outermost map that is being read, where it is not
	// among the keys.
	root keyRef
	// unescaped holds the JSON keys that are not in data as they read.
	unescaped []byte
}

// level is one open map or array.
type level struct {
	isMap bool
	left  uint32 // values still to come, in msgpack
	index uint32 // values begun so far
	first uint32 // of the map's keys among walk.keys()
	seen  uint64 // a bit for each key's hash
}

// keyRef is a key's text: in data, or behind it in unescaped.
type keyRef struct{ off, n uint32 }

// maxCompared is how many keys of a map are compared one by one; the keys of
// larger maps are sorted.
const maxCompared = 32

func (w *walk) top() *level { return &w.stack[w.depth-1] }

func (w *walk) tooMany() *fault { return w.fail("more than %d values", MaxNodes) }

func (w *walk) push(isMap bool, values int) *fault {
	if w.depth == MaxDepth {
		return w.fail("nested deeper than %d", MaxDepth)
	}
	w.stack[w.depth] = level{isMap: isMap, left: uint32(values), first: uint32(w.nkeys)}
	w.depth++
	return nil
}

func (w *walk) pop() *fault {
	l := w.top()
	if l.isMap {
		if twice, found := w.duplicate(w.keys()[l.first:]); found {
			return w.failTwice(twice)
		}
		w.nkeys = int(l.first)
	}
	w.depth--
	return nil
}

// addKey notes a key of the innermost map; one that stands there already is
// refused here, or at the end of a large map.
func (w *walk) addKey(k keyRef, text []byte) *fault {
	l := w.top()
	bit := uint64(1) << (hashKey(text) & 63)
	if l.seen&bit != 0 && w.stands(text, w.keys()[l.first:]) {
		return w.failTwice(k)
	}
	l.seen |= bit
	if w.nkeys == w.room() {
		w.growKeys(w.moreKeys())
	}
	if w.many != nil {
		w.many = append(w.many[:w.nkeys], k)
	} else {
		w.few[w.nkeys] = k
	}
	w.nkeys++
	return nil
}

// stands looks among the keys of a small map.
func (w *walk) stands(text []byte, keys []keyRef) bool {
	return len(keys) < maxCompared && slices.ContainsFunc(keys, func(k keyRef) bool { return bytes.Equal(text, w.text(k)) })
}

func (w *walk) keys() []keyRef {
	if w.many != nil {
		return w.many[:w.nkeys]
	}
	return w.few[:w.nkeys]
}

func (w *walk) room() int { return max(cap(w.many), len(w.few)) }

// moreKeys gives for how many keys to make room in a text that does not tell:
// some, then as many as it may still hold.
func (w *walk) moreKeys() int {
	const some = 512
	if w.many == nil {
		return some
	}
	return min(bytes.Count(w.data[w.pos-1:], []byte{':'})+1, MaxNodes)
}

// growKeys makes room for n more keys.
func (w *walk) growKeys(n int) {
	if w.nkeys+n <= w.room() {
		return
	}
	many := make([]keyRef, w.nkeys, w.nkeys+n)
	copy(many, w.keys())
	w.many = many
}

func hashKey(k []byte) int {
	n := len(k)
	if n == 0 {
		return 0
	}
	return n*5 + int(k[0]) + int(k[n/2])*7 + int(k[n-1])*3
}

// duplicate looks for a key that stands twice among those of a large map.
func (w *walk) duplicate(keys []keyRef) (keyRef, bool) {
	if len(keys) <= maxCompared {
		return keyRef{}, false
	}
	slices.SortFunc(keys, func(a, b keyRef) int {
		return cmp.Or(bytes.Compare(w.text(a), w.text(b)), cmp.Compare(a.off, b.off))
	})
	for i := 1; i < len(keys); i++ {
		if bytes.Equal(w.text(keys[i-1]), w.text(keys[i])) {
			return keys[i], true
		}
	}
	return keyRef{}, false
}

func (w *walk) text(k keyRef) []byte {
	if int(k.off) < len(w.data) {
		return w.data[k.off : k.off+k.n]
	}
	off := k.off - uint32(len(w.data))
	return w.unescaped[off : off+k.n]
}

// key gives the key under which the open level i stands now; "" in an array.
func (w *walk) key(i int) []byte {
	if i == 0 && w.root.n > 0 {
		return w.text(w.root)
	}
	keys, end := w.keys(), w.nkeys
	if i+1 < w.depth {
		end = int(w.stack[i+1].first)
	}
	if l := w.stack[i]; l.isMap && end > int(l.first) {
		return w.text(keys[end-1])
	}
	return nil
}

func (w *walk) fail(format string, args ...any) *fault {
	return faultf(w.pos, w.path(w.depth), format, args...)
}

// failKey refuses a key of the innermost map; it is said of the map.
func (w *walk) failKey(format string, args ...any) *fault {
	return faultf(w.pos, w.path(w.depth-1), format, args...)
}

func (w *walk) failTwice(k keyRef) *fault {
	if int(k.off) < len(w.data) {
		w.pos = int(k.off)
	}
	return w.failKey("duplicate key %s", strconv.Quote(shorten(string(w.text(k)))))
}

// path gives the JSON Pointer of what the outermost levels hold now.
func (w *walk) path(levels int) string {
	var b strings.Builder
	for i := range levels {
		switch l := w.stack[i]; {
		case l.index == 0:
		case l.isMap:
			b.WriteString("/" + pointerEscape(shorten(string(w.key(i)))))
		default:
			b.WriteString("/" + strconv.Itoa(int(l.index-1)))
		}
	}
	return shortenTo(b.String(), 512)
}
