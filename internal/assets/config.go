package assets

import (
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Limits that the design fixes.
const (
	maxTransitions    = 1_000_000 // revisions kept of one session
	maxUnprocessed    = 1_000     // stored inputs of one session that nobody handled yet
	harnessAckPending = 2_000
	loopAckPending    = 1_000
	catalogMaxAge     = 10 * time.Minute
	catalogMaxBytes   = 128 << 20 // of memory, for all announcements
	maxAnnouncement   = 512 << 10
	maxDecisions      = 100_000 // tools that operators decided about
	maxDecision       = 16 << 10
	dedupeWindow      = 2 * time.Minute
)

// Ack waits: elections of a cluster take 4 to 9 s.
const (
	ackWaitSingle  = 5 * time.Second
	ackWaitCluster = 15 * time.Second
)

// Config says how the assets of a mesh are kept.
type Config struct {
	// Prefix of the mesh's subjects and, in upper case, of its stream names.
	// Default: "wb".
	Prefix string

	// Replicas of each stream: 1, 3 or 5. Default: what the stream has; 1 for
	// a new one.
	Replicas int

	// AckWait is how long a delivered wake-up or job may stay unacknowledged
	// before another replica gets it. Default: 5 s with one replica, else 15 s.
	AckWait time.Duration

	// InboxMaxBytes bounds the unprocessed input of all sessions together; it
	// is set aside on disk. Default: 256 MiB.
	InboxMaxBytes int64
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.InboxMaxBytes == 0 {
		c.InboxMaxBytes = 256 << 20
	}
	return c
}

func (c Config) validate() error {
	if err := CheckPrefix(c.Prefix); err != nil {
		return err
	}
	switch c.Replicas {
	case 0, 1, 3, 5:
	default:
		return invalid("Replicas: %d is not 1, 3 or 5", c.Replicas)
	}
	if c.AckWait < 0 {
		return invalid("AckWait: %v is negative", c.AckWait)
	}
	if c.InboxMaxBytes < 0 {
		return invalid("InboxMaxBytes: %d is negative", c.InboxMaxBytes)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return frames.NewError(frames.CodeValidationInput, "assets: "+format, args...)
}

// ackWait gives the ack wait of a consumer on a stream with that many replicas.
func (c Config) ackWait(replicas int) time.Duration {
	switch {
	case c.AckWait > 0:
		return c.AckWait
	case replicas > 1:
		return ackWaitCluster
	default:
		return ackWaitSingle
	}
}
