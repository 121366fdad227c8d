package scripted

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/weavebus/weavebus/pkg/provider"
)

// The demo lists the workspace, reads one or two of its files at once, runs one
// harmless command, and sums up what the tools gave back. What it does next
// follows from the messages alone.

const (
	listTool    = "read_file"
	commandTool = "run_command"
	countFiles  = "find . -type f -not -path './.git/*' | head -n 100000 | wc -l"
)

// demoTurn plans the turn that answers the request.
func demoTurn(req *provider.Request) (*Turn, int) {
	s := readScene(req)
	turn := s.next(req)
	for _, m := range req.Messages {
		turn.Usage.InputTokens += tokens(m.Content())
	}
	turn.Usage.OutputTokens = tokens(strings.Join(turn.Text, ""))
	return turn, (&Script{}).played(req.Messages)
}

// tokens counts about as a model would: four bytes each.
func tokens(text string) int64 { return int64(len(text)+3) / 4 }

func (s *scene) next(req *provider.Request) *Turn {
	switch {
	case s.mayCall(req, listTool) && s.listing == nil:
		return act("I will look at the folder first.", call(listTool, listArguments(req.Tools)))
	case s.mayCall(req, listTool) && len(s.reads) == 0 && len(s.picks()) > 0:
		return s.readPicks()
	case s.mayCall(req, commandTool) && s.command == nil:
		return act("One command will count the files.", call(commandTool, map[string]string{"command": countFiles}))
	}
	return &Turn{Text: words(s.answer(req))}
}

func (s *scene) readPicks() *Turn {
	picks := s.picks()
	calls := make([]Call, len(picks))
	for i, name := range picks {
		calls[i] = call(listTool, map[string]string{"path": name})
	}
	return act("I will read "+strings.Join(picks, " and ")+".", calls...)
}

func act(text string, calls ...Call) *Turn { return &Turn{Text: words(text), Calls: calls} }

func call(name string, arguments map[string]string) Call {
	text, err := json.Marshal(arguments)
	if err != nil {
		text = []byte("{}") // strings always marshal
	}
	return Call{Name: name, Arguments: []string{string(text)}}
}

// listArguments leaves the path out, unless the tool wants one.
func listArguments(tools []provider.Tool) map[string]string {
	var schema struct {
		Required []string `json:"required"`
	}
	for _, t := range tools {
		if t.Name == listTool && json.Unmarshal(t.Schema, &schema) == nil && slices.Contains(schema.Required, "path") {
			return map[string]string{"path": "."}
		}
	}
	return map[string]string{}
}

// mayCall reports whether the request has the tool, and lets it be called.
func (s *scene) mayCall(req *provider.Request, name string) bool {
	return req.ToolChoice.Mode != provider.ChoiceNone &&
		slices.ContainsFunc(req.Tools, func(t provider.Tool) bool { return t.Name == name })
}

// words cuts a text into chunks of a few words.
func words(text string) []string {
	const each = 3
	var out []string
	for chunk := range slices.Chunk(strings.SplitAfter(text, " "), each) {
		out = append(out, strings.Join(chunk, ""))
	}
	return out
}

// picks names the files to read: those that the question names, else the most
// telling ones.
func (s *scene) picks() []string {
	const most = 2
	if s.listing == nil {
		return nil
	}
	var files []string
	for _, e := range s.listing.entries {
		if e.readable() {
			files = append(files, e.Name)
		}
	}
	asked := fileWords(s.question)
	slices.SortStableFunc(files, func(a, b string) int { return rank(a, asked) - rank(b, asked) })
	files = slices.DeleteFunc(files, func(name string) bool { return rank(name, asked) == rankNever })
	return files[:min(most, len(files))]
}

// fileWords gives the words of a text that may be file names, in lower case.
func fileWords(text string) []string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
	})
	for i, word := range words {
		words[i] = strings.TrimRight(word, ".")
	}
	return words
}

const (
	rankAsked = iota
	rankReadme
	rankManifest
	rankText
	rankNever
)

var manifests = []string{
	"go.mod", "package.json", "pyproject.toml", "cargo.toml", "pom.xml", "build.gradle", "gemfile",
	"composer.json", "mix.exs", "makefile", "dockerfile", "setup.py", "requirements.txt",
}

var textExtensions = []string{
	".md", ".txt", ".rst", ".go", ".py", ".js", ".ts", ".rs", ".java", ".c", ".h", ".cpp", ".rb", ".sh",
	".json", ".yaml", ".yml", ".toml", ".ini", ".xml", ".html", ".css", ".csv", ".sql", ".log",
}

func rank(name string, asked []string) int {
	lower := strings.ToLower(name)
	switch {
	case slices.Contains(asked, lower):
		return rankAsked
	case strings.HasPrefix(lower, "readme"):
		return rankReadme
	case slices.Contains(manifests, lower):
		return rankManifest
	case strings.HasPrefix(lower, "."):
		return rankNever
	case slices.Contains(textExtensions, path.Ext(lower)):
		return rankText
	}
	return rankNever
}
