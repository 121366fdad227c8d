package jsontext

import "bytes"

const (
	// maxKeys is how many keys of all open objects are kept without allocating.
	maxKeys = 256
	// fewKeys is up to where an object's keys are compared one by one.
	fewKeys = 16
)

// remember keeps the key k of the innermost object, or gives the problem that
// it was there before.
func (s *scanner) remember(l *level, k span) *Problem {
	own := s.keys[l.keys:s.nkeys]
	if l.set == 0 && (len(own) == fewKeys || s.nkeys == maxKeys) {
		s.useSet(l, own)
	}
	if l.set > 0 {
		set, key := s.sets[l.set-1], s.keyBytes(k)
		if _, dup := set[string(key)]; dup {
			return s.duplicate(k)
		}
		set[string(key)] = struct{}{}
		return nil
	}
	for _, other := range own {
		if s.sameKey(other, k) {
			return s.duplicate(k)
		}
	}
	s.keys[s.nkeys] = k
	s.nkeys++
	return nil
}

func (s *scanner) useSet(l *level, own []span) {
	set := make(map[string]struct{}, 4*fewKeys)
	for _, k := range own {
		set[string(s.keyBytes(k))] = struct{}{}
	}
	s.sets = append(s.sets, set)
	l.set = int32(len(s.sets))
	s.nkeys = int(l.keys)
}

func (s *scanner) duplicate(k span) *Problem {
	name := Clip(string(s.keyBytes(k)), 64)
	return s.fail(DuplicateKey, int(k.start), `duplicate key "`+name+`"`)
}

func (s *scanner) sameKey(a, b span) bool {
	if !a.escaped && !b.escaped {
		return bytes.Equal(s.text[a.start:a.end], s.text[b.start:b.end])
	}
	return bytes.Equal(s.keyBytes(a), s.keyBytes(b))
}

// keyBytes is the key as it reads once its escapes are resolved.
func (s *scanner) keyBytes(k span) []byte {
	if !k.escaped {
		return s.text[k.start+1 : k.end-1]
	}
	return []byte(Unquote(s.text[k.start:k.end]))
}
