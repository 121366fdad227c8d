package frames

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits and defaults of a declaration.
const (
	MaxDescription = 4 << 10
	MaxSchema      = 64 << 10
	// DefaultTimeout is the time a call may run where its tool says nothing.
	DefaultTimeout = 30 * time.Second
	// MaxTimeout is the ceiling that holds for tools without a time-out.
	MaxTimeout = time.Hour
	// MaxCallDepth is how deep calls may be nested: a tool may run a loop, whose
	// tools may. Calls of each depth have slots of their own.
	MaxCallDepth = 4
	// MaxRetries is how many attempts beyond the first a tool may ask for.
	MaxRetries = 100
	// DefaultBackoff and DefaultMaxBackoff bound the waits between attempts of a
	// tool that says nothing of them.
	DefaultBackoff    = 100 * time.Millisecond
	DefaultMaxBackoff = 5 * time.Second
	// DefaultConcurrency is how many calls of a tool an SDK instance runs at once.
	DefaultConcurrency = 16
	// DefaultMaxBytes and DefaultMaxLines bound the text that a model sees of a
	// result.
	DefaultMaxBytes = 50 << 10
	DefaultMaxLines = 2000
	// DefaultSchema is the schema of a tool that declares none.
	DefaultSchema = `{"type":"object","properties":{},"required":[]}`
)

// Replay classes: whether a call that was interrupted may run again.
const (
	ReplayUnsafe = "unsafe"
	ReplaySafe   = "safe"
)

// Execution modes of a tool within one round.
const (
	Parallel   = "parallel"
	Sequential = "sequential"
)

// Ends of an output that is over its limits that are kept.
const (
	RetainHead = "head"
	RetainTail = "tail"
	RetainBoth = "both"
)

// Annotations are what a tool says of its effects.
type Annotations struct {
	ReadOnly             bool `json:"readOnly,omitempty"`
	Destructive          bool `json:"destructive,omitempty"`
	Idempotent           bool `json:"idempotent,omitempty"`
	OpenWorld            bool `json:"openWorld,omitempty"`
	Expensive            bool `json:"expensive,omitempty"`
	RequiresConfirmation bool `json:"requiresConfirmation,omitempty"`
	// Polling: the tool is meant to be called alike again and again, until its
	// result changes.
	Polling bool `json:"polling,omitempty"`
}

// OutputLimits bound the text that a model sees of a result. Zero fields are
// DefaultMaxBytes, DefaultMaxLines and RetainHead.
type OutputLimits struct {
	MaxBytes int    `json:"maxBytes,omitempty"`
	MaxLines int    `json:"maxLines,omitempty"`
	Retain   string `json:"retain,omitempty"`
}

// Backoff says how far apart the attempts of a call are: the wait before the
// n-th further attempt is random, from 0 to BaseMs·2ⁿ⁻¹ but at most MaxMs. Zero
// fields are DefaultBackoff, DefaultMaxBackoff and, for TotalMs, MaxTimeout: all
// attempts and waits together.
type Backoff struct {
	BaseMs  int64 `json:"baseMs,omitempty"`
	MaxMs   int64 `json:"maxMs,omitempty"`
	TotalMs int64 `json:"totalMs,omitempty"`
}

// Most gives the longest wait before further attempt n, which counts from 1.
func (b Backoff) Most(n int) time.Duration {
	most := milliseconds(b.MaxMs, DefaultMaxBackoff)
	wait := milliseconds(b.BaseMs, DefaultBackoff)
	for ; n > 1 && wait < most; n-- {
		wait *= 2
	}
	return min(wait, most)
}

// Total gives the time of all attempts together.
func (b Backoff) Total() time.Duration { return milliseconds(b.TotalMs, MaxTimeout) }

// milliseconds gives a time of a declaration, at most MaxTimeout; absent is for 0.
func milliseconds(ms int64, absent time.Duration) time.Duration {
	switch {
	case ms <= 0:
		return absent
	case ms > MaxTimeout.Milliseconds():
		return MaxTimeout
	}
	return time.Duration(ms) * time.Millisecond
}

