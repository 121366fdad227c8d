package frames

import "strconv"

// maxNumber is how long the text of a number may be: what reads numbers
// exactly takes much longer than their length to do it.
const maxNumber = 1 << 10

func (s *jsonScanner) number() *fault {
	n, isFloat := numberLen(s.data[s.pos:])
	if n == 0 {
		return s.broken("%s begins no value", s.here())
	}
	text := s.data[s.pos : s.pos+n]
	switch {
	case n > maxNumber:
		return s.fail("number of %d characters, the most is %d", n, maxNumber)
	case n > 18 || isFloat:
		if _, err := strconv.ParseFloat(string(text), 64); err != nil {
			return s.fail("number %s is out of range", shorten(string(text)))
		}
	}
	s.pos += n
	s.size += packedNumber(n, isFloat)
	return nil
}

// packedHeader gives how long the header of a string or a container of n is at
// most; less than short of them take one byte.
func packedHeader(n, short int) int {
	switch {
	case n < short:
		return 1
	case n < 1<<16:
		return 3
	}
	return 5
}

// packedNumber gives how long a number of n characters is at most.
func packedNumber(n int, isFloat bool) int {
	switch {
	case isFloat || n > 5:
		return 9
	case n > 3:
		return 5
	case n == 3:
		return 3
	}
	return n
}

// numberLen gives the length of the number that b begins with, 0 for none.
func numberLen(b []byte) (n int, isFloat bool) {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := digits(b[i:])
	if whole == 0 || (whole > 1 && b[i] == '0') {
		return 0, false
	}
	i += whole
	if i < len(b) && b[i] == '.' {
		fraction := digits(b[i+1:])
		if fraction == 0 {
			return 0, false
		}
		i, isFloat = i+1+fraction, true
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		exponent := exponentLen(b[i+1:])
		if exponent == 0 {
			return 0, false
		}
		i, isFloat = i+1+exponent, true
	}
	return i, isFloat
}

func exponentLen(b []byte) int {
	sign := 0
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		sign = 1
	}
	if n := digits(b[sign:]); n > 0 {
		return sign + n
	}
	return 0
}

func digits(b []byte) int {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}
