package export

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Tool is what an export says of a tool.
type Tool struct {
	provider.Tool
	// Title, OutputSchema and Annotations are said by MCP only.
	Title        string
	OutputSchema json.RawMessage
	Annotations  frames.Annotations
}

// FromDeclaration gives a tool as it was declared.
func FromDeclaration(d *frames.Declaration) Tool {
	return Tool{
		Tool:  provider.Tool{Name: d.Name, Description: d.Description, Schema: d.Schema},
		Title: d.Title, OutputSchema: d.OutputSchema, Annotations: d.Annotations,
	}
}

// FromTools gives tools as a provider's request has them.
func FromTools(list []provider.Tool) []Tool {
	out := make([]Tool, len(list))
	for i, t := range list {
		out[i].Tool = t
	}
	return out
}

// Note says where an export differs from what was asked for, or from the tool's own
// schema.
type Note struct {
	Tool string `json:"tool"`
	Text string `json:"text"`
}

type config struct {
	strict *bool
	most   int
}

// Option changes an export.
type Option func(*config)

// WithStrict chooses strict for every tool that does not choose for itself. true
// exports each schema that can be strict so that a model's arguments fit it by
// construction; one that cannot goes out with strict false and a [Note]. false is
// written as well. Gemini and MCP cannot say it. Default: nothing is written, but
// for OpenAIStrict.
func WithStrict(strict bool) Option { return func(c *config) { c.strict = &strict } }

// WithMaxTools sets how many tools there may be; 0 and less is no limit.
// Default: the format's own limit, [Format.MaxTools].
func WithMaxTools(n int) Option { return func(c *config) { c.most = n } }

// Set is tools in one format. It does not change and may be shared between
// goroutines.
type Set struct {
	format  Format
	names   *Names
	entries []entry
	byOwn   map[string]*entry
	notes   []Note
}

// entry is one exported tool.
type entry struct {
	own, wire string
	text      json.RawMessage
	// keys are the names of the properties; nil where all are the tool's own.
	keys *Names
	// plain is what strict arguments are read back by; nil where they are not strict.
	plain *node
}

// Export puts tools, in their order, into a format. It is pure: the same tools give
// the same bytes. No tools give an empty set. The error names the tool: TOO_LARGE
// for too many tools (the text names the limit) or a schema over its limit,
// VALIDATION_INPUT for a name that is empty or stands twice, and for a schema that
// is not JSON.
func Export(f Format, tools []Tool, opts ...Option) (*Set, error) {
	cfg := config{most: f.MaxTools()}
	if f == OpenAIStrict {
		WithStrict(true)(&cfg)
	}
	for _, o := range opts {
		o(&cfg)
	}
	own := make([]string, len(tools))
	for i := range tools {
		own[i] = tools[i].Name
	}
	if n := len(tools); cfg.most > 0 && n > cfg.most {
		return nil, frames.NewError(frames.CodeTooLarge,
			"%d tools, more than the limit of %d tools in one request of format %s: choose fewer", n, cfg.most, f).WithReason("too_many_tools")
	}
	names, err := NewNames(f, own)
	if err != nil {
		return nil, err
	}
	s := &Set{format: f, names: names, entries: make([]entry, len(tools)), byOwn: make(map[string]*entry, len(tools))}
	for i := range tools {
		if err := s.add(i, &tools[i], cfg.strict); err != nil {
			return nil, frames.AsError(err).With(func(e *frames.Error) {
				e.Message = "tool " + clip(tools[i].Name, 64) + ": " + e.Message
			})
		}
	}
	return s, nil
}

func (s *Set) add(i int, t *Tool, strict *bool) error {
	e := &s.entries[i]
	e.own, e.wire = t.Name, s.names.Wire(t.Name)
	s.byOwn[e.own] = e
	if t.Strict != nil {
		strict = t.Strict
	}
	x := exporting{format: s.format, tool: t, entry: e, strict: strict, description: t.Description}
	if err := x.export(); err != nil {
		return err
	}
	for _, text := range x.notes {
		s.notes = append(s.notes, Note{Tool: t.Name, Text: text})
	}
	return nil
}

// Names gives the tools' names in both directions.
func (s *Set) Names() *Names { return s.names }

// Notes gives what an operator may want to know; nil for most sets.
func (s *Set) Notes() []Note { return s.notes }

// Format is the set's format.
func (s *Set) Format() Format { return s.format }

// Has reports whether a tool, by its own name, is in the set.
func (s *Set) Has(own string) bool { return s.byOwn[own] != nil }

// Len is how many tools there are.
func (s *Set) Len() int { return len(s.entries) }

// JSON gives the tools as the value of a request's `tools`: a list, or for Vercel
// an object by name. A set of no tools is an empty one, which several servers refuse:
// leave `tools`, and with it `tool_choice`, out of the request then ([Set.Len]).
func (s *Set) JSON() json.RawMessage { return pack(s.format, s.entries) }