// Declaration is what a tool says of itself: the content of a DESCRIPTION
// (docs/protocol.md, section 4).
type Declaration struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description"`
	Schema       json.RawMessage `json:"-"`
	OutputSchema json.RawMessage `json:"-"`
	Version      string          `json:"version"`
	Digest       string          `json:"digest,omitempty"`
	Service      string          `json:"service,omitempty"`
	Identity     string          `json:"identity,omitempty"`
	Instance     string          `json:"instance,omitempty"`
	Protocol     int             `json:"protocol"`
	Encodings    []string        `json:"encodings,omitempty"`
	Capabilities []string        `json:"capabilities,omitempty"`
	Annotations  Annotations     `json:"annotations"`
	// Transactional and Reversible are kept for undo.
	Transactional bool `json:"transactional,omitempty"`
	Reversible    bool `json:"reversible,omitempty"`
	// TimeoutMs: nil is what the dispatcher takes for tools that say nothing,
	// DefaultTimeout if it does not; 0 is none.
	TimeoutMs *int64 `json:"timeoutMs,omitempty"`
	// IdleTimeoutMs is how long a call may be silent; 0 is for ever.
	IdleTimeoutMs int64 `json:"idleTimeoutMs,omitempty"`
	// Retries counts attempts beyond the first.
	Retries       int     `json:"retries,omitempty"`
	Backoff       Backoff `json:"backoff,omitzero"`
	Replay        string  `json:"replay,omitempty"`
	ExecutionMode string  `json:"executionMode,omitempty"`
	// LockKey names an argument: calls with the same value of it run one at a time.
	LockKey string `json:"lockKey,omitempty"`
	// Concurrency: 0 is unlimited.
	Concurrency  int          `json:"concurrency,omitempty"`
	Keys         []string     `json:"keys,omitempty"`
	OutputLimits OutputLimits `json:"outputLimits"`
	// Extra holds further fields that an application added, ExtraAnnotations
	// those of the annotations; they are kept.
	Extra            Fields `json:"-"`
	ExtraAnnotations Fields `json:"-"`
}

const namePattern = "^[A-Za-z0-9_-]{1,64}$"

// ValidName reports whether s may be a tool's name, a call id, a caller, an
// identity, an instance or a session: ^[A-Za-z0-9_-]{1,64}$.
func ValidName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 64
}

// Timeout gives the time a call may run: DefaultTimeout where none is declared,
// MaxTimeout where it is 0 or above that.
func (d *Declaration) Timeout() time.Duration { return d.TimeoutOr(DefaultTimeout) }

// TimeoutOr is Timeout with another default.
func (d *Declaration) TimeoutOr(absent time.Duration) time.Duration {
	if d.TimeoutMs == nil || *d.TimeoutMs < 0 {
		return absent
	}
	return milliseconds(*d.TimeoutMs, MaxTimeout)
}

// IdleTimeout gives how long a call may be silent; 0 is for ever.
func (d *Declaration) IdleTimeout() time.Duration { return milliseconds(d.IdleTimeoutMs, 0) }

// ReplaySafe reports whether a call may run again after it was interrupted.
func (d *Declaration) ReplaySafe() bool { return d.Replay == ReplaySafe }

// Clone gives a copy that may be changed.
func (d *Declaration) Clone() Declaration {
	c := *d
	c.Schema, c.OutputSchema = slices.Clone(d.Schema), slices.Clone(d.OutputSchema)
	c.Encodings, c.Capabilities, c.Keys = slices.Clone(d.Encodings), slices.Clone(d.Capabilities), slices.Clone(d.Keys)
	c.Extra, c.ExtraAnnotations = d.Extra.Clone(), d.ExtraAnnotations.Clone()
	if d.TimeoutMs != nil {
		ms := *d.TimeoutMs
		c.TimeoutMs = &ms
	}
	return c
}

// Encoding gives the encoding in which the tool is called: JSON where it speaks
// nothing else.
func (d *Declaration) Encoding() Encoding {
	if len(d.Encodings) > 0 && !slices.Contains(d.Encodings, Msgpack.String()) && slices.Contains(d.Encodings, JSON.String()) {
		return JSON
	}
	return Msgpack
}

