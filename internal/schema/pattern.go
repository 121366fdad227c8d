package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxPattern is the longest regular expression in bytes.
	maxPattern = 4 << 10
	// maxProgram bounds the instructions of all patterns of one schema: a
	// repetition like x{1000} makes a short pattern a large program, at some
	// 500 bytes an instruction while it is made.
	maxProgram = 50_000
)

// pattern is a regular expression that charges its cost to the meter.
type pattern struct {
	source string
	re     *regexp.Regexp
	size   int
	work   *meter
}

// badPattern is the first pattern that did not compile.
type badPattern struct {
	source string
	err    error
}

// String gives the pattern as the schema has it.
func (p *pattern) String() string { return p.source }

// MatchString reports whether s holds a match.
func (p *pattern) MatchString(s string) bool {
	p.work.spend(1 + len(s)*p.size/16)
	return p.re.MatchString(s)
}

// pattern is the compiler's regular expression engine.
func (c *compilation) pattern(source string) (jsonschema.Regexp, error) {
	if p, ok := c.patterns[source]; ok {
		return p, nil
	}
	p, err := compilePattern(source, maxProgram-c.size)
	if err != nil {
		if c.broken == nil {
			c.broken = &badPattern{source, err}
		}
		return nil, err
	}
	c.size += p.size
	p.work = c.work
	c.patterns[source] = p
	return p, nil
}

func compilePattern(source string, room int) (*pattern, error) {
	if len(source) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes, more than the limit of %d", len(source), maxPattern)
	}
	text := fromECMA(source)
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := programSize(tree)
	if size > room {
		return nil, errors.New("it repeats too much, or the schema's patterns together do")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{source: source, re: re, size: size}, nil
}

// programSize is about how many instructions a parsed pattern becomes; parsed,
// a repetition is still one node.
func programSize(tree *syntax.Regexp) int {
	size := 1 + len(tree.Rune)/8
	if tree.Op == syntax.OpLiteral {
		size = len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		size += programSize(sub)
	}
	if tree.Op == syntax.OpRepeat {
		size = 1 + (size-1)*max(1, tree.Min, tree.Max)
	}
	return min(size, maxProgram+1)
}
