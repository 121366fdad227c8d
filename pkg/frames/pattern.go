package frames

import (
	"path"
	"strings"
)

// ValidPattern reports whether s is a tool's name, or a pattern of one, in which
// * stands for any letters and ? for one.
func ValidPattern(s string) bool {
	return ValidName(strings.NewReplacer("*", "x", "?", "x").Replace(s))
}

// MatchName reports whether a tool's name fits the pattern.
func MatchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
