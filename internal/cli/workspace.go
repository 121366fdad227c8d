package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	workspacetools "github.com/weavebus/weavebus/services/workspace-tools"
)

// announcePause is between two looks at what the router knows.
const announcePause = 10 * time.Millisecond

// workspaceProbe is the tool by which the owners of workspaces are seen.
const workspaceProbe = "read_file"

// provideWorkspace makes sure that the mesh serves the workspace: a folder that
// no live instance owns is served by this process while the command runs.
func (c *console) provideWorkspace(ctx context.Context, m *mesh, state, flag, dir string) error {
	if flag == "" {
		return nil
	}
	if dir == "" {
		m.workspace = flag // a name; whether somebody owns it is seen by the call
		return nil
	}
	m.workspace = dir
	if owned, err := m.owns(ctx, dir); owned || err != nil {
		return err
	}
	unlock, err := lockServing(ctx, state)
	if err != nil {
		return err
	}
	defer unlock()
	if owned, err := m.owns(ctx, dir); owned || err != nil {
		return err
	}
	return c.serveWorkspace(ctx, m, state, dir)
}

// owns reports whether a live instance of the mesh owns the folder.
func (m *mesh) owns(ctx context.Context, dir string) (bool, error) {
	tools, err := m.client.Tools(ctx, client.Named(workspaceProbe), client.InAnyState())
	owned := slices.ContainsFunc(tools, func(t client.Tool) bool { return slices.Contains(t.Owned, frames.PathKey(dir)) })
	return owned, err
}

// lockServing keeps commands that start at the same time from serving the same
// folder each: a folder with several owners is ambiguous, and its calls refused.
// Where there is no state folder the mesh runs elsewhere, and nothing is locked.
func lockServing(ctx context.Context, state string) (unlock func(), err error) {
	if !exists(state) {
		return func() {}, nil
	}
	lock := flock.New(filepath.Join(state, "serve.lock"), flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, announcePause); err != nil {
		if ctx.Err() != nil {
			return nil, frames.AsError(context.Cause(ctx))
		}
		return nil, frames.NewError(frames.CodeUnavailable, "cannot lock the state folder: %w", err)
	}
	return func() { _ = lock.Close() }, nil // ends with the process at the latest
}

func (c *console) serveWorkspace(ctx context.Context, m *mesh, state, dir string) error {
	w := workspacetools.Workspace{Dir: dir}
	cfg := &roleConfig{workspaces: []workspacetools.Workspace{w}, environ: environ(), private: private(state), allowRoot: true}
	services, err := cfg.services("workspace-tools")
	if err != nil {
		return err
	}
	connect := func(ctx context.Context, identity string) (*nats.Conn, error) {
		if m.host != nil {
			return m.host.connectNATS(ctx, identity)
		}
		return bus.ConnectNATS(ctx, c.dial(m.url(), state, identity))
	}
	if m.served, err = c.serveBeside(ctx, services[0], connect); err != nil {
		return err
	}
	return m.awaitWorkspace(ctx, dir)
}

func (m *mesh) url() string { return m.client.Conn().NATS().ConnectedUrl() }

// awaitWorkspace waits until the router has heard of the workspace: it may be a
// moment behind the announcement.
func (m *mesh) awaitWorkspace(ctx context.Context, dir string) error {
	for {
		owned, err := m.owns(ctx, dir)
		if owned || err != nil {
			return err
		}
		if err := pause.For(ctx, announcePause); err != nil {
			return err
		}
	}
}

// workspaces reads flags of the form NAME=DIR, or DIR, whose name is then that of
// the folder.
func (c *console) workspaces(flags []string, state string) ([]workspacetools.Workspace, error) {
	out := make([]workspacetools.Workspace, len(flags))
	for i, flag := range flags {
		w := workspacetools.Workspace{Dir: flag}
		if name, dir, ok := strings.Cut(flag, "="); ok && frames.ValidName(name) {
			w = workspacetools.Workspace{Name: name, Dir: dir}
		}
		var err error
		if w.Dir, err = c.workspaceDir(w.Dir+"/", state); err != nil { // the slash: no name of a workspace
			return nil, err
		}
		out[i] = w
	}
	return out, nil
}
