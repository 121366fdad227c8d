package jsontext_test

import (
	"strings"
	"testing"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// agrees holds Check and the scan of JSON messages to one rule (docs/adr, 0010).
// They may differ about numbers only.
func agrees(t *testing.T, text []byte) {
	t.Helper()
	p, err := jsontext.Check(text, jsontext.Limits{}), frames.CheckJSON(text)
	if (p == nil) == (err == nil) || p != nil && p.Kind == jsontext.BigNumber || err != nil && strings.Contains(err.Error(), "number") {
		return
	}
	t.Fatalf("%.200q: %v, but in a message %v", text, p, err)
}

func TestOneRuleForMessagesAndTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, ` `, `{}`, "\ufeff{}", `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":"\ud800"}`, `{"a":"\ud83d\ude00"}`, "{\"a\":\"\xff\"}", "\"\x01\"",
		`[1,]`, `{"a":1,}`, `01`, `-`, `1.`, `1e`, `tru`, `nul`, `{"a" 1}`, `[1 2]`, `{}{}`, `"\x"`, `"\u12"`, "\"\x7f\"", `{"a":`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65),
		"[" + strings.TrimSuffix(strings.Repeat("0,", 65_535), ",") + "]", "[" + strings.TrimSuffix(strings.Repeat("0,", 65_536), ",") + "]",
		`1e308`, `1e400`, `1e401`, strings.Repeat("9", 1001),
	} {
		agrees(t, []byte(text))
	}
}

func FuzzOneRule(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-0.5e+3,"\ud83d\ude00",null,true],"b":{"":{}}}`, `[[[[`, `{"a":1,"a":2}`, "\"\xed\xa0\x80\"", `{"a":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(agrees)
}
