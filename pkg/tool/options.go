package tool

import (
	"encoding/json"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Option sets what a tool says of itself. What no option sets is the least
// trust: effects unknown, not to be run again, no capabilities.
type Option func(*frames.Declaration) error

// Description says to a model what the tool does and when to use it; at most
// 4096 bytes. Default: "Tool: <name>".
func Description(text string) Option {
	return func(d *frames.Declaration) error { d.Description = text; return nil }
}

// Title names the tool for people. Default: none.
func Title(text string) Option {
	return func(d *frames.Declaration) error { d.Title = text; return nil }
}

// Version is the tool's own. Default: "0.0.0".
func Version(v string) Option {
	return func(d *frames.Declaration) error { d.Version = v; return nil }
}

// Timeout bounds one call, to the millisecond; 0 is none, the ceiling of 1 h
// holds all the same. Default: what the dispatcher takes, 30 s.
func Timeout(limit time.Duration) Option {
	return func(d *frames.Declaration) error {
		if limit < 0 || limit%time.Millisecond != 0 {
			return frames.NewError(frames.CodeValidationInput, "tool %s: time-out %v, want whole milliseconds, 0 for none", d.Name, limit)
		}
		ms := limit.Milliseconds()
		d.TimeoutMs = &ms
		return nil
	}
}

// Annotations say what the tool does to the world. Default: nothing is said.
func Annotations(a frames.Annotations) Option {
	return func(d *frames.Declaration) error { d.Annotations = a; return nil }
}

// ReplaySafe says that a call that was interrupted may simply run again.
// Default: it may not.
func ReplaySafe() Option {
	return func(d *frames.Declaration) error { d.Replay = frames.ReplaySafe; return nil }
}

// Retries is how many attempts may follow one that failed, 0 to 100, b how far
// apart; the zero Backoff is 100 ms, doubled each time up to 5 s. An attempt
// follows an error that is [Retryable], or of which nothing is said, where the
// tool is [ReplaySafe] or idempotent or the error has [NoEffect]; a time-out only
// where the tool is ReplaySafe. Default: none.
func Retries(n int, b frames.Backoff) Option {
	return func(d *frames.Declaration) error { d.Retries, d.Backoff = n, b; return nil }
}

// IdleTimeout bounds how long a call may be silent, to the millisecond. A handler
// need not say anything: what is judged is whether this process lives. 0 is for
// ever. Default: 0.
func IdleTimeout(limit time.Duration) Option {
	return func(d *frames.Declaration) error {
		if limit < 0 || limit%time.Millisecond != 0 {
			return frames.NewError(frames.CodeValidationInput, "tool %s: idle time-out %v, want whole milliseconds, 0 for none", d.Name, limit)
		}
		d.IdleTimeoutMs = limit.Milliseconds()
		return nil
	}
}

// LockKey names an argument: of calls with the same value of it one runs at a
// time. Default: none.
func LockKey(argument string) Option {
	return func(d *frames.Declaration) error { d.LockKey = argument; return nil }
}

// Sequential makes a call wait for all earlier calls of its round, and later
// ones for it. Default: calls of a round run in parallel.
func Sequential() Option {
	return func(d *frames.Declaration) error { d.ExecutionMode = frames.Sequential; return nil }
}

// Concurrency is how many calls one instance runs at once, at least 1; more are
// refused BUSY. Default: 16.
func Concurrency(n int) Option {
	return func(d *frames.Declaration) error {
		if n < 1 {
			return frames.NewError(frames.CodeValidationInput, "tool %s: concurrency %d, want at least 1", d.Name, n)
		}
		d.Concurrency = n
		return nil
	}
}

// Limits bound the text that a model sees of a result. Default: 51200 bytes and
// 2000 lines, of which the head is kept.
func Limits(l frames.OutputLimits) Option {
	return func(d *frames.Declaration) error { d.OutputLimits = l; return nil }
}

// Keys names what this instance alone owns, such as workspaces: a call for one
// of them goes to its owner. Default: none.
func Keys(keys ...string) Option {
	return func(d *frames.Declaration) error { d.Keys = append(d.Keys, keys...); return nil }
}

// Capabilities are words by which lists are filtered. Default: none.
func Capabilities(names ...string) Option {
	return func(d *frames.Declaration) error { d.Capabilities = append(d.Capabilities, names...); return nil }
}

// InputSchema holds arguments to a JSON Schema of your own. Default: that of
// the function's input type, closed to other properties.
func InputSchema(text json.RawMessage) Option {
	return func(d *frames.Declaration) error { d.Schema = text; return nil }
}

// OutputSchema holds results to a JSON Schema of your own; nil to none. Default:
// that of the function's output type where it is a struct, else none.
func OutputSchema(text json.RawMessage) Option {
	return func(d *frames.Declaration) error {
		d.OutputSchema = append(json.RawMessage{}, text...)
		return nil
	}
}
