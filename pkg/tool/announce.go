package tool

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// alivePause is how often an instance says that it is there.
	alivePause = 5 * time.Second
	// declarePause is how often the declarations are announced again.
	declarePause = 4 * time.Minute
)

// announceUntil keeps the announcements fresh until ctx ends, or until the
// connection is lost for good, which is an error.
func (s *server) announceUntil(ctx, work context.Context) error {
	alive, declare := time.NewTicker(alivePause), time.NewTicker(declarePause)
	defer alive.Stop()
	defer declare.Stop()
	for {
		added, changed := s.set.after(len(s.tools))
		if len(added) > 0 {
			s.logFailed(s.announceAdded(ctx, work, added))
		}
		if _, n := s.set.skippings(); n != s.skips {
			s.logFailed(s.announceAlive(ctx))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-declare.C:
			s.logFailed(s.announceTools(ctx))
		case <-alive.C:
			if s.conn.NATS().IsClosed() {
				return frames.NewError(frames.CodeUnavailable, "the connection was closed")
			}
			s.logFailed(s.announceAgain(ctx))
		}
	}
}

func (s *server) logFailed(err error) {
	if err != nil {
		s.log.Warn("cannot announce", "error", err)
	}
}

// announceAdded announces tools that were added to the set since.
func (s *server) announceAdded(ctx, work context.Context, names []string) error {
	if err := s.addTools(work, names); err != nil {
		return err
	}
	s.announced = false
	if err := s.flush(ctx); err != nil {
		return err
	}
	return errors.Join(s.announceTools(ctx), s.announceAlive(ctx))
}

// announceAgain says that the instance is alive, and declares its tools to a
// server that was connected since: its catalogue may be empty.
func (s *server) announceAgain(ctx context.Context) error {
	if !s.announced || s.conn.NATS().Stats().Reconnects != s.reconnects {
		return errors.Join(s.announceTools(ctx), s.announceAlive(ctx))
	}
	return s.announceAlive(ctx)
}

// announceTools announces the declarations of all tools.
func (s *server) announceTools(ctx context.Context) error {
	s.announced, s.reconnects = false, s.conn.NATS().Stats().Reconnects
	for _, name := range s.tools {
		f := frames.Description(s.declaration(name), frames.WithTime(time.Now()), frames.WithMeta("since", s.since.UnixMilli()))
		if err := s.conn.Publish(ctx, s.conn.AnnounceTool(s.conn.Identity(), s.id, name), frames.Msgpack, &f); err != nil {
			return err
		}
	}
	s.announced = true
	return nil
}

// declaration gives a tool's declaration as this instance's.
func (s *server) declaration(name string) *frames.Declaration {
	d := s.set.find(name).decl
	d.Identity, d.Instance = s.conn.Identity(), s.id
	return &d
}

func (s *server) announceAlive(ctx context.Context) error {
	_, s.skips = s.set.skippings()
	return s.publish(ctx, frames.Meta(s.alive(), frames.WithTime(time.Now())))
}

// alive is what an instance says of its state.
func (s *server) alive() map[string]any {
	tools, keys := map[string]any{}, []string{}
	for _, d := range s.set.Declarations() {
		tools[d.Name] = map[string]any{"slots": d.Concurrency, "inFlight": s.calls.load(d.Name)}
		keys = append(keys, d.Keys...)
	}
	slices.Sort(keys)
	said := map[string]any{"alive": true, "tools": tools, "keys": slices.Compact(keys)}
	if skipped, _ := s.set.skippings(); len(skipped) > 0 {
		said["skipped"] = skipped
	}
	return said
}

// withdraw tells that this instance takes no more calls.
func (s *server) withdraw(ctx context.Context) {
	s.logFailed(s.publish(ctx, frames.End(frames.EndDrained, frames.WithTime(time.Now()))))
}

func (s *server) publish(ctx context.Context, f frames.Frame) error {
	return s.conn.Publish(ctx, s.conn.Announce(s.conn.Identity(), s.id), frames.Msgpack, &f)
}
