package engine

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Model answers requests whose Model is "provider/model"; see [provider.Provider]
// for the rules of the stream.
type Model interface {
	Stream(ctx context.Context, req *provider.Request) iter.Seq2[provider.Event, error]
}

// Tools are what a run may call.
type Tools interface {
	// Offer gives the tools as a model sees them, each time in the same order.
	Offer(ctx context.Context) []provider.Tool
	// Prepare checks a call: the tool is one of those offered, and the arguments
	// fit. Nothing acts yet. Its error becomes the call's result.
	Prepare(ctx context.Context, c Call) (*Ticket, error)
}

// Ticket is a call that was prepared and may be started.
type Ticket struct {
	// Identity is whose tool was chosen, Replay its replay class.
	Identity, Replay string
	// Sequential makes the call a barrier of its round.
	Sequential bool
	// Lock: of the calls of a round with the same lock one runs at a time; empty is none.
	Lock string
	// Limits bound the text that the model sees of the result.
	Limits frames.OutputLimits
	// Repairs names what was done to the arguments.
	Repairs []string
	// Outside says that somebody outside of the mesh runs the call, and that the
	// journal learns of its result first: see [Runner.Recorded]. Start hands the
	// call over, and says so by a nil result; a result says that it could not.
	Outside bool
	Start   StartCall
}

// StartCall runs a prepared call under the id and returns at once. live takes TEXT
// and PROGRESS frames of the tool, done the one result; both may be called from
// any goroutine. cancel ends the call: the result has the cause as its error
// unless the tool was faster. An end of ctx does not end the call.
type StartCall func(ctx context.Context, id string, live func(*frames.Frame), done func(*frames.ToolResult)) (cancel func(cause error))

// ErrDrained says that a run was left where another process can go on with it.
var ErrDrained = errors.New("the run was left for another process")

// ErrParked says that the run cannot go on before somebody outside of the mesh
// acts: who has its calls, or who is its model.
var ErrParked = errors.New("the run waits for somebody outside of the mesh")

// ErrRecorded is the journal's error for a result of a call that somebody outside
// answered first: nothing was kept. Compare with errors.Is.
var ErrRecorded error = frames.NewError(frames.CodeConflict, "the call has a result already").WithReason("recorded")

// TickEach is how often a run says that it goes on.
const TickEach = 5 * time.Second

// Config sets up a Runner.
type Config struct {
	Params Params
	Start  Start
	// Elapsed is how much of the run's MaxDuration went before.
	Elapsed time.Duration

	// Model, Tools and Journal are required; without a Model the run ends with
	// ErrParked where it would ask one.
	Model   Model
	Tools   Tools
	Journal Journal
	// Live takes what is shown as it happens: TEXT and THINKING of the model, TEXT
	// and PROGRESS of tools with their call, META of repaired arguments, TICK each 5 s. It may be called from
	// several goroutines and must not block. Default: nothing is shown.
	Live func(frames.Frame)
	// Stream names the model request behind so many rounds. Default: no name.
	Stream func(rounds int) string
	// MayAct is asked before calls start; an error ends the run at once.
	// Default: they may.
	MayAct func(ctx context.Context) error
}

func (c Config) withDefaults() Config {
	if c.Live == nil {
		c.Live = func(frames.Frame) {}
	}
	if c.Stream == nil {
		c.Stream = func(int) string { return "" }
	}
	if c.MayAct == nil {
		c.MayAct = func(context.Context) error { return nil }
	}
	return c
}

// Runner drives one run. Run is called once; Cancel and Drain at any time, from
// any goroutine.
type Runner struct {
	cfg     Config
	machine *Machine
	prepare Prepare

	// results are those of the open round's calls, cancels end them; stream names
	// the model request that made them.
	stream  string
	results chan settled
	cancels map[string]func(error)

	stopOnce sync.Once
	stopping chan struct{} // closed when end is set
	end      End

	drainOnce sync.Once
	draining  chan struct{}

	// recorded are results that the journal learned of first.
	mu       sync.Mutex
	recorded []settled
	told     chan struct{}
}

// settled is the result of a call; nil says that it was handed over.
type settled struct {
	id     string
	result *frames.ToolResult
}

// New makes a runner.
func New(cfg Config) *Runner {
	return &Runner{
		cfg: cfg.withDefaults(), machine: NewMachine(cfg.Params, cfg.Start),
		stopping: make(chan struct{}), draining: make(chan struct{}), told: make(chan struct{}, 1),
	}
}

// Recorded tells the run of the result of a call in the hands of somebody outside,
// which the journal has already. It may be called from any goroutine and does not
// block; of a call that is not open it changes nothing.
func (r *Runner) Recorded(id string, res *frames.ToolResult) {
	r.mu.Lock()
	r.recorded = append(r.recorded, settled{id, res})
	r.mu.Unlock()
	select {
	case r.told <- struct{}{}:
	default: // it will look
	}
}

