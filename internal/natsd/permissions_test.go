package natsd_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/natsd"
)

// access is one subject and the identities that may use it; all others may not.
type access struct {
	subject string // a queue group follows after a space
	allowed string
}

const (
	everyone    = "router loop harness llm dispatcher admin observer me local workspace manifest hook alice other"
	services    = "router loop harness llm dispatcher local workspace manifest hook other"
	answering   = "router loop harness llm local workspace manifest hook other"
	dispatchers = "router loop dispatcher"
)

var publishing = []access{
	{"wb.call.me.echo", "me"},
	{"wb.call.alice.echo", "alice"},
	{"wb.sink.me.x", "me"},
	{"wb.list.me", "me"},
	{"wb.list.alice", "alice"},
	{"wb.loop.me", "me"},
	{"wb.ctl.me", "me"},
	{"wb.ctl.alice", "alice"},
	{"wb.ses.me", "me"},
	{"wb.in.me.s1", "me"},
	{"wb.in.alice.s1", "alice"},
	{"wb.approve.me", "me"},
	{"wb.approve.alice", ""},
	{"wb.admin.me.disable", "me"},
	{"wb.admin.alice.disable", ""},
	{"wb.inbox.me.s1", "harness"},
	{"wb.run.me.s1", "loop harness"},
	{"wb.out.me.s1", "loop harness"},
	{"wb.own.me.echo", "loop"},
	{"wb.inst.local.i1.echo", dispatchers + " harness"},
	{"wb.inst.local.i1", dispatchers + " harness"},
	{"wb.ctl.tool.echo", dispatchers + " harness"},
	{"wb.tool.echo", dispatchers},
	{"wb.describe", dispatchers},
	{"wb.hook.h", dispatchers},
	{"wb.llm.openai", "loop"},
	{"wb.announce.local.i1.echo", "local"},
	{"wb.announce.workspace.i1.read_file", "workspace"},
	{"wb.announce.other.i1", "other"},
	{"wb.rec.local.me.s1.c1", "router loop harness local"},
	{"wb.rec.tool.me.s1.c1", "router loop harness"},
	{"wb.live.local.me.s1.c1", "local"},
	{"wb.tail.local.me.s1.c1", "local"},
	{"wb.intent.me.c1", "router"},
	{"_INBOX.me.x", answering},
	{"$KV.WB_SESSIONS.me.s1", "loop harness"},
	{"$KV.WB_TOOLS.echo", "router"},
	{"wb.blob.me.s1.0a", "loop harness"},
	{"$JS.API.STREAM.MSG.GET.WB_BLOBS", "admin loop harness"},
	{"$JS.API.STREAM.PURGE.WB_BLOBS", "admin harness"},
	{"$JS.API.STREAM.MSG.GET.KV_WB_TOOLS", "admin harness " + dispatchers},
	{"$JS.API.STREAM.PURGE.KV_WB_TOOLS", "admin"},
	{"$JS.API.CONSUMER.CREATE.KV_WB_TOOLS.x.$KV.WB_TOOLS.>", "admin harness " + dispatchers},
	{"$JS.API.INFO", "admin"},
	{"$JS.API.STREAM.CREATE.WB_X", "admin"},
	{"$JS.API.STREAM.UPDATE.WB_IN", "admin"},
	{"$JS.API.STREAM.DELETE.WB_IN", "admin"},
	{"$JS.API.STREAM.PURGE.WB_IN", "admin harness"},
	{"$JS.API.STREAM.PURGE.WB_RUN", "admin"},
	{"$JS.API.STREAM.PURGE.KV_WB_SESSIONS", "admin harness"},
	{"$JS.API.STREAM.MSG.GET.KV_WB_SESSIONS", "admin loop harness"},
	{"$JS.API.STREAM.MSG.GET.WB_CATALOG", "admin harness " + dispatchers},
	{"$JS.API.STREAM.MSG.GET.WB_IN", "admin harness"},
	{"$JS.API.STREAM.MSG.GET.WB_RUN", "admin harness loop"},
	{"$JS.API.STREAM.MSG.DELETE.KV_WB_SESSIONS", "admin"},
	{"$JS.API.CONSUMER.MSG.NEXT.WB_IN.harness", "admin harness"},
	{"$JS.API.CONSUMER.MSG.NEXT.WB_RUN.loop", "admin loop"},
	{"$JS.API.CONSUMER.CREATE.WB_IN.x.wb.inbox.me.s1", "admin harness"},
	{"$JS.API.CONSUMER.CREATE.WB_IN.harness.wb.inbox.me.s1", "admin"},
	{"$JS.API.CONSUMER.CREATE.WB_RUN.loop", "admin"},
	{"$JS.API.CONSUMER.CREATE.WB_CATALOG.x", "admin harness " + dispatchers},
	{"$JS.API.CONSUMER.CREATE.KV_WB_SESSIONS.x.$KV.WB_SESSIONS.me.s1", "admin loop harness"},
	{"$JS.API.CONSUMER.DELETE.WB_IN.harness", "admin"},
	{"$JS.API.CONSUMER.DELETE.WB_RUN.loop", "admin"},
	{"$JS.ACK.WB_IN.harness.1.2.3.4.0", "harness"},
	{"$JS.ACK.WB_RUN.loop.1.2.3.4.0", "loop"},
	{"$JS.ACK.dom.hash.WB_RUN.loop.1.2.3.4.0", "loop"},
	{"$SYS.REQ.SERVER.PING", ""},
	{"elsewhere", ""},
}