// MarshalJSON is [Set.JSON].
func (s *Set) MarshalJSON() ([]byte, error) { return s.JSON(), nil }

// Split cuts a set into sets that are whole exports, each of at most limit bytes of
// JSON, but of at least one tool.
func (s *Set) Split(limit int) []*Set {
	var out []*Set
	for first := 0; first < len(s.entries); {
		size, last := 64, first
		for last < len(s.entries) && (last == first || size+s.entries[last].size() <= limit) {
			size += s.entries[last].size()
			last++
		}
		out = append(out, s.part(first, last))
		first = last
	}
	return out
}

func (e *entry) size() int { return len(e.text) + len(e.wire) + 8 }

func (s *Set) part(first, last int) *Set {
	if first == 0 && last == len(s.entries) {
		return s
	}
	p := &Set{format: s.format, entries: s.entries[first:last], byOwn: map[string]*entry{}}
	p.names = &Names{rule: s.names.rule, wire: map[string]string{}, own: map[string]string{}}
	for i := range p.entries {
		e := &p.entries[i]
		p.byOwn[e.own], p.names.wire[e.own], p.names.own[e.wire] = e, e.wire, e.own
	}
	p.notes = slices.DeleteFunc(slices.Clone(s.notes), func(n Note) bool { return p.byOwn[n.Tool] == nil })
	return p
}

// Own gives a model's call in the tool's own terms: its name, and the arguments
// under the tool's own property names, without the nulls that a strict export asked
// for. Numbers, and the order of keys, stay as the model wrote them. What is of no
// tool of the set, or not JSON, comes back as it is.
func (s *Set) Own(name, arguments string) (ownName, ownArguments string) {
	ownName, _ = s.names.Own(name)
	if e := s.byOwn[ownName]; e != nil {
		arguments = e.arguments(arguments)
	}
	return ownName, arguments
}

func (e *entry) arguments(text string) string {
	if e.keys != nil {
		text = renameKeys(text, func(key string) string {
			own, _ := e.keys.Own(key)
			return own
		})
	}
	if e.plain != nil {
		text = withoutNulls(e.plain, text)
	}
	return text
}

// Wire gives a call of a conversation's past as the provider is to see it: the
// opposite of [Set.Own], but for nulls, which need not stand in the past.
func (s *Set) Wire(name, arguments string) (wireName, wireArguments string) {
	if e := s.byOwn[name]; e != nil && e.keys != nil {
		arguments = renameKeys(arguments, func(key string) string {
			if w, ok := e.keys.wire[key]; ok {
				return w
			}
			return key
		})
	}
	return s.names.Wire(name), arguments
}

// exporting is the export of one tool.
type exporting struct {
	format      Format
	tool        *Tool
	entry       *entry
	strict      *bool // as chosen, then as it is
	description string
	notes       []string
}

func (x *exporting) note(format string, args ...any) {
	x.notes = append(x.notes, fmt.Sprintf(format, args...))
}

func (x *exporting) export() error {
	root, err := read(x.tool.Schema)
	if err != nil {
		return err
	}
	var schema *node
	if x.format == MCP {
		schema = mcpRoot(root)
	} else {
		modernize(root)
		schema = x.schema(root)
	}
	x.entry.text, err = x.shape(schema)
	return err
}

// schema gives the arguments' schema in the form that the provider takes.
func (x *exporting) schema(root *node) *node {
	if x.strict != nil && *x.strict {
		if closed := x.strictly(root); closed != nil {
			return x.named(closed)
		}
	}
	excluded := excludedBy(root.get("not"))
	root.del("not", "enum", "const") // refused at the root; the mesh checks them
	if told := strings.TrimSpace(flattenRoot(root) + " " + excluded); told != "" {
		x.description = strings.TrimSpace(x.description + "\n\n" + told)
		x.note("the root's combinations became one object, and words in the description")
	}
	complete(root)
	return x.named(root)
}

// strictly gives the strict form, or nil: then strict is false.
func (x *exporting) strictly(root *node) *node {
	d := openAIStrict()
	switch x.format {
	case Anthropic:
		d = anthropicStrict()
	case Gemini, GeminiParameters, MCP:
		return nil
	}
	if slices.Contains(root.types(), "object") { // else null would do, which is no arguments
		root.set("type", word("object"))
	}
	closed, plain, lost, err := strict(root, d)
	if err != nil {
		no := false
		x.strict = &no
		x.note("not strict: %s", err)
		return nil
	}
	if len(lost) > 0 {
		x.note("in words only: %s", strings.Join(lost, ", "))
	}
	if d.nullable {
		x.entry.plain = plain
	}
	return closed
}

// named renames properties that the provider would refuse.
func (x *exporting) named(root *node) *node {
	if r, ok := x.format.properties(); ok {
		x.entry.keys = renameProperties(root, r)
	}
	return root
}
