package natsd

import (
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/assets"
)

// Role is a set of subjects that an identity may use.
type Role string

// Roles. An identity may have several.
const (
	RoleRouter     Role = "router"
	RoleLoop       Role = "loop"
	RoleHarness    Role = "harness"
	RoleLLM        Role = "llm"
	RoleDispatcher Role = "dispatcher" // calls tools itself, for its own caller
	RoleHook       Role = "hook"       // decides on calls: a policy service
	RoleTool       Role = "tool"       // serves tools, with or without an SDK
	RoleClient     Role = "client"     // calls, runs and sessions under its own name
	RoleApprover   Role = "approver"   // decides on sessions of others
	RoleOperator   Role = "operator"   // switches tools
	RoleAdmin      Role = "admin"      // makes and inspects streams
	RoleObserver   Role = "observer"   // sees what is published for readers, writes nothing
)

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { _, ok := grants[r]; return ok }

// Identity is who connects: one nkey, one name in the subjects.
type Identity struct {
	// Name is the caller or identity token: ^[A-Za-z0-9_-]{1,64}$, not "tool" or "sys".
	Name  string
	Roles []Role
}

// DefaultIdentities lists who may connect to every embedded server: one
// identity for each role, the laptop's caller "me" and its tool identity "local",
// which is the user's: the tools of workspaces have "workspace", those that are
// declared in files "manifest".
func DefaultIdentities() []Identity {
	return []Identity{
		{"router", []Role{RoleRouter}},
		{"loop", []Role{RoleLoop}},
		{"harness", []Role{RoleHarness}},
		{"llm", []Role{RoleLLM}},
		{"dispatcher", []Role{RoleDispatcher}},
		{"admin", []Role{RoleAdmin}},
		{"observer", []Role{RoleObserver}},
		{"me", []Role{RoleClient, RoleOperator, RoleApprover}},
		{"workspace", []Role{RoleTool}},
		{"local", []Role{RoleTool}},
		{"manifest", []Role{RoleTool}},
		{"hook", []Role{RoleHook}},
	}
}

// Permissions are the subjects of one identity. What is not allowed is refused;
// Deny cuts out of the publish subjects. A subscribe subject may be followed by
// a space and the only queue group that may be used with it.
type Permissions struct {
	Publish, Deny, Subscribe []string
}

// PermissionsOf gives what an identity may publish and subscribe in a mesh.
func PermissionsOf(prefix string, id Identity) Permissions {
	var p Permissions
	for _, role := range id.Roles {
		g := grants[role]
		p.Publish = append(p.Publish, g.publish...)
		p.Deny = append(p.Deny, g.deny...)
		p.Subscribe = append(p.Subscribe, g.subscribe...)
	}
	in := strings.NewReplacer("{wb}", prefix, "{WB}", assets.Upper(prefix), "{id}", id.Name)
	return Permissions{Publish: expand(in, p.Publish), Deny: expand(in, p.Deny), Subscribe: expand(in, p.Subscribe)}
}

