package openai

import (
	"bytes"
	"crypto/rand"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// calls puts the calls of one turn together; the order in which a delta finds
// its call is told in the package comment.
type calls struct {
	order   []*call // as they were opened
	byID    map[string]*call
	byIndex map[int64]*call // the newest at each index
	byPair  map[pair]*call
	newest  *call
}

type pair struct {
	index int64
	id    string
}

type call struct {
	id, name string
	args     argstream.Joiner
	shape    shape
	over     error // the arguments passed the limit
}

func newCalls() *calls {
	return &calls{byID: map[string]*call{}, byIndex: map[int64]*call{}, byPair: map[pair]*call{}}
}

// fragment is a delta in the form that the rules speak of.
type fragment struct {
	id, name string
	index    int64
	indexed  bool
	args     []byte
}

func (d *callDelta) fragment() fragment {
	f := fragment{id: d.ID.String(), name: d.Function.Name.String(), args: d.Function.text()}
	if d.Index.known && d.Index.value >= 0 {
		f.index, f.indexed = d.Index.value, true
	}
	return f
}

// text gives the bytes of arguments: of the string, or the object itself.
func (f *function) text() []byte {
	raw := trim(f.Arguments)
	if len(raw) > 0 && raw[0] == '"' {
		return unquote(raw)
	}
	return raw
}

func (f *fragment) empty() bool { return f.id == "" && f.name == "" && len(f.args) == 0 }

// add takes one delta.
func (cs *calls) add(d *callDelta) {
	f := d.fragment()
	if f.empty() {
		return
	}
	if c := cs.find(&f); c != nil {
		cs.extend(c, &f)
	}
}

// find gives the call that f belongs to, opening it if need be; nil for the
// repetition of a whole call.
func (cs *calls) find(f *fragment) *call {
	if f.id == "" {
		return cs.findUnnamed(f)
	}
	if c := cs.known(f); c != nil {
		switch {
		case !c.restartedBy(f):
			return c
		case c.name == f.name && c.args.Text() == string(f.args) && !cs.elsewhere(c, f):
			return nil
		}
		return cs.open(f)
	}
	if c := cs.at(f); c != nil && c.continuedUnderNewID(f) {
		return c
	}
	return cs.open(f)
}

func (cs *calls) known(f *fragment) *call {
	if f.indexed {
		if c := cs.byPair[pair{f.index, f.id}]; c != nil {
			return c
		}
	}
	return cs.byID[f.id]
}

// elsewhere reports whether f stands at an index of its own.
func (cs *calls) elsewhere(c *call, f *fragment) bool {
	return f.indexed && cs.byPair[pair{f.index, f.id}] != c
}

// at gives the newest call at f's index, or of all if f has none.
func (cs *calls) at(f *fragment) *call {
	if f.indexed {
		return cs.byIndex[f.index]
	}
	return cs.newest
}

// findUnnamed finds the call of a fragment without an id.
func (cs *calls) findUnnamed(f *fragment) *call {
	if f.indexed {
		if c := cs.byIndex[f.index]; c != nil {
			if c.restartedBy(f) || c.replacedBy(f) {
				return cs.open(f)
			}
			return c
		}
	}
	c := cs.newest
	if c == nil || f.name != "" && (f.indexed || !c.takesName(f)) {
		return cs.open(f)
	}
	return c
}

func (cs *calls) open(f *fragment) *call {
	c := &call{}
	cs.order = append(cs.order, c)
	cs.newest = c
	if f.indexed {
		cs.byIndex[f.index] = c
	}
	return c
}

func (cs *calls) extend(c *call, f *fragment) {
	if c.id == "" {
		c.id = f.id
	}
	if c.name == "" {
		c.name = f.name
	}
	if f.id != "" {
		cs.byID[f.id] = c
	}
	if f.indexed {
		if cs.byIndex[f.index] == nil {
			cs.byIndex[f.index] = c
		}
		if f.id != "" {
			cs.byPair[pair{f.index, f.id}] = c
		}
	}
	c.write(f.args)
}

func (c *call) write(args []byte) {
	if c.over == nil {
		c.over = c.args.Add(args)
		c.shape.read(args)
	}
}

// restartedBy reports a name with a fresh object after a complete one.
func (c *call) restartedBy(f *fragment) bool {
	return f.name != "" && c.name != "" && c.shape.closed && bytes.HasPrefix(bytes.TrimSpace(f.args), []byte("{"))
}

// replacedBy reports another name where the call at hand needs nothing more.
func (c *call) replacedBy(f *fragment) bool {
	return f.name != "" && c.name != "" && f.name != c.name && (c.shape.closed || !c.shape.begun)
}

// takesName reports a name that comes late, or only says again which call the
// fragment is of.
func (c *call) takesName(f *fragment) bool {
	if c.name == "" {
		return !c.shape.closed || len(f.args) == 0
	}
	return f.name == c.name && !c.shape.closed && (c.shape.begun || len(f.args) > 0)
}

// continuedUnderNewID reports an id that comes late, or one that a server makes
// anew for each chunk of the same call.
func (c *call) continuedUnderNewID(f *fragment) bool {
	switch {
	case c.shape.closed && len(f.args) > 0:
		return false
	case c.id == "":
		return f.name == "" || f.indexed && (c.name == "" || c.name == f.name)
	}
	return f.name == "" && c.name != "" && !c.shape.closed
}

// finish gives the calls. Ids that are missing, or taken by an earlier call,
// are made; names and arguments are those of the tools, not of their export.
func (cs *calls) finish(reason provider.StopReason, tools *export.Set) []provider.ToolCall {
	taken := map[string]bool{"": true}
	out := make([]provider.ToolCall, 0, len(cs.order))
	for _, c := range cs.order {
		if taken[c.id] {
			c.id = "call_" + rand.Text()[:24]
		}
		taken[c.id] = true
		out = append(out, c.finish(reason, tools))
	}
	return out
}

func (c *call) finish(reason provider.StopReason, tools *export.Set) provider.ToolCall {
	name, _ := tools.Names().Own(c.name)
	done := provider.NewToolCall(c.id, name, string(joinPairs([]byte(c.args.Text()))), reason)
	if done.Invalid == nil {
		_, done.Arguments = tools.Own(c.name, done.Arguments)
	}
	if c.over != nil {
		done.Invalid = frames.AsError(c.over)
	}
	return done
}

// shape follows the braces of an argument text, to tell in one pass whether its
// first value is complete.
type shape struct {
	depth             int
	begun, closed     bool
	inString, escaped bool
}

func (s *shape) read(args []byte) {
	for _, c := range args {
		s.step(c)
	}
}

func (s *shape) step(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case s.inString:
		s.escaped, s.inString = c == '\\', c != '"'
	case c == '"':
		s.inString, s.begun = true, true
	case c == '{' || c == '[':
		s.depth++
		s.begun = true
	case c == '}' || c == ']':
		s.depth--
		s.closed = s.closed || s.depth == 0
	case c != ' ' && c != '\n' && c != '\t' && c != '\r':
		s.begun = true
	}
}
