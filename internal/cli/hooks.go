package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// hookFlags are the hooks of the router and the loop, policy services on the bus.
type hookFlags struct {
	Hook        []string      `name:"hook" sep:";" placeholder:"NAME[:PHASE,…][@TOOL,…]" help:"Policy service on wb.hook.NAME that calls pass, in the order given; may be repeated. PHASE is before (the default), after, error or observe; TOOL a tool's name or pattern, all by default. A gate (before) that does not answer denies the call. For the mesh or roles that this command starts." env:"WEAVEBUS_HOOK"`
	HookTimeout time.Duration `name:"hook-timeout" placeholder:"DURATION" help:"How long a policy service may take for one answer. Default: 5s." env:"WEAVEBUS_HOOK_TIMEOUT"`
}

// hooks reads the flags.
func (f *hookFlags) hooks() ([]hook.Hook, error) {
	var out []hook.Hook
	for _, text := range f.Hook {
		h, err := parseHook(text)
		if err != nil {
			return nil, err
		}
		h.Timeout = f.HookTimeout
		out = append(out, h)
	}
	if err := hook.Check(out); err != nil {
		return nil, usageError("--hook: %s", frames.AsError(err).Message)
	}
	return out, nil
}

func parseHook(text string) (hook.Hook, error) {
	rest, tools, some := strings.Cut(text, "@")
	name, list, listed := strings.Cut(rest, ":")
	phases := []hook.Phase{hook.PhaseBefore}
	if listed {
		phases = nil
		for p := range strings.SplitSeq(list, ",") {
			if slices.Contains(phases, hook.Phase(p)) {
				return hook.Hook{}, usageError("--hook %s: %s stands twice", text, p)
			}
			phases = append(phases, hook.Phase(p))
		}
	}
	h := hook.Remote(name, phases...)
	if some {
		h.Tools = strings.Split(tools, ",")
	}
	return h, nil
}

// otherHooks refuses to join a mesh that runs with other hooks than those that
// were asked for: a gate that is not there would be missed by nobody.
func (f *hookFlags) otherHooks(m *meshFile) error {
	if len(f.Hook) == 0 || slices.Equal(f.Hook, m.Hooks) {
		return nil
	}
	running := "none"
	if len(m.Hooks) > 0 {
		running = strings.Join(m.Hooks, "; ")
	}
	return frames.NewError(frames.CodeConflict,
		"the mesh that runs has other hooks than --hook says (%s): stop it, leave --hook out, or choose another --mesh", running)
}
