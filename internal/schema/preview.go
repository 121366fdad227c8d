package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/jsontext"
)

const (
	// maxPreview bounds one value in a message, in bytes.
	maxPreview = 80
	// maxListed bounds how many names or values a message lists.
	maxListed = 20
	// maxList bounds such a list, in bytes.
	maxList = 400
)

// preview shows a decoded value in one bounded line. A container shows its
// shape only.
func preview(v any) string {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return "an empty object"
		}
		return "an object with " + keyList(slices.Sorted(maps.Keys(v)))
	case []any:
		return "an array of " + count(len(v), "item")
	case string:
		if len(v) > maxPreview {
			return quote(v) + " (" + count(utf8.RuneCountInString(v), "character") + ")"
		}
		return quote(v)
	}
	return literal(v)
}

// typed is preview with the type of a string or number before it.
func typed(v any) string {
	switch v.(type) {
	case string:
		return "string " + preview(v)
	case json.Number:
		return "number " + preview(v)
	}
	return preview(v)
}

// literal shows a value as JSON, bounded.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case json.Number:
		return jsontext.Clip(string(v), maxPreview)
	}
	return jsontext.Clip(encode(v), maxPreview)
}

// quote shows text as a JSON string of one bounded line; what is cut ends in "…".
func quote(s string) string {
	return encode(jsontext.Clip(s, maxPreview))
}

// encode writes a decoded value as JSON that people can read.
func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprintf("%T", v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// keyList names an object's keys.
func keyList(keys []string) string {
	noun := "key "
	if len(keys) > 1 {
		noun = "keys "
	}
	return noun + listed(keys, quote)
}

// listed joins what show makes of each, bounded; it says how many it left out.
func listed[T any](all []T, show func(T) string) string {
	var b strings.Builder
	for i, v := range all {
		text := show(v)
		if i == maxListed || i > 0 && b.Len()+len(text) > maxList {
			fmt.Fprintf(&b, " and %d more", len(all)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(text)
	}
	return b.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// decimal writes a number of a schema without rounding, bounded.
func decimal(r *big.Rat) string {
	if r.IsInt() {
		return jsontext.Clip(r.Num().String(), maxPreview)
	}
	digits, exact := r.FloatPrec()
	if !exact {
		return jsontext.Clip(r.RatString(), maxPreview)
	}
	return jsontext.Clip(r.FloatString(digits), maxPreview)
}

func orRoot(path string) string {
	if path == "" {
		return "(root)"
	}
	return path
}

// oneLine makes text that holds a caller's keys safe to stand in a list of lines.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}