// Cancel ends the run: the model request is given up, running calls are
// cancelled, nothing more starts. After the run's end it changes nothing.
func (r *Runner) Cancel() { r.stop(Cancelled()) }

// Drain makes Run return ErrDrained instead of asking the model again. Calls that
// run, and those of their round, are finished and kept.
func (r *Runner) Drain() { r.drainOnce.Do(func() { close(r.draining) }) }

func (r *Runner) stop(end End) {
	r.stopOnce.Do(func() {
		r.end = end
		close(r.stopping)
	})
}

func (r *Runner) stopped() bool {
	select {
	case <-r.stopping:
		return true
	default:
		return false
	}
}

func (r *Runner) drained() bool {
	select {
	case <-r.draining:
		return true
	default:
		return false
	}
}

// Run runs until the end, which it gives. When ctx ends, or the journal fails, it
// returns the error at once: what runs is then left to itself, nothing is kept or
// shown any more.
func (r *Runner) Run(ctx context.Context) (End, error) {
	preparing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer whenClosed(r.stopping, func() { cancel(frames.NewError(frames.CodeCancelled, "the run is stopped")) })()
	r.prepare = func(c Call) (*Ticket, error) { return r.cfg.Tools.Prepare(preparing, c) }
	quiet := r.tick()
	defer quiet()
	defer r.limitDuration()()
	if err := r.resume(ctx); err != nil {
		return End{}, err
	}
	for {
		if err := r.checkStop(ctx); err != nil {
			return End{}, err
		}
		switch s := r.machine.Next().(type) {
		case Over:
			return s.End, nil
		case Ask:
			if err := r.ask(ctx); err != nil {
				return End{}, err
			}
		case Run:
			if err := r.start(ctx, s.Calls); err != nil {
				return End{}, err
			}
		case Wait:
			if err := r.wait(ctx); err != nil {
				return End{}, err
			}
		case Park:
			if done, err := r.takeRecorded(ctx); err != nil || !done {
				return End{}, parked(err)
			}
		}
	}
}

func parked(err error) error {
	if err == nil {
		return ErrParked
	}
	return err
}

// tick shows that the run goes on until the function it gives is called.
func (r *Runner) tick() (quiet func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(TickEach)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				r.cfg.Live(frames.Tick())
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// limitDuration ends the run when its time is used up.
func (r *Runner) limitDuration() (stop func()) {
	most := r.cfg.Params.MaxDuration
	if most <= 0 {
		return func() {}
	}
	err := frames.NewError(frames.CodeLimit, "maxDurationMs: the run's %d ms are used up", most.Milliseconds())
	t := time.AfterFunc(max(most-r.cfg.Elapsed, 0), func() { r.stop(End{frames.EndLimit, err}) })
	return func() { t.Stop() }
}

func (r *Runner) resume(ctx context.Context) error {
	if r.stopped() {
		return nil
	}
	n := len(r.cfg.Start.Pending)
	r.open(n, r.cfg.Start.Stream)
	return r.commit(ctx, r.machine.Resume(r.prepare))
}

// open makes room for a round of n calls of a model request, so that their
// results never block.
func (r *Runner) open(n int, stream string) {
	r.stream = stream
	r.results = make(chan settled, 2*n) // handed over, and a result
	r.cancels = make(map[string]func(error), n)
}

// checkStop tells the machine of a stop that was asked for.
func (r *Runner) checkStop(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !r.stopped() || r.machine.stop != nil {
		return nil
	}
	if err := r.commit(ctx, r.machine.Stop(r.end)); err != nil {
		return err
	}
	for id, cancel := range r.cancels {
		cancel(StopError(r.machine.tool(id), r.end))
	}
	return nil
}

// commit keeps a commit, then makes it so.
func (r *Runner) commit(ctx context.Context, c *Commit) error {
	var ids []string
	if !c.empty() {
		var err error
		if ids, err = r.cfg.Journal.Commit(ctx, c); err != nil {
			return err
		}
	}
	r.machine.Accept(c, ids)
	return nil
}

// ask streams one model request and commits its answer.
func (r *Runner) ask(ctx context.Context) error {
	switch {
	case r.drained():
		return ErrDrained
	case r.cfg.Model == nil:
		return ErrParked
	}
	stream := r.cfg.Stream(r.machine.Used().Rounds)
	turn, err := r.request(ctx, stream)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.stopped():
		return nil // what came is given up
	case err != nil:
		return r.commit(ctx, r.machine.Failed(err, turn.Stop.Usage))
	case r.drained() && len(turn.Calls) > 0:
		return ErrDrained // they would wait for another process, which asks the model again
	}
	r.open(len(turn.Calls), stream)
	err = r.commit(ctx, r.machine.Answer(turn, r.prepare))
	if frames.CodeOf(err) == frames.CodeTooLarge {
		err = r.commit(ctx, r.machine.Failed(err, turn.Stop.Usage))
	}
	return err
}

