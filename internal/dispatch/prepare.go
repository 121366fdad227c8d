package dispatch

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Prepare checks that a call may run: the tool exists, the arguments are within
// the limits and fit the schema, the workspace has one owner. The error is an
// *frames.Error whose effect is none.
func (d *Dispatcher) Prepare(ctx context.Context, c Call) (*Prepared, error) {
	return d.prepared(ctx, c, d.prepare)
}

// PrepareOutside is Prepare of a call of a tool that is none of the mesh's: whoever
// runs it is outside, and decl is what it declares. Hand the call over with
// [Dispatcher.HandOver]; where a hook has answered it already, start it instead.
func (d *Dispatcher) PrepareOutside(ctx context.Context, c Call, decl *frames.Declaration) (*Prepared, error) {
	return d.prepared(ctx, c, func(ctx context.Context, p *Prepared) error {
		p.Declaration = decl
		if err := d.readArguments(p); err != nil {
			return err
		}
		return d.gates(ctx, p)
	})
}

// HandOver tells observers that a call begins that somebody outside runs.
func (d *Dispatcher) HandOver(ctx context.Context, p *Prepared) {
	if p.hooked != nil {
		p.observe(nil, bus.TraceHeader(ctx))
	}
}

type prepare = func(context.Context, *Prepared) error

// prepared prepares a call, under its hooks where there are any.
func (d *Dispatcher) prepared(ctx context.Context, c Call, prepare prepare) (*Prepared, error) {
	p := &Prepared{Call: c, hooked: d.hooks.of(&c)}
	var err error
	if p.hooked != nil {
		err = d.prepareHooked(ctx, p, prepare)
	} else {
		err = prepare(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (d *Dispatcher) prepare(ctx context.Context, p *Prepared) error {
	if p.Depth < 0 || p.Depth > MaxDepth {
		return tooDeep(p.Depth)
	}
	t, err := d.Lookup(ctx, p.Tool)
	if err != nil {
		return err
	}
	p.Declaration = t.Declaration
	if err := d.readArguments(p); err != nil {
		return err
	}
	if p.key, err = workspaceKey(t, p.Workspace); err != nil {
		return err
	}
	if err := d.gates(ctx, p); err != nil || p.Answered() {
		return err
	}
	if t.Annotations.RequiresConfirmation {
		return frames.Denied(p.Tool, "a person has to confirm it, which cannot be asked for yet").WithReason("approval_required")
	}
	return nil
}

// small holds arguments to the limit of what travels inline.
func (d *Dispatcher) small(tool string, args json.RawMessage) error {
	if n, most := len(args), d.conn.InlineLimit(); n > most {
		return frames.TooLarge("arguments of tool "+tool, int64(n), int64(most))
	}
	return nil
}

func tooDeep(depth int) *frames.Error {
	return frames.NewError(frames.CodeLimit, "calls are nested %d deep, the limit is %d", depth, MaxDepth).WithReason("depth")
}

// Lookup gives a tool that has a live instance, else NOT_FOUND, DISABLED or UNAVAILABLE.
func (d *Dispatcher) Lookup(ctx context.Context, name string) (*registry.Tool, error) {
	t := d.reg.Find(ctx, name)
	switch {
	case t != nil && len(t.Instances) > 0:
		return t, nil
	case ctx.Err() != nil:
		return nil, frames.AsError(context.Cause(ctx))
	}
	return nil, d.reg.Unserved(name)
}

// Ready reports whether the tool is known to be served, so that Prepare need not
// look for it.
func (d *Dispatcher) Ready(tool string) bool {
	t := d.reg.Get(tool)
	return t != nil && len(t.Instances) > 0
}

// workspaceKey gives the key that an instance must own for the call; "" where
// any will do.
func workspaceKey(t *registry.Tool, workspace string) (string, error) {
	owners := t.Owners()
	switch {
	case len(owners) == 0:
		return "", nil
	case workspace == "" && len(owners) == 1:
		return owners[0], nil
	case workspace == "":
		return "", frames.NewError(frames.CodeValidationInput,
			"Tool %s needs a workspace: name one of %s", t.Name, strings.Join(owners, ", ")).WithReason("workspace_required")
	case slices.Contains(owners, workspace):
		return workspace, nil
	case filepath.IsAbs(workspace):
		return pathOwner(t, workspace, owners)
	}
	return "", noWorkspace(workspace, owners)
}

// pathOwner accepts an absolute path if exactly one live owner has that root.
func pathOwner(t *registry.Tool, path string, owners []string) (string, error) {
	key, n := frames.PathKey(path), 0
	for _, s := range t.Instances {
		if slices.Contains(s.Keys, key) {
			n++
		}
	}
	switch n {
	case 1:
		return key, nil
	case 0:
		return "", noWorkspace(path, owners)
	}
	return "", frames.NewError(frames.CodeValidationInput, "%d instances own %s: name the workspace", n, path)
}

func noWorkspace(name string, owners []string) *frames.Error {
	return frames.NewError(frames.CodeNotFound, "no workspace %q; there is %s", name, strings.Join(owners, ", ")).
		WithReason("workspace_not_found")
}
