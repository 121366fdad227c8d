package manifesttools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// maxServed is how many tools one service has.
const maxServed = 4096

// source is a file or a URL and what is served of it.
type source struct {
	name string
	// good is the text of now, the generation that is served; nil for none.
	good []byte
	now  *generation
	// tools are their names.
	tools []string
	// problem says why the newest text is not served; nil where it is.
	problem *frames.Error

	// garbled is the digest of the last text that is no JSON or YAML, and why: it
	// takes long to find that out, and files are read again and again.
	garbled [sha256.Size]byte
	why     error
}

// json gives a text as JSON.
func (s *source) json(f found) (json.RawMessage, error) {
	digest := sha256.Sum256(f.text)
	if s.why != nil && s.garbled == digest {
		return nil, s.why
	}
	text, err := asJSON(f.text, f.dir != "" && isYAML(f.key))
	s.garbled, s.why = digest, err
	return text, err
}

// update brings what is served in line with what was found. A source that is gone
// is withdrawn; one that is broken keeps its last good text.
func (s *service) update(ctx context.Context, all []found) {
	seen := map[string]bool{}
	for _, f := range all {
		seen[f.key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(s.sources)) {
		if src := s.sources[key]; !seen[key] && !s.unknown(key) {
			s.env.Log.Info("tools withdrawn", "file", src.name, "tools", src.tools)
			s.retire(src.now)
			delete(s.sources, key)
		}
	}
	for _, f := range all {
		if ctx.Err() != nil {
			return
		}
		s.refresh(ctx, f)
	}
	s.showSkipped()
}

// refresh serves what was found, if that is something new.
func (s *service) refresh(ctx context.Context, f found) {
	src := s.sources[f.key]
	if src == nil {
		src = &source{name: f.name}
		s.sources[f.key] = src
	}
	if f.err == nil && src.now != nil && bytes.Equal(f.text, src.good) {
		src.problem = nil
		return
	}
	err := f.err
	if err == nil {
		err = s.load(ctx, src, f)
	}
	if err == nil {
		src.problem = nil
		s.env.Log.Info("tools served", "file", f.name, "tools", src.tools)
		return
	}
	e := frames.AsError(err)
	if src.problem == nil || src.problem.Message != e.Message {
		s.env.Log.Warn("file skipped", "file", f.name, "error", e.Message, "still_served", src.tools)
	}
	src.problem = e
}

// load puts a text's tools on the bus in the place of the former ones.
func (s *service) load(ctx context.Context, src *source, f found) error {
	text, err := src.json(f)
	if err != nil {
		return err
	}
	entries, err := rules{published: f.published, remote: f.dir == "", dir: f.dir, secrets: s.secrets}.parse(text)
	if err != nil {
		return err
	}
	set, names, err := s.toolset(src, f, entries)
	if err != nil {
		return err
	}
	g, err := s.serve(ctx, set)
	if err != nil {
		return err
	}
	s.retire(src.now)
	src.now, src.good, src.tools = g, f.text, names
	return nil
}

// toolset makes the set of a text's tools.
func (s *service) toolset(src *source, f found, entries []entry) (*tool.Set, []string, error) {
	set := tool.NewSet("manifest-tools")
	taken, count := s.names(src)
	var names []string
	for i := range entries {
		e := &entries[i]
		name := e.decl.Name
		if other, ok := taken[name]; ok {
			return nil, nil, e.at.in("name").refuse("tool %s is declared by %s already", name, other)
		}
		if count++; count > maxServed {
			return nil, nil, e.at.refuse("there are more than %d tools in all", maxServed)
		}
		handler, err := s.handler(f, e)
		if err != nil {
			return nil, nil, err
		}
		if err := set.AddRaw(e.decl, handler); err != nil {
			return nil, nil, e.at.refused(err)
		}
		taken[name] = f.name
		names = append(names, name)
	}
	return set, names, nil
}

// names gives the tools of all sources but one, and how many they are.
func (s *service) names(but *source) (taken map[string]string, count int) {
	taken = map[string]string{}
	for _, src := range s.sources {
		if src == but || src.now == nil {
			continue
		}
		for _, name := range src.tools {
			taken[name] = src.name
		}
		count += len(src.tools)
	}
	return taken, count
}

// handler gives what runs a tool's calls.
func (s *service) handler(f found, e *entry) (tool.Handler, error) {
	if e.endpoint != nil {
		return s.endpointHandler(e.endpoint), nil
	}
	if _, err := s.host.check(f.dir); err != nil {
		return nil, err
	}
	c := e.command
	return func(ctx context.Context, call *tool.Call) (*frames.ToolResult, error) {
		return s.host.run(ctx, c, call)
	}, nil
}

func (s *service) endpointHandler(p *endpoint) tool.Handler {
	return func(ctx context.Context, c *tool.Call) (*frames.ToolResult, error) { return s.web.call(ctx, p, c) }
}

// showSkipped tells who asks what is not served, and why.
func (s *service) showSkipped() {
	var all []tool.Skipped
	for _, key := range slices.Sorted(maps.Keys(s.sources)) {
		if src := s.sources[key]; src.problem != nil {
			all = append(all, tool.Skipped{Source: src.name, Reason: src.problem.Message})
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(s.lost)) {
		all = append(all, tool.Skipped{Source: filepath.Base(dir) + "/", Reason: fmt.Sprintf("cannot be read: %v", errors.Unwrap(s.lost[dir]))})
	}
	s.watcher.any.Store(len(all) > 0)
	s.home.SetSkipped(all)
}

// required gives the problem of a manifest that was named, if it has one.
func (s *service) required() error {
	var errs []error
	for _, m := range s.cfg.Manifests {
		if src := s.sources[m]; src != nil && src.problem != nil {
			e := src.problem
			errs = append(errs, e.With(func(e *frames.Error) { e.Message = "manifest " + src.name + ": " + e.Message }))
		}
	}
	return errors.Join(errs...)
}