func (r *Runner) request(ctx context.Context, stream string) (*provider.Turn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer whenClosed(r.stopping, cancel)()
	req := r.machine.Request(r.cfg.Tools.Offer(ctx))
	req.StreamID = stream
	return provider.Collect(r.shown(r.cfg.Model.Stream(ctx, req), stream))
}

// whenClosed calls f when c is closed, unless the function it gives is called before.
func whenClosed(c <-chan struct{}, f func()) (forget func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-c:
			f()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// shown passes the events of a stream on and shows text and thinking.
func (r *Runner) shown(events iter.Seq2[provider.Event, error], stream string) iter.Seq2[provider.Event, error] {
	return func(yield func(provider.Event, error) bool) {
		for event, err := range events {
			if !r.stopped() {
				r.show(event, stream)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

func (r *Runner) show(event provider.Event, stream string) {
	switch e := event.(type) {
	case provider.Text:
		r.cfg.Live(frames.Text(e.Text, frames.WithStream(stream)))
	case provider.Thinking:
		r.cfg.Live(ThinkingFrame(e, frames.WithStream(stream)))
	}
}

// ThinkingFrame gives the frame of a piece of thinking.
func ThinkingFrame(t provider.Thinking, opts ...frames.Option) frames.Frame {
	if t.Redacted {
		opts = append(opts, frames.WithMeta("redacted", true))
	}
	return frames.Thinking(t.Text, t.Signature, opts...)
}

func (r *Runner) start(ctx context.Context, calls []RunCall) error {
	if err := r.cfg.MayAct(ctx); err != nil {
		return err
	}
	results := r.results
	for _, c := range calls {
		of := []frames.Option{frames.WithCall(c.ID, WireName(c.Name)), frames.WithStream(r.stream)}
		if len(c.Ticket.Repairs) > 0 {
			r.cfg.Live(frames.Meta(map[string]any{"repairs": c.Ticket.Repairs}, of...))
		}
		live := r.toolFrames(of...)
		r.cancels[c.ID] = c.Ticket.Start(ctx, c.ID, live, func(res *frames.ToolResult) { results <- settled{c.ID, res} })
	}
	return nil
}

// toolFrames shows the frames of a running tool; the run has a TICK of its own.
func (r *Runner) toolFrames(opts ...frames.Option) func(*frames.Frame) {
	return func(f *frames.Frame) {
		if f.Type == frames.TypeTick {
			return
		}
		shown := *f
		shown.Seq = 0
		for _, o := range opts {
			o(&shown)
		}
		r.cfg.Live(shown)
	}
}

// wait takes the next result, or a stop.
func (r *Runner) wait(ctx context.Context) error {
	stopping := r.stopping
	if r.machine.stop != nil {
		stopping = nil // known already
	}
	select {
	case s := <-r.results:
		return r.settle(ctx, s)
	case <-r.told:
		_, err := r.takeRecorded(ctx)
		return err
	case <-stopping:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settle commits a result; one that the journal has no room for is answered TOO_LARGE.
func (r *Runner) settle(ctx context.Context, s settled) error {
	if s.result == nil {
		r.machine.HandedOver(s.id)
		return nil
	}
	delete(r.cancels, s.id)
	c := r.machine.Result(s.id, s.result)
	if c == nil {
		return nil // not the first
	}
	err := r.commit(ctx, c)
	if errors.Is(err, ErrRecorded) {
		return nil // it comes by Recorded
	}
	if e := frames.AsError(err); e != nil && e.Code == frames.CodeTooLarge {
		e = e.With(func(e *frames.Error) { e.Effect = frames.EffectDone })
		return r.commit(ctx, r.machine.Result(s.id, &frames.ToolResult{Err: e}))
	}
	return err
}

// takeRecorded commits what follows from results that the journal has already;
// done is false where there were none.
func (r *Runner) takeRecorded(ctx context.Context) (done bool, err error) {
	r.mu.Lock()
	all := r.recorded
	r.recorded = nil
	r.mu.Unlock()
	for _, s := range all {
		c := r.machine.Recorded(s.id, s.result)
		if c == nil {
			continue
		}
		if cancel := r.cancels[s.id]; cancel != nil {
			cancel(ErrRecorded)
			delete(r.cancels, s.id)
		}
		if err := r.commit(ctx, c); err != nil {
			return true, err
		}
		done = true
	}
	return done, nil
}