// Check refuses a declaration whose name, size or words break the protocol, and
// fills the defaults of the fields that were left out, but for the time-out, which
// is the dispatcher's to fill. Whether the schema
// compiles is not checked here.
func (d *Declaration) Check() error {
	if !ValidName(d.Name) {
		return declarationError("/name", fmt.Sprintf("invalid tool name %q: it must match %s", shorten(d.Name), namePattern))
	}
	for _, size := range []struct {
		path     string
		n, limit int
	}{
		{"/description", len(d.Description), MaxDescription},
		{"/schema", len(d.Schema), MaxSchema},
		{"/outputSchema", len(d.OutputSchema), MaxSchema},
	} {
		if size.n > size.limit {
			e := NewError(CodeTooLarge, "tool %s: %s is %d bytes, the limit is %d", d.Name, size.path[1:], size.n, size.limit)
			e.Issues = []Issue{{Path: size.path, Message: "too large"}}
			return e
		}
	}
	if d.Retries < 0 || d.Retries > MaxRetries {
		return declarationError("/retries", fmt.Sprintf("is %d, want 0 to %d", d.Retries, MaxRetries))
	}
	d.fillDefaults()
	return d.checkWords()
}

func (d *Declaration) checkWords() error {
	if d.Protocol != Version {
		return declarationError("/protocol", fmt.Sprintf("is %d, only %d is spoken", d.Protocol, Version))
	}
	for _, w := range []struct {
		path, word string
		known      []string
	}{
		{"/replay", d.Replay, []string{ReplayUnsafe, ReplaySafe}},
		{"/executionMode", d.ExecutionMode, []string{Parallel, Sequential}},
		{"/outputLimits/retain", d.OutputLimits.Retain, []string{RetainHead, RetainTail, RetainBoth}},
	} {
		if !slices.Contains(w.known, w.word) {
			return declarationError(w.path, fmt.Sprintf("is %q, want one of %s", shorten(w.word), strings.Join(w.known, ", ")))
		}
	}
	return nil
}

func (d *Declaration) fillDefaults() {
	d.Description = cmp.Or(d.Description, "Tool: "+d.Name)
	d.Version = cmp.Or(d.Version, "0.0.0")
	d.Replay = cmp.Or(d.Replay, ReplayUnsafe)
	d.ExecutionMode = cmp.Or(d.ExecutionMode, Parallel)
	d.Protocol = cmp.Or(d.Protocol, Version)
	d.OutputLimits.MaxBytes = cmp.Or(d.OutputLimits.MaxBytes, DefaultMaxBytes)
	d.OutputLimits.MaxLines = cmp.Or(d.OutputLimits.MaxLines, DefaultMaxLines)
	d.OutputLimits.Retain = cmp.Or(d.OutputLimits.Retain, RetainHead)
	if len(trimSpace(d.Schema)) == 0 {
		d.Schema = json.RawMessage(DefaultSchema)
	}
}

// SetDigest computes the digest: of all that callers can rely on, not of who
// serves it. Fields that were left out count as their defaults.
func (d *Declaration) SetDigest() {
	c := *d
	c.fillDefaults()
	if c.TimeoutMs == nil {
		ms := DefaultTimeout.Milliseconds()
		c.TimeoutMs = &ms
	}
	c.Digest, c.Service, c.Identity, c.Instance, c.Keys = "", "", "", "", nil
	sum := sha256.Sum256(c.Raw())
	d.Digest = hex.EncodeToString(sum[:16])
}

// Raw gives the declaration as a DESCRIPTION's content.
func (d *Declaration) Raw() Raw {
	type plain Declaration // without MarshalJSON
	c := Value(plain(*d)).Fields()
	if len(d.ExtraAnnotations) > 0 {
		c.Set("annotations", append(c.Get("annotations").Fields(), d.ExtraAnnotations...).Raw())
	}
	c.Set("schemaJson", Value(string(d.Schema)))
	if d.OutputSchema != nil {
		c.Set("outputSchemaJson", Value(string(d.OutputSchema)))
	}
	for _, x := range d.Extra {
		if c.Get(x.Key) == nil {
			c = append(c, x)
		}
	}
	return c.Raw()
}

// MarshalJSON writes the declaration as in a JSON frame: schemas stand there as
// they are.
func (d Declaration) MarshalJSON() ([]byte, error) { return contentJSON(d.Raw()) }

// Description makes the DESCRIPTION of a tool.
func Description(d *Declaration, opts ...Option) Frame {
	f := newFrame(TypeDescription, d.Raw(), opts)
	f.Name = d.Name
	return f
}

// pathKey begins the key of a workspace's root.
const pathKey = "path:"

// PathKey gives the key that an instance announces beside a workspace's name:
// by it an absolute path finds its owner, and does not travel itself.
func PathKey(root string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(root)))
	return pathKey + hex.EncodeToString(sum[:])
}

// IsPathKey tells such a key from a name.
func IsPathKey(key string) bool { return strings.HasPrefix(key, pathKey) }
