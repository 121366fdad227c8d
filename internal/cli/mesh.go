package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	workspacetools "github.com/weavebus/weavebus/services/workspace-tools"
)

// mesh is a connection to a mesh, and the mesh itself where this process hosts it.
type mesh struct {
	client *client.Client
	// workspace is what calls and sessions name; empty where none was asked for.
	workspace string

	host   *host     // nil where another process runs the mesh
	joined *meshFile // what is known of that mesh; nil where it was named by --nats
	served *served   // the workspace that this process serves for it
}

// close gives up what the command used. A hosted mesh stops.
func (m *mesh) close() {
	m.served.stop()
	if m.client != nil {
		m.client.Conn().Close()
	}
	m.host.stop()
}

// withMesh runs f on a mesh, under a context that a signal cancels.
func (c *console) withMesh(workspace string, f func(ctx context.Context, m *mesh) error) error {
	ctx, stop := c.context()
	defer stop()
	m, err := c.open(ctx, workspace)
	if err != nil {
		return err
	}
	defer m.close()
	return f(ctx, m)
}

// open finds a mesh: the one of --nats, else the one that runs on the state
// folder, else one that it starts in this process. workspace is a name, or a
// folder, which is served by this process where no instance of the mesh owns it.
func (c *console) open(ctx context.Context, workspace string) (*mesh, error) {
	state, err := c.stateDir()
	if err != nil {
		return nil, err
	}
	dir, err := c.workspaceDir(workspace, state)
	if err != nil {
		return nil, err
	}
	m, err := c.attach(ctx, state)
	if err != nil {
		return nil, orCause(ctx, err)
	}
	if err := c.provideWorkspace(ctx, m, state, workspace, dir); err != nil {
		m.close()
		return nil, orCause(ctx, err)
	}
	return m, nil
}

// attach connects to the mesh, and starts it first where none runs.
func (c *console) attach(ctx context.Context, state string) (*mesh, error) {
	if c.NATS != "" {
		conn, err := bus.Connect(ctx, c.dial(c.NATS, state, c.As))
		if err != nil {
			return nil, err
		}
		return &mesh{client: client.New(conn)}, nil
	}
	for deadline := time.Now().Add(startLimit); ; {
		conn, file, err := c.join(ctx, state)
		switch {
		case err != nil:
			return nil, err
		case conn != nil:
			return &mesh{client: client.New(conn), joined: file}, nil
		}
		h, err := c.startOwn(ctx, state)
		if err == nil {
			return c.hosted(h)
		}
		switch {
		case !natsd.InUse(state):
			return nil, err
		case time.Now().After(deadline):
			return nil, lostMesh(state, errNoMeshFile)
		}
		// Another process is starting a mesh on this folder right now.
		if wait := pause.For(ctx, 50*time.Millisecond); wait != nil {
			return nil, wait
		}
	}
}

// noteOwn says that nothing is seen of any other mesh.
func (c *console) noteOwn(m *mesh) {
	if m.host != nil {
		c.note("No mesh runs on %s, so one was started for this command.", m.host.state)
	}
}

// startLimit is how long a mesh that another process starts may take.
const startLimit = 15 * time.Second

// startOwn starts a mesh for this command, on any free port.
func (c *console) startOwn(ctx context.Context, state string) (*host, error) {
	hooks, err := c.hooks()
	if err != nil {
		return nil, err
	}
	services, err := (&roleConfig{models: c.models, hooks: hooks, environ: environ()}).services(meshRoles...)
	if err != nil {
		return nil, err
	}
	return c.startHost(ctx, state, hostConfig{services: services})
}

func (c *console) hosted(h *host) (*mesh, error) {
	nc, err := inProcess(h.server, c.As)
	if err != nil {
		h.stop()
		return nil, err
	}
	conn, err := bus.New(nc, c.As, bus.WithPrefix(c.Prefix))
	if err != nil {
		h.stop()
		return nil, err
	}
	return &mesh{client: client.New(conn), host: h}, nil
}

// join connects to the mesh that runs on the state folder; nil where none does.
// A mesh that does not let the caller in is an error: there is one.
func (c *console) join(ctx context.Context, state string) (*bus.Conn, *meshFile, error) {
	f, err := c.meshOn(state)
	if f == nil || err != nil {
		return nil, nil, err
	}
	d := c.dial(f.URL, state, c.As)
	d.Prefix = f.Prefix
	conn, err := bus.Connect(ctx, d)
	if code := frames.CodeOf(err); code == frames.CodeDenied || code == frames.CodeValidationInput {
		return nil, nil, err
	}
	if err != nil {
		c.log.Debug("mesh.json is stale", "url", f.URL, "error", err)
		return nil, nil, nil // a stale file is no mesh
	}
	if !c.anyPrefix && c.Prefix != f.Prefix {
		conn.Close()
		return nil, nil, usageError("--prefix %s: the mesh that runs on %s has the prefix %s: leave the flag out, or choose another --mesh", c.Prefix, state, f.Prefix)
	}
	c.Prefix = f.Prefix
	if err := c.otherHooks(f); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, f, nil
}

// meshOn reads mesh.json; nil where there is none. One that cannot be read is
// taken over, as a stale one is, unless a mesh runs there.
func (c *console) meshOn(state string) (*meshFile, error) {
	f, err := readMeshFile(state)
	if err == nil {
		return f, nil
	}
	if natsd.InUse(state) {
		return nil, lostMesh(state, err)
	}
	c.log.Debug("mesh.json is unreadable", "error", err)
	return nil, nil //nolint:nilnil // likewise
}

var errNoMeshFile = errors.New(meshFileName + " is not there")

// lostMesh is a mesh that runs, and cannot be found.
func lostMesh(state string, err error) error {
	return frames.NewError(frames.CodeUnavailable,
		"a mesh runs on the state folder %s, but where is not known: stop it and start it again, or name its server with --nats: %w", state, err)
}

// dial says how an identity connects. The seed is that of --nkey, else that of
// the state folder, if there is one.
func (c *console) dial(url, state, identity string) bus.Dial {
	seed := c.Nkey
	if own := natsd.SeedFile(state, identity); seed == "" && exists(own) {
		seed = own
	}
	return bus.Dial{URL: url, Identity: identity, SeedFile: seed, Prefix: c.Prefix}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// workspaceDir gives the absolute folder that a workspace flag names; empty where
// it names none. A word without a slash that is no folder is the name of a workspace.
func (c *console) workspaceDir(flag, state string) (string, error) {
	if flag == "" {
		return "", nil
	}
	dir, err := filepath.Abs(flag)
	if err != nil {
		return "", frames.NewError(frames.CodeNotFound, "workspace %s: %w", flag, err)
	}
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return dir, workspacetools.CheckPrivate(dir, private(state))
	case !strings.ContainsRune(flag, filepath.Separator) && flag != "." && flag != "..":
		return "", nil
	case err == nil:
		return "", frames.NewError(frames.CodeNotFound, "workspace %s is no folder", flag).WithReason("workspace_not_found")
	}
	return "", frames.NewError(frames.CodeNotFound, "workspace %s: %w", flag, err).WithReason("workspace_not_found")
}

// private lists the folders that no workspace may touch.
func private(state string) []string {
	if home := configHome(); home != "" {
		return []string{state, home}
	}
	return []string{state}
}
