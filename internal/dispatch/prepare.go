package dispatch

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Prepare checks that a call may run: the tool exists, the arguments are within
// the limits and fit the schema, the workspace has one owner. The error is an
// *frames.Error whose effect is none.
func (d *Dispatcher) Prepare(ctx context.Context, c Call) (*Prepared, error) {
	t, err := d.Lookup(ctx, c.Tool)
	if err != nil {
		return nil, err
	}
	if n, most := len(c.Arguments), d.conn.InlineLimit(); n > most {
		return nil, frames.NewError(frames.CodeTooLarge, "arguments of %d bytes, the limit is %d", n, most)
	}
	if err := d.checkArguments(t.Declaration, c.Arguments); err != nil {
		return nil, err
	}
	key, err := workspaceKey(t, c.Workspace)
	if err != nil {
		return nil, err
	}
	if t.Annotations.RequiresConfirmation {
		return nil, frames.NewError(frames.CodeDenied, "Tool %s wants a person's confirmation, which cannot be asked for yet", c.Tool).
			WithReason("approval_required")
	}
	return &Prepared{Call: c, Declaration: t.Declaration, key: key}, nil
}

// Lookup gives a tool that has a live instance, else NOT_FOUND or UNAVAILABLE.
func (d *Dispatcher) Lookup(ctx context.Context, name string) (*registry.Tool, error) {
	t := d.reg.Find(ctx, name)
	switch {
	case t == nil:
		return nil, frames.NotFound(name, d.callable())
	case len(t.Instances) == 0:
		return nil, unserved(name)
	}
	return t, nil
}

// Known reports whether the tool is in the catalogue, so that Prepare need not
// ask for it.
func (d *Dispatcher) Known(tool string) bool { return d.reg.Get(tool) != nil }

func (d *Dispatcher) callable() []string {
	var names []string
	for _, t := range d.reg.Tools() {
		if t.Callable() {
			names = append(names, t.Name)
		}
	}
	return names
}

func (d *Dispatcher) checkArguments(decl *frames.Declaration, args json.RawMessage) error {
	s, err := d.reg.Arguments(decl)
	if err != nil {
		return err
	}
	return s.Validate(args)
}

func (d *Dispatcher) checkOutput(decl *frames.Declaration, result json.RawMessage) error {
	s, err := d.reg.Output(decl)
	if err != nil {
		return err
	}
	return s.ValidateOutput(result)
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

func unserved(tool string) *frames.Error {
	return frames.NewError(frames.CodeUnavailable, "Tool %s is known, but no instance of it is running", tool)
}

// busy is what a call gets that could not be placed; the estimate is the time
// that the queue before it needs.
func (d *Dispatcher) busy(r *running, why string) *frames.Error {
	return frames.NewError(frames.CodeBusy, "Tool %s is busy: %s", r.Tool, why).
		With(func(e *frames.Error) { e.Reason, e.RetryAfter = "busy", d.cfg.QueueWait/10 })
}
