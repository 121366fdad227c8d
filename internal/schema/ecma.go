package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
)

// ecmaEscapes are escapes that JSON Schema's regular expressions have and RE2
// writes otherwise; the first alternative steps over escapes that are the same.
var ecmaEscapes = regexp.MustCompile(`\\(?:` +
	`u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})` +
	`|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,8})\}` +
	`|c([A-Za-z])` +
	`|([pP])\{(?:Script|sc|Script_Extensions|scx|General_Category|gc)=([A-Za-z_]+)\}` +
	`|(?s:.))`)

// fromECMA rewrites what RE2 can say in other words. All that it cannot say, such
// as look-around, back-references and halves of surrogate pairs, stays and is
// refused when the pattern is compiled: another engine could be kept busy for
// ever by a tool's pattern.
func fromECMA(source string) string {
	if !strings.ContainsRune(source, '\\') {
		return source
	}
	return ecmaEscapes.ReplaceAllStringFunc(source, func(escape string) string {
		switch m := ecmaEscapes.FindStringSubmatch(escape); {
		case m[1] != "":
			return runeEscape(utf16.DecodeRune(hexRune(m[1]), hexRune(m[2])))
		case m[3] != "" && utf16.IsSurrogate(hexRune(m[3])):
			return escape
		case m[3] != "", m[4] != "":
			return runeEscape(hexRune(m[3] + m[4]))
		case m[5] != "":
			return runeEscape(rune(m[5][0] % 32))
		case m[6] != "":
			return `\` + m[6] + `{` + m[7] + `}`
		}
		return escape
	})
}

func runeEscape(r rune) string { return fmt.Sprintf(`\x{%X}`, r) }

// hexRune reads a number; one that is no rune is given as one that RE2 refuses.
func hexRune(digits string) rune {
	n, err := strconv.ParseInt(digits, 16, 32)
	if err != nil {
		return 0x7fffffff
	}
	return rune(n)
}
