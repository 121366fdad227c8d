package jsontext

// The limits that hold where a [Limits] field is zero, and the deepest nesting
// that can be asked for.
const (
	DefaultDepth    = 64
	DefaultNodes    = 65_536
	DefaultDigits   = 1_000
	DefaultExponent = 400
	MaxDepth        = 128
)

// Limits bound a text beyond JSON's grammar. A zero field stands for its
// default, a negative one for no limit (Depth: for [MaxDepth]).
type Limits struct {
	// Depth of arrays and objects inside each other. Default 64, at most 128.
	Depth int
	// Nodes is how many values there may be, containers included. Default 65,536.
	Nodes int
	// Digits of one number literal, those of its exponent included. Default 1,000.
	Digits int
	// Exponent is the greatest magnitude of a literal's exponent. Default 400.
	Exponent int
}

func (l Limits) filled() Limits {
	l.Depth = min(bound(l.Depth, DefaultDepth), MaxDepth)
	l.Nodes = bound(l.Nodes, DefaultNodes)
	l.Digits = bound(l.Digits, DefaultDigits)
	l.Exponent = bound(l.Exponent, DefaultExponent)
	return l
}

func bound(set, standard int) int {
	switch {
	case set == 0:
		return standard
	case set < 0:
		return maxText
	}
	return set
}
