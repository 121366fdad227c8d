// Package manifesttools is the service of tools that are declared in files: each
// has an executable that runs once for a call, or an HTTP endpoint that the
// arguments are posted to. Files are read again when they change;
// docs/manifest-tools.md is their format.
package manifesttools

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/process"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// New makes the service. Run refuses a wrong Config: VALIDATION_INPUT that names
// the field, NOT_FOUND for a folder that is missing, DENIED for one whose commands
// would run as root without AllowRoot. A manifest that was named must be there and
// sound when the service starts, else its fault ends Run; a broken file of a folder
// is skipped, logged and told to who asks for the tools.
func New(cfg Config) app.Service {
	cfg = cfg.withDefaults()
	return app.Service{
		Name: "manifest-tools", Stage: app.StageTools, Identity: cfg.Identity,
		Run: func(ctx context.Context, env app.Env, ready func()) error {
			s, err := newService(cfg, env)
			if err != nil {
				return err
			}
			defer s.close()
			if s.conn, err = bus.New(env.NATS, env.Identity, bus.WithPrefix(env.Prefix)); err != nil {
				return err
			}
			defer s.conn.Close()
			return s.run(ctx, ready)
		},
	}
}

// service is one instance; its fields belong to the goroutine of run.
type service struct {
	cfg     Config
	env     app.Env
	conn    *bus.Conn
	secrets *secrets
	host    *host
	web     *web
	fetcher *fetcher
	watcher *watcher

	// home is an instance without tools that tells what is skipped.
	home    *tool.Set
	sources map[string]*source
	// lost are the folders that cannot be read now; what is served of them stays.
	lost map[string]*frames.Error
	// fetched are the manifests of URLs as they were last heard of.
	fetched  map[string]found
	news     chan found
	draining []*generation
}

func newService(cfg Config, env app.Env) (*service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	rules, err := secretRules(cfg.AllowSecrets)
	if err != nil {
		return nil, err
	}
	allowed, err := networks(cfg.AllowPrivate)
	if err != nil {
		return nil, err
	}
	s := &service{
		env: env, secrets: &secrets{rules, cfg.Environ}, home: tool.NewSet("manifest-tools"),
		sources: map[string]*source{}, lost: map[string]*frames.Error{}, fetched: map[string]found{}, news: make(chan found),
	}
	if s.cfg, err = cfg.absolute(); err != nil {
		return nil, err
	}
	s.host = &host{s.cfg, s.secrets}
	for _, dir := range s.cfg.Dirs {
		u, err := s.host.check(dir)
		if err != nil {
			return nil, err
		}
		sayUser(u, env.Log.With("folder", dir))
	}
	s.web, s.fetcher = newWeb(s.secrets, allowed, cfg.ResultBytes), newFetcher()
	s.watcher = watch(slices.Clone(s.cfg.Dirs), s.files(), env.Log)
	return s, nil
}

// sayUser says who commands run as, where that is not plain.
func sayUser(u process.User, log *slog.Logger) {
	switch {
	case u.IsRoot():
		log.Warn("commands run as root")
	case u.Switched:
		log.Warn("commands run as the folder's owner", "uid", u.UID, "user", u.Name)
	}
}

// absolute gives the folders and files by their absolute paths, each once.
func (c Config) absolute() (Config, error) {
	for _, list := range []*[]string{&c.Dirs, &c.Manifests} {
		var out []string
		for _, path := range *list {
			abs, err := filepath.Abs(path)
			if err != nil {
				return c, invalid("%q: %w", path, err)
			}
			if list == &c.Manifests && isURL(path) {
				abs = path
			}
			if !slices.Contains(out, abs) {
				out = append(out, abs)
			}
		}
		*list = out
	}
	return c, nil
}

// files are the manifests that are files.
func (s *service) files() []string {
	return slices.DeleteFunc(slices.Clone(s.cfg.Manifests), isURL)
}

func (s *service) urls() []string {
	return slices.DeleteFunc(slices.Clone(s.cfg.Manifests), func(m string) bool { return !isURL(m) })
}

func (s *service) close() {
	s.watcher.close()
	s.web.close()
	s.fetcher.close()
}

// run serves until ctx ends; then what runs may finish.
func (s *service) run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	home, err := s.serve(ctx, s.home)
	if err != nil {
		cancel()
		return err
	}
	following := s.follow(ctx)
	err = s.start(ctx)
	if err == nil {
		ready()
		err = s.loop(ctx, home)
	}
	cancel()
	<-following
	return errors.Join(err, s.drained(home))
}

// drained waits for all that is served to end.
func (s *service) drained(home *generation) error {
	all := append(slices.Clone(s.draining), home)
	for _, src := range s.sources {
		if src.now != nil {
			all = append(all, src.now)
		}
	}
	for _, g := range all {
		g.stop()
	}
	var errs []error
	for _, g := range all {
		errs = append(errs, g.wait())
	}
	return errors.Join(errs...)
}

// start serves what there is now.
func (s *service) start(ctx context.Context) error {
	for _, m := range s.urls() {
		f := s.fetch(ctx, m)
		if f.err != nil {
			return f.err
		}
		s.fetched[m] = f
	}
	s.scan(ctx)
	for _, dir := range s.cfg.Dirs {
		if err := s.lost[dir]; err != nil {
			return err
		}
	}
	return s.required()
}

// loop follows changes until ctx ends, or the bus is lost for good, which is an error.
func (s *service) loop(ctx context.Context, home *generation) error {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for {
		if len(s.lost) > 0 {
			poll.Reset(lostPause)
		} else {
			poll.Reset(pollPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-home.done:
			return nil // its error is what the wait for it gives
		case f := <-s.news:
			s.fetched[f.key] = f
		case <-s.watcher.changed:
		case <-poll.C:
		}
		s.watcher.again()
		s.scan(ctx)
	}
}

// scan reads all there is and serves it.
func (s *service) scan(ctx context.Context) {
	var all []found
	for _, dir := range s.cfg.Dirs {
		files, err := readFolder(dir)
		if err != nil {
			if s.lost[dir] == nil {
				s.env.Log.Warn("folder not readable; its tools stay as they are", "folder", dir, "error", err)
			}
			s.lost[dir] = frames.AsError(err)
			continue
		}
		delete(s.lost, dir)
		all = append(all, files...)
	}
	for _, file := range s.files() {
		all = append(all, readManifest(file))
	}
	for _, m := range s.urls() {
		all = append(all, s.fetched[m])
	}
	s.update(ctx, all)
}

// unknown reports whether it cannot be known if a source is still there.
func (s *service) unknown(key string) bool {
	return s.lost[filepath.Dir(key)] != nil || strings.Contains(key, "://")
}

// fetch gets a manifest from its URL.
func (s *service) fetch(ctx context.Context, m string) found {
	f := found{key: m, name: m, published: true}
	if u, err := parseURL(m); err == nil {
		f.name = shownURL(u)
	}
	f.text, f.err = s.fetcher.fetch(ctx, m)
	return f
}

// follow fetches the manifests of URLs again and again; the channel is closed
// when that has ended.
func (s *service) follow(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(s.cfg.Refresh)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			for _, m := range s.urls() {
				select {
				case <-ctx.Done():
					return
				case s.news <- s.fetch(ctx, m):
				}
			}
		}
	}()
	return done
}
