package cli

import (
	"fmt"

	"github.com/weavebus/weavebus/pkg/client"
)

// ledger shows what a session used.
func (c *console) ledger(u *client.SessionUsage) {
	if u.Requests == 0 && u.Calls == 0 {
		return
	}
	failed := ""
	if u.Failed > 0 {
		failed = fmt.Sprintf(" (%d failed)", u.Failed)
	}
	c.say("model requests %d%s, tool calls %d\ntokens %d in, %d out", u.Requests, failed, u.Calls, u.InputTokens, u.OutputTokens)
	if t := u.Tools; t.InputTokens+t.OutputTokens+t.TotalTokens > 0 {
		c.say("tokens of tools %d in, %d out", t.InputTokens, t.OutputTokens)
	}
	if cost := u.CostMicros + u.Tools.CostMicros; cost > 0 {
		c.say("cost $%d.%06d", cost/1_000_000, cost%1_000_000)
	}
}
