package bus

import "strings"

// DefaultPrefix is a mesh's prefix where none is set.
const DefaultPrefix = "wb"

// Subjects names the subjects of one mesh (PROTOCOL section 2). Its zero value
// has the prefix "wb". A "*" may stand for any token, to subscribe.
type Subjects struct{ Prefix string }

func (s Subjects) join(tokens ...string) string {
	prefix := s.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + "." + strings.Join(tokens, ".")
}

// Call is where a client calls a tool through the router.
func (s Subjects) Call(caller, tool string) string { return s.join("call", caller, tool) }

// Sink is where a client sends the chunks of a streamed call to its router.
func (s Subjects) Sink(caller, id string) string { return s.join("sink", caller, id) }

// List is where a client asks for the tools it may call.
func (s Subjects) List(caller string) string { return s.join("list", caller) }

// Loop is where a client starts an ephemeral run.
func (s Subjects) Loop(caller string) string { return s.join("loop", caller) }

// Ctl is where a client cancels its calls and runs outside sessions.
func (s Subjects) Ctl(caller string) string { return s.join("ctl", caller) }

// In is a session's input.
func (s Subjects) In(caller, sid string) string { return s.join("in", caller, sid) }

// Inbox is where the harness stores a session's input.
func (s Subjects) Inbox(caller, sid string) string { return s.join("inbox", caller, sid) }

// Sessions is where a client lists, reads and deletes its sessions.
func (s Subjects) Sessions(caller string) string { return s.join("ses", caller) }

// Out is where a session's live and durable frames are read.
func (s Subjects) Out(caller, sid string) string { return s.join("out", caller, sid) }

// Own is a tool that a client serves for its own sessions.
func (s Subjects) Own(caller, tool string) string { return s.join("own", caller, tool) }

// Admin is where an operator says what is to become of a tool.
func (s Subjects) Admin(caller, verb string) string { return s.join("admin", caller, verb) }

// Inst is one instance of any role.
func (s Subjects) Inst(identity, id string) string { return s.join("inst", identity, id) }

// InstTool is a tool on one instance.
func (s Subjects) InstTool(identity, id, tool string) string {
	return s.join("inst", identity, id, tool)
}

// Tool is a tool by its queue group, for services that announce no instance.
func (s Subjects) Tool(tool string) string { return s.join("tool", tool) }

// CtlTool reaches every instance of a tool.
func (s Subjects) CtlTool(tool string) string { return s.join("ctl", "tool", tool) }

// Describe reaches every instance.
func (s Subjects) Describe() string { return s.join("describe") }

// Announce is an instance's own announcements: alive, END.
func (s Subjects) Announce(identity, id string) string { return s.join("announce", identity, id) }

// AnnounceTool is an instance's announcement of one tool.
func (s Subjects) AnnounceTool(identity, id, tool string) string {
	return s.join("announce", identity, id, tool)
}

// Announcements is every announcement of the mesh.
func (s Subjects) Announcements() string { return s.join("announce", ">") }

// Run is a session's job for the loop.
func (s Subjects) Run(caller, sid string) string { return s.join("run", caller, sid) }

// LLM is a provider's adapter.
func (s Subjects) LLM(provider string) string { return s.join("llm", provider) }

// Hook is a policy service.
func (s Subjects) Hook(name string) string { return s.join("hook", name) }

// Tokens splits a subject into the tokens behind the prefix; nil where it has
// another prefix.
func (s Subjects) Tokens(subject string) []string {
	rest, ok := strings.CutPrefix(subject, s.join(""))
	if !ok {
		return nil
	}
	return strings.Split(rest, ".")
}

// Queue groups: each role's subscriptions share the role's name.
const (
	QueueRouter  = "router"
	QueueLoop    = "loop"
	QueueHarness = "harness"
	QueueLLM     = "llm"
	QueueHook    = "hook"
	QueueTools   = "wb"
)

// inboxRoot begins every reply subject.
const inboxRoot = "_INBOX."

// InboxPrefix is the prefix of an identity's reply subjects, without the last dot.
func InboxPrefix(identity string) string { return inboxRoot + identity }

// family says how requests on the subjects that begin with one token are held.
type family struct {
	// callerInbox: the reply must lie in the inbox of the caller that the
	// subject names; else any inbox will do, since only dispatchers publish there.
	callerInbox bool
	// call: what cannot be read is answered with a TOOL_RESULT.
	call bool
	// silent: a message without a reply subject is handled too.
	silent bool
}

// families is the reply rule of PROTOCOL section 2.
var families = map[string]family{
	"call": {callerInbox: true, call: true}, "sink": {callerInbox: true, call: true, silent: true},
	"list": {callerInbox: true}, "loop": {callerInbox: true}, "ctl": {callerInbox: true, silent: true},
	"in": {callerInbox: true}, "approve": {callerInbox: true}, "ses": {callerInbox: true}, "admin": {callerInbox: true},
	"inst": {call: true, silent: true}, "tool": {call: true}, "own": {call: true},
	"llm": {}, "hook": {}, "describe": {},
}

// familyOf gives the rule of a subject's tokens. Whole instances (wb.inst.<identity>.<id>)
// and wb.ctl.tool are controls: no call, and no caller of that name.
func familyOf(tokens []string) (family, bool) {
	f, ok := families[tokens[0]]
	switch {
	case tokens[0] == "inst" && len(tokens) == 3:
		f.call = false
	case tokens[0] == "ctl" && len(tokens) == 3 && tokens[1] == "tool":
		f.callerInbox = false
	}
	return f, ok
}