func expand(in *strings.Replacer, templates []string) []string {
	out := make([]string, 0, len(templates))
	for _, t := range templates {
		out = append(out, in.Replace(t))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// grant is what a role may do; {wb} is the prefix, {WB} the prefix of stream
// names, {id} the identity.
type grant struct {
	publish, deny, subscribe []string
}

// grants is the policy. A client never publishes to a subject that a stream
// captures: it would choose the reply subject, and JetStream's acknowledgement
// would land there.
var grants = map[Role]grant{
	RoleRouter: {
		publish: join(answers, callTools, readCatalog, []string{"{wb}.rec.>", "{wb}.intent.>", "$KV.{WB}_TOOLS.*"}),
		subscribe: join(service, callOutcomes, catalogue,
			[]string{"{wb}.call.*.* router", "{wb}.list.* router", "{wb}.sink.*.*", "{wb}.ctl.*", "{wb}.admin.*.*"}),
	},
	RoleLoop: {
		publish: join(answers, callTools, readCatalog, sessions, blobs, takeJobs,
			[]string{"{wb}.rec.>", "{wb}.llm.>", "{wb}.own.>", "{wb}.out.>", "{wb}.run.>"}),
		subscribe: join(service, callOutcomes, catalogue, []string{"{wb}.loop.* loop", "{wb}.ctl.*"}),
	},
	RoleHarness: {
		publish: join(answers, readCatalog, sessions, purgeSessions, blobs, purgeBlobs, takeInput, readStream("{WB}_RUN"),
			[]string{"{wb}.inst.>", "{wb}.ctl.tool.>", "{wb}.rec.>", "{wb}.out.>", "{wb}.run.>", "{wb}.inbox.>"}),
		deny:      []string{"$JS.API.CONSUMER.DELETE.{WB}_IN.harness", "$JS.API.CONSUMER.CREATE.{WB}_IN.harness.>"},
		subscribe: join(service, []string{"{wb}.in.*.* harness", "{wb}.approve.* harness", "{wb}.ses.* harness"}),
	},
	RoleLLM: {
		publish:   answers,
		subscribe: join(service, []string{"{wb}.llm.* llm"}),
	},
	RoleDispatcher: {
		publish:   join(callTools, readCatalog),
		subscribe: join(service, catalogue, []string{"{wb}.rec.*.{id}.*.*", "{wb}.live.*.{id}.*.*"}),
	},
	RoleHook: {
		publish:   answers,
		subscribe: join(service, []string{"{wb}.hook.* hook"}),
	},
	RoleTool: {
		publish:   join(answers, []string{"{wb}.announce.{id}.>", "{wb}.rec.{id}.>", "{wb}.live.{id}.>", "{wb}.tail.{id}.>"}),
		subscribe: join(service, []string{"{wb}.describe", "{wb}.ctl.tool.*", "{wb}.tool.* wb"}),
	},
	RoleClient: {
		publish: []string{"{wb}.call.{id}.*", "{wb}.sink.{id}.*", "{wb}.list.{id}", "{wb}.loop.{id}",
			"{wb}.ctl.{id}", "{wb}.ses.{id}", "{wb}.in.{id}.*"},
		subscribe: []string{ownInbox, "{wb}.out.{id}.*", "{wb}.own.{id}.*"},
	},
	RoleApprover: {publish: []string{"{wb}.approve.{id}"}, subscribe: []string{ownInbox}},
	RoleOperator: {publish: []string{"{wb}.admin.{id}.*"}, subscribe: []string{ownInbox}},
	RoleAdmin:    {publish: []string{"$JS.API.>"}, subscribe: []string{ownInbox}},
	RoleObserver: {subscribe: []string{"{wb}.out.>", "{wb}.announce.>"}},
}

const ownInbox = "_INBOX.{id}.>"

var (
	// answers go to any inbox; which one a service answers to is checked in pkg/bus.
	answers = []string{"_INBOX.>"}
	// service is what every service hears: its own instances, and NATS's own tools.
	service      = []string{ownInbox, "{wb}.inst.{id}.>", "$SRV.>"}
	callTools    = []string{"{wb}.inst.>", "{wb}.tool.>", "{wb}.ctl.tool.>", "{wb}.describe", "{wb}.hook.>"}
	callOutcomes = []string{"{wb}.rec.*.*.*.*", "{wb}.live.*.*.*.*"}

	// catalogue is heard live by all who dispatch.
	catalogue = []string{"{wb}.announce.>"}

	// readCatalog: what is announced, and what operators decided about it.
	readCatalog = join(readStream("{WB}_CATALOG"), consume("{WB}_CATALOG", ">"),
		readStream("KV_{WB}_TOOLS"), consume("KV_{WB}_TOOLS", "*.$KV.{WB}_TOOLS.>"))
	// sessions: read the head and the history of a session, and write its next revision.
	sessions = join(readStream("KV_{WB}_SESSIONS"), consume("KV_{WB}_SESSIONS", "*.$KV.{WB}_SESSIONS.>"),
		[]string{"$KV.{WB}_SESSIONS.*.*"})
	purgeSessions = []string{"$JS.API.STREAM.PURGE.KV_{WB}_SESSIONS"}

	// blobs: keep large values of sessions, and read them.
	blobs      = join(readStream("{WB}_BLOBS"), []string{"{wb}.blob.*.*.*"})
	purgeBlobs = []string{"$JS.API.STREAM.PURGE.{WB}_BLOBS"}

	takeJobs  = join(readStream("{WB}_RUN"), work("{WB}_RUN", "loop"))
	takeInput = join(readStream("{WB}_IN"), work("{WB}_IN", "harness"), consume("{WB}_IN", "*.{wb}.inbox.>"),
		[]string{"$JS.API.STREAM.PURGE.{WB}_IN"})
)

// readStream allows to open a stream and to read single messages from its leader.
func readStream(stream string) []string {
	return []string{"$JS.API.STREAM.INFO." + stream, "$JS.API.STREAM.MSG.GET." + stream}
}

// consume allows consumers of one's own (ordered, ephemeral); created is what
// follows the stream in the subject that creates one: its name and filter.
func consume(stream, created string) []string {
	return []string{
		"$JS.API.CONSUMER.CREATE." + stream + "." + created,
		"$JS.API.CONSUMER.INFO." + stream + ".*",
		"$JS.API.CONSUMER.MSG.NEXT." + stream + ".*",
		"$JS.API.CONSUMER.DELETE." + stream + ".*",
		"$JS.FC." + stream + ".>",
	}
}

// work allows to take from a shared durable and to acknowledge, in both forms
// of the acknowledgement subject.
func work(stream, durable string) []string {
	return []string{
		"$JS.API.CONSUMER.INFO." + stream + "." + durable,
		"$JS.API.CONSUMER.MSG.NEXT." + stream + "." + durable,
		"$JS.ACK." + stream + "." + durable + ".>",
		"$JS.ACK.*.*." + stream + "." + durable + ".>",
	}
}

func join(lists ...[]string) []string { return slices.Concat(lists...) }
