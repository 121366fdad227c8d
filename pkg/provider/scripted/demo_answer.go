package scripted

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/weavebus/weavebus/pkg/provider"
)

// answer sums up what the tools gave, failures included.
func (s *scene) answer(req *provider.Request) string {
	var out []string
	if s.turns > 1 {
		out = append(out, "You asked: "+quote(s.question)+".")
	}
	facts := s.facts()
	if len(facts) == 0 {
		return strings.Join(append(out, s.nothing(req)), " ")
	}
	return strings.Join(append(out, facts...), " ")
}

func (s *scene) facts() []string {
	var out []string
	if s.listing != nil {
		out = append(out, s.listing.tell())
	}
	for i := range s.reads {
		out = append(out, s.reads[i].tell())
	}
	if s.command != nil {
		out = append(out, s.command.count())
	}
	return out
}

// nothing answers when no tool was called.
func (s *scene) nothing(req *provider.Request) string {
	why := "none of the tools that I was given can list a folder or run a command"
	if len(req.Tools) == 0 || req.ToolChoice.Mode == provider.ChoiceNone {
		why = "I have no tools in this conversation"
	}
	if s.question == "" {
		return "I cannot look at the folder: " + why + "."
	}
	return "You asked: " + quote(s.question) + ". I cannot look at the folder: " + why + "."
}

// trouble tells of a call without a good result; empty if it has one.
func (o *outcome) trouble(what string) string {
	switch {
	case !o.answered:
		return what + " gave no result."
	case o.failed:
		return what + " failed: " + quote(o.why()) + "."
	}
	return ""
}

// why gives the words of a failure: of a command's stderr, of an error in the
// result, or the first line of the text.
func (o *outcome) why() string {
	var result struct {
		Stderr  string `json:"stderr"`
		Message string `json:"message"`
		Error   any    `json:"error"`
	}
	if json.Unmarshal([]byte(o.text), &result) != nil {
		return firstLine(o.text)
	}
	text, _ := result.Error.(string)
	for _, words := range []string{result.Stderr, result.Message, text} {
		if line := firstLine(words); line != "" {
			return line
		}
	}
	return firstLine(o.text)
}

func (l *listing) tell() string {
	if trouble := l.trouble("Listing the folder"); trouble != "" {
		return trouble
	}
	if len(l.entries) == 0 {
		if !strings.Contains(l.text, `"files"`) {
			return "The listing cannot be read: " + quote(firstLine(l.text)) + "."
		}
		return "This folder is empty."
	}
	return "This folder holds " + l.contents() + "."
}

// contents names the entries by their kind.
func (l *listing) contents() string {
	var files, folders, others []string
	for i := range l.entries {
		switch e := &l.entries[i]; {
		case e.folder():
			folders = append(folders, plain(strings.TrimSuffix(e.Name, "/"))+"/")
		case e.file():
			files = append(files, plain(e.Name))
		default:
			others = append(others, plain(e.Name))
		}
	}
	out := join(join(some(files, "file"), some(folders, "folder")), some(others, "special file"))
	if missing := l.total - len(l.entries); missing > 0 {
		out += fmt.Sprintf(", and %d more that the listing leaves out", missing)
	}
	return out
}

// some names up to 20 things: "2 files (a, b)".
func some(names []string, what string) string {
	const most = 20
	n := len(names)
	if n == 0 {
		return ""
	}
	if n != 1 {
		what += "s"
	}
	more := ""
	if n > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", n-most)
	}
	return fmt.Sprintf("%d %s (%s%s)", n, what, strings.Join(names, ", "), more)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " and " + b
}

func (r *read) tell() string {
	name := plain(r.path)
	if trouble := r.trouble("Reading " + name); trouble != "" {
		return trouble
	}
	text := r.content()
	if telling := manifest(path.Base(strings.ToLower(r.path)), text); telling != "" {
		return name + " " + telling + "."
	}
	if line := heading(text); line != "" {
		return name + " begins: " + quote(line) + "."
	}
	return name + " has no text."
}

// manifest tells what a well-known file says; empty if it is not known.
func manifest(base, text string) string {
	switch base {
	case "go.mod":
		for line := range strings.Lines(text) {
			if module, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
				return "declares the Go module " + plain(module)
			}
		}
	case "package.json":
		var p struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		}
		if json.Unmarshal([]byte(text), &p) == nil && p.Name != "" {
			return strings.TrimSuffix("declares the package "+plain(p.Name)+": "+plain(p.Description), ": ")
		}
	}
	return ""
}

// heading gives the first line with words that is no badge or markup, without
// the signs of a heading.
func heading(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if hasWords(line) && !strings.HasPrefix(line, "<") && !strings.HasPrefix(line, "[!") {
			return strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return ""
}

func hasWords(line string) bool {
	return strings.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// count tells what the counting command said.
func (o *outcome) count() string {
	if trouble := o.trouble("Counting the files"); trouble != "" {
		return trouble
	}
	line := firstLine(o.stdout())
	n, err := strconv.Atoi(line)
	switch {
	case err != nil:
		return "Counting the files gave " + quote(line) + "."
	case n == 1:
		return "With its sub-folders there is 1 file."
	}
	return fmt.Sprintf("With its sub-folders there are %d files.", n)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

func quote(text string) string { return "“" + plain(text) + "”" }

// plain makes a foreign text one bounded line.
func plain(text string) string {
	const most = 160
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return bounded(strings.ToValidUTF8(text, "\uFFFD"), most)
}
