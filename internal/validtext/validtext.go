// Package validtext makes valid UTF-8 of bytes that may be none.
package validtext

import "unicode/utf8"

// Cut gives the largest n of at most limit at which b can be cut without
// cutting a rune of valid UTF-8.
func Cut(b []byte, limit int) int {
	if limit >= len(b) {
		return len(b)
	}
	n := limit
	for n > 0 && limit-n < utf8.UTFMax && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

// Of gives b as valid UTF-8, U+FFFD for each bad byte, and their number.
func Of(b []byte) (string, int64) {
	if utf8.Valid(b) {
		return string(b), 0
	}
	var d Decoder
	return string(d.Flush(d.Decode(nil, b))), d.Invalid
}

// Decoder makes valid UTF-8 of bytes that arrive in pieces cut anywhere: a rune
// cut by a border is held back until it is whole, a bad byte becomes U+FFFD.
type Decoder struct {
	// Invalid counts the bad bytes so far.
	Invalid int64

	held [utf8.UTFMax]byte
	n    int
}

// Decode appends the text of p to dst.
func (d *Decoder) Decode(dst, p []byte) []byte {
	for d.n > 0 {
		for !utf8.FullRune(d.held[:d.n]) {
			if len(p) == 0 {
				return dst
			}
			d.held[d.n] = p[0]
			d.n++
			p = p[1:]
		}
		dst = d.release(dst)
	}
	whole := len(p) - unfinished(p)
	d.n = copy(d.held[:], p[whole:])
	return d.appendValid(dst, p[:whole])
}

// release moves the first rune, or the first bad byte, out of the held bytes.
func (d *Decoder) release(dst []byte) []byte {
	_, size := utf8.DecodeRune(d.held[:d.n])
	dst = d.appendValid(dst, d.held[:size])
	d.n = copy(d.held[:], d.held[size:d.n])
	return dst
}

// Flush appends what is still held, as bad bytes.
func (d *Decoder) Flush(dst []byte) []byte {
	dst = d.appendValid(dst, d.held[:d.n])
	d.n = 0
	return dst
}

func (d *Decoder) appendValid(dst, p []byte) []byte {
	if utf8.Valid(p) {
		return append(dst, p...)
	}
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		if r == utf8.RuneError && size == 1 {
			d.Invalid++
		}
		dst = utf8.AppendRune(dst, r)
		p = p[size:]
	}
	return dst
}

// unfinished is the length of the begun rune at the end of p.
func unfinished(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		tail := p[len(p)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
