package router

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// listChunk bounds how much of a list goes into one message.
const listChunk = 256 << 10

// list answers DESCRIBE on wb.list.<caller>: a DESCRIPTION for each tool, or for
// the one that is named, each with metadata that says how it stands.
func (r *router) list(ctx context.Context, q *bus.Request) {
	f := q.First(frames.TypeDescribe)
	switch {
	case f == nil:
		r.sent(q.Fail(frames.UnknownType(q.Frames[0].Type)), q)
		return
	case !f.Content.Lookup("export").Absent():
		r.d.Registry().Settle(ctx)
		r.export(q, f)
		return
	}
	only, err := filterFrom(f)
	switch {
	case err != nil:
		r.sent(q.Fail(err), q)
	case f.Name == "":
		r.d.Registry().Settle(ctx)
		r.describeAll(q, only)
	case r.d.Ready(f.Name):
		r.describeOne(ctx, q, f.Name, only)
	default:
		r.looking.Go(func() { r.describeOne(ctx, q, f.Name, only) }) // has to look for it
	}
}

// filter chooses tools of a list.
type filter struct {
	states []registry.State // empty: all but retired
	tools  []string         // names and patterns; empty: all
}

// filterFrom reads the content of a DESCRIBE: {states?, tools?}.
func filterFrom(f *frames.Frame) (only filter, err error) {
	states, err := texts(f.Content, "states")
	if err != nil {
		return only, err
	}
	for _, s := range states {
		state := registry.State(s)
		if !slices.Contains(registry.States(), state) {
			return only, badField("states", "%.80q is no state of a tool; there are %s", s, strings.Trim(fmt.Sprintf("%q", registry.States()), "[]"))
		}
		only.states = append(only.states, state)
	}
	only.tools, err = patternsFrom(f)
	return only, err
}

// patternsFrom reads the names and patterns that choose tools.
func patternsFrom(f *frames.Frame) ([]string, error) {
	patterns, err := texts(f.Content, "tools")
	for _, p := range patterns {
		if _, bad := path.Match(p, ""); bad != nil {
			return nil, badField("tools", "%.80q is no name or pattern", p)
		}
	}
	return patterns, err
}

func badField(field, format string, args ...any) *frames.Error {
	e := frames.NewError(frames.CodeValidationInput, field+": "+format, args...)
	e.Issues = []frames.Issue{{Path: "/" + field, Message: e.Message}}
	return e
}

// maxListed bounds a list in a request.
const maxListed = 1000

func texts(content frames.Raw, field string) ([]string, error) {
	v := content.Lookup(field)
	if v.Absent() {
		return nil, nil
	}
	if v.Kind() != frames.KindArray {
		return nil, badField(field, "want a list of strings")
	}
	var out []string
	for item := range v.Items() {
		s, ok := item.Text()
		if !ok {
			return nil, badField(field, "want strings, item %s is none", strconv.Itoa(len(out)))
		}
		if out = append(out, s); len(out) > maxListed {
			return nil, badField(field, "more than %d items", maxListed)
		}
	}
	return out, nil
}

// match reports whether the filter lets a tool pass.
func (only filter) match(name string, state registry.State) bool {
	if len(only.states) == 0 && state == registry.Retired || len(only.states) > 0 && !slices.Contains(only.states, state) {
		return false
	}
	return wanted(only.tools, name)
}

// wanted reports whether a name fits one of the patterns; none fit all.
func wanted(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

// describeOne tells all that is known of a name, how the tool stands being said in
// its metadata: that it is down is no reason to show nothing.
func (r *router) describeOne(ctx context.Context, q *bus.Request, name string, only filter) {
	r.d.Registry().Find(ctx, name)
	t, all := r.d.Registry().Standing(name)
	if t != nil {
		all = append([]*registry.Tool{t}, all...)
	}
	all = r.matching(all, only)
	if len(all) == 0 && len(only.states) == 0 {
		r.sent(q.Fail(r.d.Registry().Unserved(name)), q)
		return
	}
	r.send(q, all)
}

func (r *router) describeAll(q *bus.Request, only filter) {
	r.send(q, r.matching(append(r.d.Registry().Tools(), r.d.Registry().Refused()...), only))
}

// matching gives the tools that a filter lets pass.
func (r *router) matching(all []*registry.Tool, only filter) []*registry.Tool {
	return slices.DeleteFunc(all, func(t *registry.Tool) bool { return !only.match(t.Name, r.d.Registry().State(t)) })
}

// send answers with descriptions of tools and END, in messages of bounded size.
func (r *router) send(q *bus.Request, tools []*registry.Tool) {
	var chunk []frames.Frame
	size := 0
	for _, t := range tools {
		f := r.description(t)
		if size += len(f.Content); size > listChunk && len(chunk) > 0 {
			r.sent(q.Send(chunk...), q)
			chunk, size = nil, len(f.Content)
		}
		chunk = append(chunk, f)
	}
	r.sent(q.End(frames.EndCompleted, chunk...), q)
}

func (r *router) description(t *registry.Tool) frames.Frame {
	state := string(r.d.Registry().State(t))
	f := frames.Description(t.Declaration, frames.WithMeta("instances", len(t.Serving)), frames.WithMeta("state", state))
	if keys := t.Keys(); keys != nil {
		f.Metadata.Set("keys", frames.Value(keys))
	}
	if err := r.d.Registry().Check(t); err != nil {
		f.Metadata.Set("refused", err.Raw())
	}
	if t.Setting.Limits != (registry.Limits{}) {
		f.Metadata.Set("limits", frames.Value(t.Setting.Limits))
	}
	return f
}