var subscribing = []access{
	{">", ""},
	{"wb.>", ""},
	{"_INBOX.>", ""},
	{"$JS.>", ""},
	{"$SYS.>", ""},
	{"_INBOX.me.>", "me"},
	{"_INBOX.alice.>", "alice"},
	{"_INBOX.router.>", "router"},
	{"$SRV.PING", services},
	{"wb.call.*.* router", "router"},
	{"wb.call.*.*", ""},
	{"wb.call.*.* mine", ""},
	{"wb.list.* router", "router"},
	{"wb.sink.*.*", "router"},
	{"wb.ctl.*", "router loop"},
	{"wb.admin.*.*", "router"},
	{"wb.loop.* loop", "loop"},
	{"wb.loop.me", ""},
	{"wb.in.*.* harness", "harness"},
	{"wb.in.me.s1", ""},
	{"wb.approve.* harness", "harness"},
	{"wb.ses.* harness", "harness"},
	{"wb.hook.policy hook", "hook"},
	{"wb.hook.policy", ""},
	{"wb.llm.openai llm", "llm"},
	{"wb.llm.openai", ""},
	{"wb.out.>", "observer"},
	{"wb.out.me.*", "me observer"},
	{"wb.out.alice.*", "alice observer"},
	{"wb.own.me.*", "me"},
	{"wb.own.alice.*", "alice"},
	{"wb.announce.>", "observer " + dispatchers},
	{"wb.inst.local.i1.*", "local"},
	{"wb.inst.loop.i1", "loop"},
	{"wb.inst.>", ""},
	{"wb.describe", "local workspace manifest other"},
	{"wb.ctl.tool.echo", "local workspace manifest other"},
	{"wb.tool.echo wb", "local workspace manifest other"},
	{"wb.tool.echo", ""},
	{"wb.rec.*.*.*.*", "router loop"},
	{"wb.live.*.*.*.*", "router loop"},
	{"wb.live.local.dispatcher.s1.*", dispatchers},
	{"wb.inbox.>", ""},
	{"wb.run.>", ""},
	{"wb.tail.>", ""},
	{"$KV.WB_SESSIONS.>", ""},
	{"$KV.WB_TOOLS.>", ""},
	{"wb.blob.>", ""},
}

// Each identity tries every subject of every other.
func TestPermissionMatrix(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t, bustest.WithoutAssets(),
		bustest.WithIdentity("alice", natsd.RoleClient), bustest.WithIdentity("other", natsd.RoleTool))
	for identity := range strings.FieldsSeq(everyone) {
		t.Run(identity, func(t *testing.T) {
			t.Parallel()
			gotPub := refusals(t, m, identity, publishing, func(nc *nats.Conn, subject, _ string) error {
				return nc.Publish(subject, nil)
			})
			compare(t, "publish", wantRefused(identity, publishing), gotPub)
			gotSub := refusals(t, m, identity, subscribing, func(nc *nats.Conn, subject, queue string) error {
				_, err := nc.QueueSubscribe(subject, queue, func(*nats.Msg) {})
				return err
			})
			compare(t, "subscribe", wantRefused(identity, subscribing), gotSub)
		})
	}
}

func compare(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s refused (-want +got):\n%s", what, diff)
	}
}

func wantRefused(identity string, table []access) []string {
	var out []string
	for _, a := range table {
		if !slices.Contains(strings.Fields(a.allowed), identity) {
			out = append(out, a.subject)
		}
	}
	slices.Sort(out)
	return out
}

var violation = regexp.MustCompile(`(?i)permissions violation for (?:publish|subscription) to "([^"]+)"(?: using queue "([^"]+)")?`)

// refusals tries each subject and gives those that the server refused. The
// server's refusals arrive before the answer to the flush; the closed handler
// runs after the error handler saw them all.
func refusals(t *testing.T, m *bustest.Mesh, identity string, table []access, try func(nc *nats.Conn, subject, queue string) error) []string {
	t.Helper()
	var refused []string
	closed := make(chan struct{})
	nc := m.Connect(t, identity,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if match := violation.FindStringSubmatch(err.Error()); match != nil {
				refused = append(refused, strings.TrimSpace(match[1]+" "+match[2]))
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	for _, a := range table {
		subject, queue, _ := strings.Cut(a.subject, " ")
		if err := try(nc, subject, queue); err != nil {
			t.Fatalf("%s: %v", a.subject, err)
		}
	}
	if err := nc.FlushWithContext(deadline(t)); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	<-closed
	slices.Sort(refused)
	return refused
}

// A mesh's identities cannot reach the subjects and streams of another prefix.
func TestPermissionsFollowThePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := bustest.Start(t, bustest.WithPrefix("lab"))
		table := []access{
			{"lab.inbox.me.s1", "harness"},
			{"wb.inbox.me.s1", ""},
			{"$KV.LAB_SESSIONS.me.s1", "harness"},
			{"$KV.WB_SESSIONS.me.s1", ""},
			{"$JS.API.STREAM.PURGE.WB_IN", ""},
		}
		got := refusals(t, m, "harness", table, func(nc *nats.Conn, subject, _ string) error { return nc.Publish(subject, nil) })
		compare(t, "publish", wantRefused("harness", table), got)
	})
}
