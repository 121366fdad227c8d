// Package workspacetools is the service of the tools that work in directories:
// read_file, write_file and run_command. Each instance owns its workspaces and
// announces their names as keys, so that calls for one of them come to it.
package workspacetools

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/workspace"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// drainLimit leaves it to the work context to end what outlasts a stop.
const drainLimit = time.Hour

// New makes the service. Run refuses a wrong Config: VALIDATION_INPUT that names
// the field, NOT_FOUND for a directory that is missing, DENIED for one with a
// private folder or, without AllowRoot, where commands would run as root.
func New(cfg Config) app.Service {
	cfg = cfg.withDefaults()
	run := func(ctx context.Context, env app.Env, ready func()) error {
		s, err := open(cfg, env.Log)
		if err != nil {
			return err
		}
		conn, err := bus.New(env.NATS, env.Identity, bus.WithPrefix(env.Prefix))
		if err != nil {
			return errors.Join(err, s.close())
		}
		defer conn.Close()
		err = s.serve(ctx, conn, env, ready)
		return errors.Join(err, s.close())
	}
	return app.Service{Name: "workspace-tools", Stage: app.StageTools, Identity: cfg.Identity, Run: run}
}

// service is the workspaces of one instance.
type service struct {
	cfg  Config
	open []*workspace.Workspace
	keys []string
}

func open(cfg Config, log *slog.Logger) (*service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &service{cfg: cfg}
	for _, w := range cfg.Workspaces {
		if err := s.add(w, log); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// add opens one workspace.
func (s *service) add(w Workspace, log *slog.Logger) error {
	ws, err := workspace.Open(w.Dir,
		workspace.WithName(w.Name), workspace.WithExtensions(s.cfg.AllowedExtensions...), workspace.WithOwnerCommands(),
		workspace.WithEnvironment(s.cfg.Environ), workspace.WithAllowedEnv(s.cfg.ExtraEnv...))
	if err != nil {
		return err
	}
	s.open = append(s.open, ws)
	if err := CheckPrivate(ws.Dir(), s.cfg.Private); err != nil {
		return err
	}
	if s.find(ws.PathKey()) != ws {
		return invalid("Workspaces: the directory %s stands twice", ws.Dir())
	}
	if err := checkUser(ws.CommandUser(), s.cfg.AllowRoot, log.With("workspace", ws.Name())); err != nil {
		return err
	}
	s.keys = append(s.keys, ws.Name(), ws.PathKey())
	return nil
}

// checkUser says who commands run as, where that is not plain.
func checkUser(u workspace.CommandUser, allowRoot bool, log *slog.Logger) error {
	switch {
	case u.IsRoot() && !allowRoot:
		return frames.NewError(frames.CodeDenied,
			"commands in the workspace would run as root: start as another user, give its directory to one, or allow root").
			WithReason("root")
	case u.IsRoot():
		log.Warn("commands run as root")
	case u.Switched:
		log.Warn("commands run as the workspace's owner", "uid", u.UID, "user", u.Name)
	}
	return nil
}

func (s *service) close() error {
	var errs []error
	for _, ws := range s.open {
		errs = append(errs, ws.Close())
	}
	return errors.Join(errs...)
}

func (s *service) serve(ctx context.Context, conn *bus.Conn, env app.Env, ready func()) error {
	set, err := s.tools()
	if err != nil {
		return err
	}
	return tool.Serve(ctx, conn, set,
		tool.WorkContext(env.Work), tool.DrainTimeout(drainLimit), tool.OnReady(ready), tool.Logger(env.Log))
}
