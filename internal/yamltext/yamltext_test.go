package yamltext_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/internal/yamltext"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"b: 1\na: [x, 2.50, true, null]": `{"b":1,"a":["x",2.50,true,null]}`,
		`{"b": 9007199254740993}`:        `{"b":9007199254740993}`,
		"just words":                     `"just words"`,
		"text: |\n  two\n  lines\n":      `{"text":"two\nlines\n"}`,
		"big: 1e3\nhex: 0x10":            `{"big":1e3,"hex":16}`,
		"quoted: \"1.0\"":                `{"quoted":"1.0"}`,
		"# a comment\nkey: <&>":          `{"key":"<&>"}`,
	} {
		got, err := yamltext.JSON([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "there is nothing in it",
		"# only a comment":           "there is nothing in it",
		"a: 1\n---\nb: 2":            "more than one document",
		"a: &x 1\nb: *x":             "anchors",
		"a: !!binary aGk=":           "tags",
		"a: .nan":                    "NaN",
		"? [a]\n: b":                 "line 2",
		"a:\n\t- b":                  "line 2",
		"a: 'open":                   "line 1",
		strings.Repeat("[", 500_000): "nested too deep",
	} {
		got, err := yamltext.JSON([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %.40s, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{"a: 1", "- a\n- {b: c}", "a: &x [*x]", "!!seq a", "a: |\n b", "<<: {a: 1}", "? a", "a: 1e5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := yamltext.JSON([]byte(text))
		if err == nil && !json.Valid(got) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
