package scripted

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/provider"
)

// scene is what the calls since the last user message have brought.
type scene struct {
	question string
	turns    int // user messages
	listing  *listing
	reads    []read
	command  *outcome
}

// observation is a call of the model with its result.
type observation struct {
	name, path string
	outcome
}

// outcome is what a call gave back.
type outcome struct {
	text     string
	answered bool
	failed   bool
}

type listing struct {
	outcome
	entries []entry
	total   int // 0 if the tool does not say
}

type read struct {
	outcome
	path string
}

// entry is a file or folder of a listing.
type entry struct {
	Name string   `json:"name"`
	Type string   `json:"type"`
	Size *float64 `json:"size"`
}

func (e *entry) folder() bool {
	return strings.HasPrefix(e.Type, "dir") || e.Type == "folder" || strings.HasSuffix(e.Name, "/")
}

func (e *entry) file() bool { return (e.Type == "" || e.Type == "file") && !e.folder() }

func (e *entry) readable() bool {
	const most = 1 << 20
	return e.file() && (e.Size == nil || *e.Size > 0 && *e.Size <= most)
}

// stretch is what happened between one user message and the next.
type stretch struct {
	question string
	seen     []*observation
}

// readScene takes the calls since the last user message. With tools off there
// may be none, because the request to answer came as a user message of its own:
// then those before it count.
func readScene(req *provider.Request) *scene {
	stretches := readStretches(req.Messages)
	now := len(stretches) - 1
	if len(req.Tools) == 0 && now > 1 && len(stretches[now].seen) == 0 && len(stretches[now-1].seen) > 0 {
		now--
	}
	s := &scene{question: stretches[now].question, turns: now}
	s.sort(stretches[now].seen)
	return s
}

// readStretches gives what came before the first user message, then one stretch
// for each of them.
func readStretches(messages []provider.Message) []stretch {
	out := []stretch{{}}
	byID := map[string]*observation{}
	for i := range messages {
		m, last := &messages[i], &out[len(out)-1]
		switch m.Role {
		case provider.RoleUser:
			out = append(out, stretch{question: m.Content()})
		case provider.RoleAssistant:
			last.seen = append(last.seen, observed(m.Calls, byID)...)
		case provider.RoleTool:
			if o := byID[m.ToolCallID]; o != nil {
				o.outcome = outcome{text: m.Content(), answered: true, failed: m.IsError}
			}
		}
	}
	return out
}

func observed(calls []provider.Call, byID map[string]*observation) []*observation {
	var out []*observation
	for _, c := range calls {
		var arguments struct {
			Path string `json:"path"`
		}
		_ = json.Unmarshal([]byte(c.Arguments), &arguments) // ours, or without a path
		o := &observation{name: c.Name, path: arguments.Path}
		byID[c.ID] = o
		out = append(out, o)
	}
	return out
}

func (s *scene) sort(seen []*observation) {
	for _, o := range seen {
		switch {
		case o.name == commandTool:
			s.command = &o.outcome
		case o.name == listTool && path.Clean(o.path) == ".":
			s.listing = readListing(o.outcome)
		case o.name == listTool:
			s.reads = append(s.reads, read{o.outcome, o.path})
		}
	}
}

// readListing reads the files of a listing: objects or names. A listing that
// was cut to a limit is no JSON any more; its whole entries still count.
func readListing(o outcome) *listing {
	var result struct {
		Files []json.RawMessage `json:"files"`
		Total int               `json:"total"`
	}
	if json.Unmarshal([]byte(o.text), &result) != nil {
		for _, raw := range flatObject.FindAllString(o.text, -1) {
			result.Files = append(result.Files, json.RawMessage(raw))
		}
	}
	return &listing{outcome: o, entries: readEntries(result.Files), total: result.Total}
}

func readEntries(raws []json.RawMessage) []entry {
	var out []entry
	for _, raw := range raws {
		var e entry
		if json.Unmarshal(raw, &e) != nil {
			_ = json.Unmarshal(raw, &e.Name) // a plain name, or nothing
		}
		if e.Name != "" {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

var flatObject = regexp.MustCompile(`\{[^{}]*\}`)

// content gives the text of a file that was read: a field of the result, or the
// whole of it where a tool shows its text as it is.
func (r *read) content() string {
	var result struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal([]byte(r.text), &result) == nil && result.Content != nil {
		return *result.Content
	}
	return r.text
}

// stdout gives what a command wrote.
func (o *outcome) stdout() string {
	var result struct {
		Stdout *string `json:"stdout"`
	}
	if json.Unmarshal([]byte(o.text), &result) == nil && result.Stdout != nil {
		return *result.Stdout
	}
	return o.text
}
