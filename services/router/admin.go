package router

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// adminWorkers is how many orders of operators are carried out at once.
const adminWorkers = 4

// order is what an operator wants of one tool.
type order struct {
	verb, tool string
	identity   string // of swap; empty: the only other one that declares the tool
	limits     registry.Limits
}

// verbs are what an operator may want, in the order of their mention.
func verbs() []string { return []string{"disable", "enable", "limits", "retire", "swap"} }

// admin answers wb.admin.<caller>.<verb>: META {tool, …} is answered with META of
// what holds then.
func (r *router) admin(ctx context.Context, q *bus.Request) {
	o, err := orderFrom(q)
	if err != nil {
		r.sent(q.Fail(err), q)
		return
	}
	set, err := r.carryOut(ctx, q.Caller(), o)
	if err != nil {
		r.sent(q.Fail(err), q)
		return
	}
	r.log.Info("an operator decided", "caller", q.Caller(), "verb", o.verb, "tool", o.tool)
	r.sent(q.End(frames.EndCompleted, frames.Meta(r.settingOf(o.tool, set))), q)
}

// orderFrom reads a request: the verb is the subject's, the rest is the content.
func orderFrom(q *bus.Request) (order, error) {
	f := q.First(frames.TypeMeta)
	if f == nil {
		return order{}, frames.UnknownType(q.Frames[0].Type)
	}
	o := order{verb: q.Tokens[2]}
	if !slices.Contains(verbs(), o.verb) {
		return o, frames.NewError(frames.CodeValidationInput, "%.80q is no order; there is %s", o.verb, strings.Join(verbs(), ", "))
	}
	for _, field := range []struct {
		name string
		to   *string
	}{{"tool", &o.tool}, {"identity", &o.identity}} {
		v := f.Content.Lookup(field.name)
		s, ok := v.Text()
		if !v.Absent() && (!ok || !frames.ValidName(s)) {
			return o, badField(field.name, "want 1 to 64 letters, digits, _ or -")
		}
		*field.to = s
	}
	if o.tool == "" {
		return o, badField("tool", "name the tool")
	}
	err := o.readLimits(f.Content)
	return o, err
}

// readLimits reads the limits, which hold as a whole: one that is absent is none.
func (o *order) readLimits(content frames.Raw) error {
	const maxConcurrency = 100_000
	for _, field := range []struct {
		name string
		most int64
		set  func(n int64)
	}{
		{"concurrency", maxConcurrency, func(n int64) { o.limits.Concurrency = int(n) }},
		{"timeoutMs", frames.MaxTimeout.Milliseconds(), func(n int64) { o.limits.TimeoutMs = n }},
	} {
		v := content.Lookup(field.name)
		n, ok := v.Int64()
		switch {
		case v.Absent():
			continue
		case !ok || n < 0 || n > field.most:
			return badField(field.name, "want a whole number from 0, which is no limit, to %d", field.most)
		}
		field.set(n)
	}
	return nil
}

// carryOut writes down what an operator decided about a tool that is known.
func (r *router) carryOut(ctx context.Context, caller string, o order) (registry.Setting, error) {
	reg := r.d.Registry()
	if !reg.Known(o.tool) {
		reg.Find(ctx, o.tool)
	}
	if !reg.Known(o.tool) {
		return registry.Setting{}, frames.NotFound(o.tool, reg.Names())
	}
	if o.verb == "swap" {
		var err error
		if o.identity, err = heir(reg, o); err != nil {
			return registry.Setting{}, err
		}
	}
	return reg.Change(ctx, o.tool, func(s *registry.Setting) error {
		before := *s
		o.apply(s)
		if *s != before {
			s.By, s.At = caller, time.Now().UnixMilli()
		}
		return nil
	})
}

func (o *order) apply(s *registry.Setting) {
	switch o.verb {
	case "disable":
		s.Disabled = true
	case "enable":
		s.Disabled, s.Retired = false, false
	case "retire":
		s.Retired = true
	case "limits":
		s.Limits = o.limits
	case "swap":
		s.Route, s.Auto = o.identity, false
	}
}

// heir gives the identity that is to have a tool's name: one that serves it, and
// does not only say so.
func heir(reg *registry.Registry, o order) (string, error) {
	has, declare := reg.Identities(o.tool)
	others := slices.DeleteFunc(slices.Clone(declare), func(id string) bool { return id == has })
	switch {
	case o.identity != "" && slices.Contains(declare, o.identity):
		return o.identity, nil
	case o.identity != "":
		return "", badField("identity", "%s does not serve tool %s; it is served by %s", o.identity, o.tool, listed(declare))
	case len(others) == 1:
		return others[0], nil
	case len(others) == 0:
		return "", badField("identity", "no other identity than %q serves tool %s", has, o.tool)
	}
	return "", badField("identity", "several serve tool %s, name one of %s", o.tool, listed(others))
}

func listed(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names[:min(len(names), most)], ", ")
}

// settingOf gives what is decided about a tool, as it is answered.
func (r *router) settingOf(tool string, s registry.Setting) map[string]any {
	m := map[string]any{"tool": tool, "disabled": s.Disabled, "retired": s.Retired}
	if t := r.d.Registry().Get(tool); t != nil {
		m["state"] = string(r.d.Registry().State(t))
	}
	if s.Route != "" {
		m["identity"] = s.Route
	}
	if s.Limits != (registry.Limits{}) {
		m["limits"] = s.Limits
	}
	if s.By != "" {
		m["by"], m["at"] = s.By, s.At
	}
	return m
}
