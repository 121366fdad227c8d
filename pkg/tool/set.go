package tool

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// maxSkipped is how many things that are skipped are told.
const maxSkipped = 32

// Handler runs one call of a tool. Its context ends at the tool's time-out, at
// CANCEL and at the end of the service; what it returns later than 3 s after
// that is dropped. A nil result without an error is {}. A result beside an error
// reaches the caller with it: a command's output and its exit status.
type Handler func(ctx context.Context, c *Call) (*frames.ToolResult, error)

// Set is the tools of one service. It may be served several times, and added to
// while it is served. It is safe for concurrent use.
type Set struct {
	service string

	mu      sync.RWMutex
	tools   map[string]*declared
	order   []string
	skipped []Skipped
	skips   int // how often skipped was set
	changed chan struct{}
}

// Skipped is something that a service would take tools from and cannot, such as a
// file that is broken.
type Skipped struct {
	// Source names it, for people; at most 128 bytes are told.
	Source string `json:"source"`
	// Reason says why, for people; at most 512 bytes are told.
	Reason string `json:"reason"`
}

// declared is a tool as it was added; it does not change.
type declared struct {
	decl frames.Declaration
	in   *schema.Schema
	out  *schema.Schema // nil: any result
	run  Handler
}

// NewSet makes an empty set; service is the name of the program in logs and
// lists, checked by [Set.AddRaw].
func NewSet(service string) *Set {
	return &Set{service: service, tools: map[string]*declared{}, changed: make(chan struct{})}
}

// Service gives the service's name.
func (s *Set) Service() string { return s.service }

// AddRaw adds a tool by its declaration. Fields left out get their defaults:
// those of [frames.Declaration.Check], 16 calls at once, and output limits of
// 51200 bytes and 2000 lines from the head. The error is VALIDATION_INPUT or
// TOO_LARGE for a bad name or schema, CONFLICT for a name that the set has.
func (s *Set) AddRaw(decl frames.Declaration, run Handler) error {
	t, err := declare(decl, run)
	if err != nil {
		return err
	}
	if !frames.ValidName(s.service) {
		return frames.NewError(frames.CodeValidationInput, "invalid service name %q: it must have 1 to 64 letters, digits, _ or -", s.service)
	}
	t.decl.Service = s.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools[decl.Name] != nil {
		return frames.NewError(frames.CodeConflict, "service %s has a tool %q already", s.service, decl.Name)
	}
	s.tools[decl.Name] = t
	s.order = append(s.order, decl.Name)
	s.tell()
	return nil
}

// SetSkipped tells who lists tools what the service cannot take tools from, in
// place of what it told before. At most 32 are told.
func (s *Set) SetSkipped(all []Skipped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(all, s.skipped) {
		return
	}
	s.skipped = slices.Clone(all)
	s.skips++
	s.tell()
}

// tell wakes who serves the set; s.mu is held.
func (s *Set) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// skippings gives what is skipped, bounded, and how often that was set.
func (s *Set) skippings() ([]Skipped, int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	told := []Skipped{}
	for _, k := range s.skipped[:min(len(s.skipped), maxSkipped)] {
		told = append(told, Skipped{jsontext.Clip(k.Source, 128), jsontext.Clip(k.Reason, 512)})
	}
	return told, s.skips
}

// Declarations gives what the tools say of themselves, in the order they were added.
func (s *Set) Declarations() []frames.Declaration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]frames.Declaration, 0, len(s.order))
	for _, name := range s.order {
		all = append(all, s.tools[name].decl.Clone())
	}
	return all
}

func (s *Set) find(name string) *declared {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tools[name]
}

// after gives the names from the n-th on, and a channel that is closed when
// another tool is added.
func (s *Set) after(n int) ([]string, <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.order[min(n, len(s.order)):]), s.changed
}

// declare checks a declaration and compiles its schemas.
func declare(decl frames.Declaration, run Handler) (*declared, error) {
	if err := decl.Check(); err != nil {
		return nil, err
	}
	if run == nil {
		return nil, frames.NewError(frames.CodeValidationInput, "tool %s has no handler", decl.Name)
	}
	if err := fill(&decl); err != nil {
		return nil, err
	}
	t := &declared{run: run}
	var err error
	if t.in, err = compile(decl.Name, "schema", decl.Schema); err != nil {
		return nil, err
	}
	if decl.OutputSchema != nil {
		if t.out, err = compile(decl.Name, "output schema", decl.OutputSchema); err != nil {
			return nil, err
		}
	}
	decl.SetDigest()
	t.decl = decl.Clone() // nobody changes it any more
	return t, nil
}

// fill sets the defaults that hold for tools with an SDK, and refuses values
// that the protocol does not know.
func fill(d *frames.Declaration) error {
	if d.Concurrency == 0 {
		d.Concurrency = frames.DefaultConcurrency
	}
	l := &d.OutputLimits
	*l = frames.OutputLimits{MaxBytes: or(l.MaxBytes, 51200), MaxLines: or(l.MaxLines, 2000), Retain: or(l.Retain, "head")}
	bad := func(field string, v any) error {
		return frames.NewError(frames.CodeValidationInput, "tool %s: %s %v is not allowed", d.Name, field, v)
	}
	switch {
	case d.Concurrency < 0:
		return bad("concurrency", d.Concurrency)
	case l.MaxBytes < 0 || l.MaxLines < 0 || !slices.Contains([]string{"head", "tail", "both"}, l.Retain):
		return bad("outputLimits", *l)
	case d.Replay != frames.ReplaySafe && d.Replay != frames.ReplayUnsafe:
		return bad("replay", d.Replay)
	case d.ExecutionMode != frames.Parallel && d.ExecutionMode != frames.Sequential:
		return bad("executionMode", d.ExecutionMode)
	case d.TimeoutMs != nil && *d.TimeoutMs < 0:
		return bad("timeoutMs", *d.TimeoutMs)
	case d.IdleTimeoutMs < 0:
		return bad("idleTimeoutMs", d.IdleTimeoutMs)
	case d.Backoff.BaseMs < 0 || d.Backoff.MaxMs < 0 || d.Backoff.TotalMs < 0:
		return bad("backoff", d.Backoff)
	case slices.Contains(d.Keys, ""):
		return bad("keys", d.Keys)
	}
	return nil
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func compile(name, which string, text json.RawMessage) (*schema.Schema, error) {
	s, err := schema.Compile(text)
	if err != nil {
		return nil, frames.AsError(err).With(func(e *frames.Error) {
			e.Message = which + " of tool " + name + ": " + e.Message
		})
	}
	return s.Named(name), nil
}
