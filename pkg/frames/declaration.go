package frames

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
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
	// DefaultConcurrency is how many calls of a tool an SDK instance runs at once.
	DefaultConcurrency = 16
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

// Annotations are what a tool says of its effects.
type Annotations struct {
	ReadOnly             bool `json:"readOnly,omitempty"`
	Destructive          bool `json:"destructive,omitempty"`
	Idempotent           bool `json:"idempotent,omitempty"`
	OpenWorld            bool `json:"openWorld,omitempty"`
	Expensive            bool `json:"expensive,omitempty"`
	RequiresConfirmation bool `json:"requiresConfirmation,omitempty"`
}

// OutputLimits bound the text that a model sees of a result.
type OutputLimits struct {
	MaxBytes int    `json:"maxBytes,omitempty"`
	MaxLines int    `json:"maxLines,omitempty"`
	Retain   string `json:"retain,omitempty"`
}

// Declaration is what a tool says of itself: the content of a DESCRIPTION
// (PROTOCOL section 4).
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
	// TimeoutMs: nil is DefaultTimeout, 0 is none.
	TimeoutMs     *int64 `json:"timeoutMs,omitempty"`
	IdleTimeoutMs int64  `json:"idleTimeoutMs,omitempty"`
	Retries       int    `json:"retries,omitempty"`
	Replay        string `json:"replay,omitempty"`
	ExecutionMode string `json:"executionMode,omitempty"`
	LockKey       string `json:"lockKey,omitempty"`
	// Concurrency: 0 is unlimited.
	Concurrency  int          `json:"concurrency,omitempty"`
	Keys         []string     `json:"keys,omitempty"`
	OutputLimits OutputLimits `json:"outputLimits"`
	// Extra holds further fields that an application added; they are kept.
	Extra Fields `json:"-"`
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ValidName reports whether s may be a tool's name, a call id, a caller, an
// identity, an instance or a session: ^[A-Za-z0-9_-]{1,64}$.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// Timeout gives the time a call may run: the default where none is declared,
// MaxTimeout where it is 0 or above that.
func (d *Declaration) Timeout() time.Duration {
	switch {
	case d.TimeoutMs == nil || *d.TimeoutMs < 0:
		return DefaultTimeout
	case *d.TimeoutMs == 0 || *d.TimeoutMs > MaxTimeout.Milliseconds():
		return MaxTimeout
	}
	return time.Duration(*d.TimeoutMs) * time.Millisecond
}

// ReplaySafe reports whether a call may run again after it was interrupted.
func (d *Declaration) ReplaySafe() bool { return d.Replay == ReplaySafe }

// Check refuses a declaration whose name or size breaks the protocol, and
// fills the defaults of the fields that were left out. Whether the schema
// compiles is not checked here.
func (d *Declaration) Check() error {
	if !ValidName(d.Name) {
		return NewError(CodeValidationInput, "invalid tool name %q: it must match %s", shorten(d.Name), namePattern)
	}
	if len(d.Description) > MaxDescription {
		return NewError(CodeTooLarge, "description of tool %s is %d bytes, the limit is %d", d.Name, len(d.Description), MaxDescription)
	}
	if n := max(len(d.Schema), len(d.OutputSchema)); n > MaxSchema {
		return NewError(CodeTooLarge, "schema of tool %s is %d bytes, the limit is %d", d.Name, n, MaxSchema)
	}
	d.fillDefaults()
	return nil
}

func (d *Declaration) fillDefaults() {
	set := func(s *string, def string) {
		if *s == "" {
			*s = def
		}
	}
	set(&d.Description, "Tool: "+d.Name)
	set(&d.Version, "0.0.0")
	set(&d.Replay, ReplayUnsafe)
	set(&d.ExecutionMode, Parallel)
	if len(strings.TrimSpace(string(d.Schema))) == 0 {
		d.Schema = json.RawMessage(DefaultSchema)
	}
	if d.Protocol == 0 {
		d.Protocol = Version
	}
	if d.TimeoutMs == nil {
		ms := DefaultTimeout.Milliseconds()
		d.TimeoutMs = &ms
	}
}

// SetDigest computes the digest: of all that callers can rely on, not of who serves it.
func (d *Declaration) SetDigest() {
	c := *d
	c.Digest, c.Service, c.Identity, c.Instance, c.Keys = "", "", "", "", nil
	sum := sha256.Sum256(c.Raw())
	d.Digest = hex.EncodeToString(sum[:16])
}

// Raw gives the declaration as a DESCRIPTION's content.
func (d *Declaration) Raw() Raw {
	var c Fields
	for k, v := range Value(*d).Pairs() {
		c = append(c, Field{k, v})
	}
	c.Set("schemaJson", Value(string(d.Schema)))
	if d.OutputSchema != nil {
		c.Set("outputSchemaJson", Value(string(d.OutputSchema)))
	}
	return append(c, d.Extra...).Raw()
}

// Description makes the DESCRIPTION of a tool.
func Description(d *Declaration, opts ...Option) Frame {
	f := newFrame(TypeDescription, d.Raw(), opts)
	f.Name = d.Name
	return f
}

// DeclarationFrom reads a declaration's content and checks it with
// [Declaration.Check]. Fields it does not know go to Extra.
func DeclarationFrom(c Raw) (*Declaration, error) {
	known, extra := splitDeclaration(c)
	d := &Declaration{Extra: extra}
	text, err := known.Raw().JSON()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, NewError(CodeValidationInput, "unreadable tool declaration: %w", err)
	}
	var ferr *Error
	if d.Schema, ferr = payload(c, "schema"); ferr == nil {
		d.OutputSchema, ferr = payload(c, "outputSchema")
	}
	if ferr != nil {
		return nil, ferr.recode(CodeValidationInput)
	}
	return d, d.Check()
}

// declarationKeys are the keys of PROTOCOL section 4 that Declaration holds.
var declarationKeys = map[string]bool{
	"name": true, "title": true, "description": true, "version": true, "digest": true, "service": true,
	"identity": true, "instance": true, "protocol": true, "encodings": true, "capabilities": true,
	"annotations": true, "transactional": true, "reversible": true, "timeoutMs": true, "idleTimeoutMs": true,
	"retries": true, "replay": true, "executionMode": true, "lockKey": true, "concurrency": true,
	"keys": true, "outputLimits": true,
}

func splitDeclaration(c Raw) (known, extra Fields) {
	for k, v := range c.Pairs() {
		switch {
		case declarationKeys[k]:
			known = append(known, Field{k, v})
		case !isPayload(k) && k != "schema" && k != "outputSchema":
			extra = append(extra, Field{k, v})
		}
	}
	return known, extra
}
