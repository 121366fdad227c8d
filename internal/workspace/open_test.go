package workspace

import (
	"os"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: P28
func TestOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	equal(t, "name", b.Name(), "work")
	equal(t, "dir", b.Dir(), b.at("work"))
	equal(t, "key's length", len(b.PathKey()), len("path:")+64)
	ok(t, os.Symlink("work", b.at("alias")))
	w, err := Open(b.at("alias/./"), WithName("mine"))
	ok(t, err)
	defer func() { ok(t, w.Close()) }()
	equal(t, "name", w.Name(), "mine")
	equal(t, "dir", w.Dir(), b.at("alias"))
	b.put(t, "a", "text")
	for _, path := range []string{b.at("alias/a"), b.at("work/a")} {
		res, err := w.ReadFile(t.Context(), ReadRequest{Path: path})
		ok(t, err)
		equal(t, "path", res.Path, "a")
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "file", "")
	tests := map[string]struct {
		dir    string
		opt    Option
		code   frames.Code
		reason string
	}{
		"missing":    {b.at("nowhere"), nil, frames.CodeNotFound, ReasonNotFound},
		"a file":     {b.at("work/file"), nil, frames.CodeValidationInput, ReasonNotDirectory},
		"blank":      {" ", nil, frames.CodeValidationInput, ReasonEmptyPath},
		"blank name": {b.at("work"), WithName(" "), frames.CodeValidationInput, "invalid_option"},
		"read":       {b.at("work"), WithReadLimits(0, 1), frames.CodeValidationInput, "invalid_option"},
		"list":       {b.at("work"), WithListLimit(0), frames.CodeValidationInput, "invalid_option"},
		"output":     {b.at("work"), WithOutputLimit(-1), frames.CodeValidationInput, "invalid_option"},
		"variable":   {b.at("work"), WithAllowedEnv("*"), frames.CodeValidationInput, "invalid_option"},
		"extension":  {b.at("work"), WithExtensions("a/b"), frames.CodeValidationInput, "invalid_option"},
	}
	for name, tt := range tests {
		var opts []Option
		if tt.opt != nil {
			opts = append(opts, tt.opt)
		}
		_, err := Open(tt.dir, opts...)
		e := frames.AsError(err)
		if e == nil || e.Code != tt.code || e.Reason != tt.reason || strings.Contains(e.ForModel(), b.base) {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

// contract: P33
func TestExtensions(t *testing.T) {
	t.Parallel()
	s := defaults()
	ok(t, WithExtensions(".js", "MD", ".")(&s))
	for name, want := range map[string]bool{
		"a.js": true, "a.JS": true, "dir.x/a.Md": true, "a.min.js": true,
		"a.ts": false, "js": true, "Makefile": true, ".env": true, ".env.js": true, "a.": true, "a.js.exe": false,
	} {
		equal(t, name, s.permits(name), want)
	}
	ok(t, WithExtensions("js")(&s))
	equal(t, "without an extension", s.permits("Makefile"), false)
	ok(t, WithExtensions()(&s))
	equal(t, "an empty list", s.permits("a.exe"), true)
}
