package registry

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// settingWait is how long one request for newer settings stands.
	settingWait = 20 * time.Second
	// settingPause is between two tries to follow the settings.
	settingPause = time.Second
	// keepEach is how often a keeper tries again to note what it could not.
	keepEach = 30 * time.Second
	// changeTries is how often a change is tried while others write the same key.
	changeTries = 10
	// changeLimit bounds a change, and tryLimit each try: an election takes 4 to 9 s,
	// and a client waits 15.
	changeLimit = 12 * time.Second
	tryLimit    = 5 * time.Second
)

// Error codes of a lost compare-and-set on a subject.
const (
	errWrongLastSequence         = 10071
	errWrongLastSequenceConstant = 10164
)

// followSettings reads what operators decided, until ctx ends. known gets nil
// when all that is decided so far was read, or why it cannot be read the first
// time, which ends it.
func (r *Registry) followSettings(ctx context.Context, known func(error)) {
	told := false
	err := r.watchSettings(ctx, func() { known(nil); told = true })
	if !told {
		known(err)
		return
	}
	for ctx.Err() == nil {
		r.cfg.Log.Info("reading again what operators decided", "why", err)
		if pause.For(ctx, settingPause) == nil {
			err = r.watchSettings(ctx, func() {})
		}
	}
}

// watchSettings takes every setting and then each new one, until that ends.
func (r *Registry) watchSettings(ctx context.Context, known func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.rewatch.Store(&stop)
	consumer, forget, err := r.open(ctx, assets.ToolsStream(r.cfg.Prefix), assets.ToolSubject(r.cfg.Prefix, ">"))
	if err != nil {
		return err
	}
	defer forget()
	if err := r.read(ctx, consumer, r.takeSetting); err != nil {
		return err
	}
	known()
	for ctx.Err() == nil {
		if err := r.awaitSettings(ctx, consumer); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// awaitSettings takes what is decided within a while.
func (r *Registry) awaitSettings(ctx context.Context, consumer jetstream.Consumer) error {
	ctx, stop := context.WithTimeout(ctx, settingWait)
	defer stop()
	batch, err := consumer.Fetch(readBatch, jetstream.FetchContext(ctx))
	if err != nil {
		return unreadable(err)
	}
	for m := range batch.Messages() {
		if meta, err := m.Metadata(); err == nil {
			r.takeSetting(m, meta)
		}
	}
	if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return unreadable(err)
	}
	return nil
}

func (r *Registry) takeSetting(m jetstream.Msg, meta *jetstream.MsgMetadata) {
	tool := strings.TrimPrefix(m.Subject(), assets.ToolSubject(r.cfg.Prefix, ""))
	s, err := settingFrom(m.Data())
	if err != nil || !frames.ValidName(tool) {
		r.cfg.Log.Warn("skipped what is no setting of a tool", "subject", m.Subject(), "error", err)
		return
	}
	r.cat.set(tool, meta.Sequence.Stream, s)
}

// Setting gives what is decided about a name.
func (r *Registry) Setting(tool string) Setting { return r.cat.setting(tool) }

// Change changes what is decided about a tool, for all dispatchers, and gives what
// holds then. An error of f leaves it as it is. UNAVAILABLE may mean that nobody
// knows whether it was written.
func (r *Registry) Change(ctx context.Context, tool string, f func(*Setting) error) (Setting, error) {
	ctx, stop := context.WithTimeout(ctx, changeLimit)
	defer stop()
	js, err := jetstream.New(r.conn.NATS())
	if err != nil {
		return Setting{}, frames.NewError(frames.CodeUnavailable, "JetStream: %w", err)
	}
	stream, err := assets.Stream(ctx, js, assets.ToolsStream(r.cfg.Prefix))
	if err != nil {
		return Setting{}, err
	}
	c := change{js: js, stream: stream, subject: assets.ToolSubject(r.cfg.Prefix, tool), nonce: nuid.Next()}
	for range changeTries {
		k, again, err := c.try(ctx, f)
		if err != nil {
			return Setting{}, err
		}
		if !again {
			r.cat.set(tool, k.revision, k.Setting)
			return k.Setting, nil
		}
	}
	return Setting{}, frames.NewError(frames.CodeUnavailable, "the setting of tool %s cannot be written now: try again", tool)
}

// change is one change of a key, by compare-and-set.
type change struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	subject string
	nonce   string
}

// try reads the key and writes it once. What an earlier try wrote whose outcome
// was not known is found by its nonce.
func (c *change) try(ctx context.Context, f func(*Setting) error) (k kept, again bool, err error) {
	ctx, stop := context.WithTimeout(ctx, tryLimit)
	defer stop()
	if k, err = c.head(ctx); err != nil || k.Nonce == c.nonce {
		return k, false, err
	}
	before := k.Setting
	if err := f(&k.Setting); err != nil || k.Setting == before {
		return k, false, err
	}
	k.Nonce = c.nonce
	k.revision, again, err = c.write(ctx, k)
	return k, again, err
}

// head reads the newest revision from the stream's leader.
func (c *change) head(ctx context.Context) (kept, error) {
	msg, err := c.stream.GetLastMsgForSubject(ctx, c.subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return kept{}, nil
	case err != nil:
		return kept{}, frames.NewError(frames.CodeUnavailable, "what operators decided cannot be read: %w", err)
	}
	s, _ := settingFrom(msg.Data) // what is no setting is written over
	return kept{s, msg.Sequence}, nil
}

func (c *change) write(ctx context.Context, k kept) (revision uint64, again bool, err error) {
	data, err := json.Marshal(k.Setting)
	if err != nil {
		return 0, false, frames.NewError(frames.CodeInternal, "setting: %w", err)
	}
	m := &nats.Msg{Subject: c.subject, Data: data, Header: nats.Header{}}
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(k.revision, 10))
	ack, err := c.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err == nil {
		return ack.Sequence, false, nil
	}
	api, refused := errors.AsType[*jetstream.APIError](err)
	if refused && api.ErrorCode != errWrongLastSequence && api.ErrorCode != errWrongLastSequenceConstant {
		return 0, false, frames.NewError(frames.CodeUnavailable, "what was decided cannot be kept: %w", err)
	}
	return 0, true, nil // somebody else was first, or nobody knows
}

// Keep notes who has a name that several identities declare, so that dispatchers
// that start later give it to the same one. It blocks until ctx ends; routers call
// it, who may write settings.
func (r *Registry) Keep(ctx context.Context) {
	again := time.NewTicker(keepEach)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.cat.contested:
		case <-again.C:
		}
		for name, n := range r.cat.takeContests() {
			if err := r.keep(ctx, name, n); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("cannot note who has a tool's name", "tool", name, "error", err)
				r.cat.noteAgain(name, n)
			}
		}
	}
}

func (r *Registry) keep(ctx context.Context, name string, n contest) error {
	_, err := r.Change(ctx, name, func(s *Setting) error {
		switch {
		case n.owner != "" && s.Route == "":
			s.Route, s.Auto = n.owner, true
		case n.owner == "" && s.Auto && s.Route == n.was:
			s.Route, s.Auto = "", false
		}
		return nil
	})
	return err
}
