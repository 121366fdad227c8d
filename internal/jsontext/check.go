package jsontext

import (
	"bytes"
	"math"
)

// maxText is the longest text in bytes: offsets are kept in 32 bits.
const maxText = math.MaxInt32

var byteOrderMark = []byte("\xef\xbb\xbf")

// Check reads text once and gives its first problem, or nil: it is then exactly
// one JSON value that keeps the limits, is valid UTF-8 throughout and repeats no
// key. All that Check accepts, encoding/json accepts too. It allocates nothing
// for sound texts whose objects have at most 16 keys.
func Check(text []byte, limits Limits) *Problem {
	s := scanner{text: text, limits: limits.filled()}
	if len(text) >= maxText {
		return s.fail(TooLong, 0, "the text is 2 GiB or longer")
	}
	return s.document()
}

// span is a part of the text; a key's span includes its quotes.
type span struct {
	start, end int32
	escaped    bool
}

// level is an open array or object.
type level struct {
	object bool
	index  int32 // of the item being read
	key    span  // of the member being read; end 0: none yet
	keys   int32 // where this object's keys begin in scanner.keys
	set    int32 // index + 1 in scanner.sets, once it has many keys
}

type scanner struct {
	text   []byte
	at     int
	nodes  int
	depth  int
	nkeys  int
	limits Limits
	levels [MaxDepth]level
	keys   [maxKeys]span
	sets   []map[string]struct{}
}

func (s *scanner) fail(k Kind, offset int, reason string) *Problem {
	return &Problem{Kind: k, Offset: offset, Path: s.path(), Reason: reason}
}

func (s *scanner) document() *Problem {
	s.space()
	if s.at == len(s.text) {
		return s.fail(Empty, s.at, "there is no JSON value")
	}
	if bytes.HasPrefix(s.text[s.at:], byteOrderMark) {
		return s.fail(Syntax, s.at, "the text begins with a byte order mark")
	}
	for {
		inside, p := s.value()
		for p == nil && !inside {
			if s.depth == 0 {
				return s.tail()
			}
			inside, p = s.next()
		}
		if p != nil {
			return p
		}
	}
}

// tail proves that only white space follows the document's value.
func (s *scanner) tail() *Problem {
	s.space()
	if s.at < len(s.text) {
		return s.fail(Trailing, s.at, "something follows the JSON value: "+s.found())
	}
	return nil
}

// value reads a scalar or an empty container whole; inside says that it opened
// a container instead and stands before the first value in it.
func (s *scanner) value() (inside bool, p *Problem) {
	s.space()
	if s.nodes++; s.nodes > s.limits.Nodes {
		return false, s.fail(TooMany, s.at, "there are more values than the limit of "+decimal(s.limits.Nodes))
	}
	if s.at == len(s.text) {
		return false, s.unfinished()
	}
	switch c := s.text[s.at]; c {
	case '{', '[':
		return s.open(c == '{')
	case '"':
		_, p = s.str()
	case 't':
		p = s.word("true")
	case 'f':
		p = s.word("false")
	case 'n':
		p = s.word("null")
	default:
		if c != '-' && !digit(c) {
			return false, s.expected("a value")
		}
		p = s.number()
	}
	return false, p
}

func (s *scanner) open(object bool) (inside bool, p *Problem) {
	if s.depth == s.limits.Depth {
		return false, s.fail(TooDeep, s.at, "nested deeper than the limit of "+decimal(s.limits.Depth))
	}
	s.levels[s.depth] = level{object: object, keys: int32(s.nkeys)}
	s.depth++
	s.at++
	s.space()
	if s.at < len(s.text) && s.text[s.at] == closer(object) {
		s.close()
		return false, nil
	}
	if object {
		return true, s.key()
	}
	return true, nil
}

// next reads what follows a value in a container: a comma (and the next key),
// or the end of the container, which is a value's end too.
func (s *scanner) next() (inside bool, p *Problem) {
	s.space()
	l := &s.levels[s.depth-1]
	if s.at == len(s.text) {
		return false, s.unfinished()
	}
	switch s.text[s.at] {
	case closer(l.object):
		s.close()
		return false, nil
	case ',':
		s.at++
	default:
		return false, s.expected("a comma or " + string(closer(l.object)))
	}
	if l.object {
		s.space()
		return true, s.key()
	}
	l.index++
	return true, nil
}

func (s *scanner) close() {
	s.depth--
	s.nkeys = int(s.levels[s.depth].keys)
	if set := s.levels[s.depth].set; set > 0 {
		s.sets = s.sets[:set-1]
	}
	s.at++
}

// key reads a member's key and its colon.
func (s *scanner) key() *Problem {
	l := &s.levels[s.depth-1]
	l.key = span{}
	if s.at == len(s.text) {
		return s.unfinished()
	}
	if s.text[s.at] != '"' {
		return s.expected("a key in double quotes")
	}
	k, p := s.str()
	if p != nil {
		return p
	}
	l.key = k
	if p := s.remember(l, k); p != nil {
		return p
	}
	s.space()
	if s.at == len(s.text) {
		return s.unfinished()
	}
	if s.text[s.at] != ':' {
		return s.expected("a colon")
	}
	s.at++
	return nil
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func closer(object bool) byte {
	if object {
		return '}'
	}
	return ']'
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
