package assets

import "github.com/nats-io/nats.go/jetstream"

// asset is one stream with the durable consumer that its role shares, if any.
type asset struct {
	stream   jetstream.StreamConfig
	consumer *jetstream.ConsumerConfig
}

func table(c Config) []asset {
	return []asset{
		{stream: sessions(c)},
		{stream: inbox(c), consumer: durable(HarnessDurable, harnessAckPending)},
		{stream: runQueue(c), consumer: durable(LoopDurable, loopAckPending)},
		{stream: catalog(c)},
		{stream: tools(c)},
		{stream: blobs(c)},
	}
}

// sessions is a KV bucket in all but the bucket's limit of 64 revisions a key,
// and without direct gets: those may be answered by a replica that lags.
func sessions(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              SessionsStream(c.Prefix),
		Description:       "sessions: one key each, one revision a transition",
		Subjects:          []string{"$KV." + SessionsBucket(c.Prefix) + ".>"},
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: maxTransitions,
		Discard:           jetstream.DiscardNew,
		Duplicates:        dedupeWindow,
		AllowRollup:       true,
		DenyDelete:        true,
	}
}

func inbox(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 InStream(c.Prefix),
		Description:          "input of sessions, until the harness handled it",
		Subjects:             []string{c.Prefix + ".inbox.*.*"},
		Storage:              jetstream.FileStorage,
		MaxMsgsPerSubject:    maxUnprocessed,
		MaxBytes:             c.InboxMaxBytes,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		Duplicates:           dedupeWindow,
	}
}

// runQueue makes the server itself refuse a second job for a session, also
// while the first is delivered and not acknowledged.
func runQueue(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 RunStream(c.Prefix),
		Description:          "sessions that have work to do",
		Subjects:             []string{c.Prefix + ".run.*.*"},
		Storage:              jetstream.FileStorage,
		Retention:            jetstream.WorkQueuePolicy,
		MaxMsgsPerSubject:    1,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		Duplicates:           dedupeWindow,
	}
}

func catalog(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              CatalogStream(c.Prefix),
		Description:       "announced tools and instances",
		Subjects:          []string{c.Prefix + ".announce.>"},
		Storage:           jetstream.MemoryStorage,
		MaxMsgsPerSubject: 1,
		MaxMsgSize:        maxAnnouncement,
		MaxBytes:          catalogMaxBytes,
		MaxAge:            catalogMaxAge,
		Discard:           jetstream.DiscardOld,
		NoAck:             true,
	}
}

// tools is a KV bucket that keeps the last value of each key, read from the
// leader: a switched off tool is off for all.
func tools(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              ToolsStream(c.Prefix),
		Description:       "what operators decided about tools: one key each",
		Subjects:          []string{ToolSubject(c.Prefix, ">")},
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: 1,
		MaxMsgs:           maxDecisions,
		MaxMsgSize:        maxDecision,
		Discard:           jetstream.DiscardNew,
		Duplicates:        dedupeWindow,
		AllowRollup:       true,
		DenyDelete:        true,
	}
}

// blobs holds each value in one message, so that it is written whole or not at
// all, and a session's go by one purge. Reads are the leader's: a value is asked
// for as soon as it was written.
func blobs(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              BlobsStream(c.Prefix),
		Description:       "large values of sessions",
		Subjects:          []string{BlobSubject(c.Prefix, "*", "*", "*")},
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardOld,
		Duplicates:        dedupeWindow,
		DenyDelete:        true,
	}
}

func durable(name string, maxAckPending int) *jetstream.ConsumerConfig {
	return &jetstream.ConsumerConfig{
		Durable:       name,
		AckPolicy:     jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxDeliver:    -1,
		MaxAckPending: maxAckPending,
	}
}
