package engine

import (
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// repair makes messages of anywhere legal for a provider: behind each assistant
// message stand exactly its calls' results, in its order. Of several results of
// a call the first counts, one that is missing is INTERRUPTED, and results of
// calls that the message does not have are dropped. Ids count within one
// assistant message only, since providers use them again.
func repair(in []provider.Message) []provider.Message {
	out := make([]provider.Message, 0, len(in))
	for i := 0; i < len(in); {
		m := in[i]
		i++
		if m.Role == provider.RoleTool {
			continue // answers nothing
		}
		out = append(out, m)
		results := in[i:]
		for i < len(in) && in[i].Role == provider.RoleTool {
			i++
		}
		out = append(out, ordered(&m, results[:len(results)-(len(in)-i)])...)
	}
	return out
}

// ordered gives one tool message for each call of m, in its order.
func ordered(m *provider.Message, results []provider.Message) []provider.Message {
	if m.Role != provider.RoleAssistant {
		return nil
	}
	taken := make([]bool, len(results))
	out := make([]provider.Message, len(m.Calls))
	for i, c := range m.Calls {
		out[i] = failedMessage(callID(c), frames.Interrupted(WireName(c.Name), ""))
		for j, r := range results {
			if !taken[j] && r.ToolCallID != "" && (r.ToolCallID == c.ID || r.ToolCallID == c.ModelID) {
				out[i], taken[j] = r, true
				break
			}
		}
	}
	return out
}

func callID(c provider.Call) string {
	if c.ID != "" {
		return c.ID
	}
	return c.ModelID
}

func failedMessage(id string, err *frames.Error) provider.Message {
	return provider.ToolMessage(id, &frames.ToolResult{Err: err})
}

// instruct adds text to the system prompt at the head of the messages, which is
// the one place where every provider takes an instruction.
func instruct(messages []provider.Message, text string) []provider.Message {
	switch {
	case text == "":
		return messages
	case len(messages) > 0 && messages[0].Role == provider.RoleSystem:
		head := messages[0]
		head.Text, head.Parts = join(head.Content(), text), nil
		return append([]provider.Message{head}, messages[1:]...)
	}
	return append([]provider.Message{{Role: provider.RoleSystem, Text: text}}, messages...)
}

func join(a, b string) string {
	if strings.TrimSpace(a) == "" {
		return b
	}
	return a + "\n\n" + b
}

// prompted puts the run's own system prompt before all that the messages say.
func prompted(messages []provider.Message, prompt string) []provider.Message {
	if prompt == "" {
		return messages
	}
	if len(messages) > 0 && messages[0].Role == provider.RoleSystem {
		head := messages[0]
		head.Text, head.Parts = join(prompt, head.Content()), nil
		return append([]provider.Message{head}, messages[1:]...)
	}
	return append([]provider.Message{{Role: provider.RoleSystem, Text: prompt}}, messages...)
}

// WireName gives a model's word for a tool in the form that frames and providers
// carry; the word itself stays in the error that answers the call.
func WireName(name string) string {
	if frames.ValidName(name) {
		return name
	}
	const most = 64
	var b strings.Builder
	for _, r := range name {
		if b.Len() == most {
			break
		}
		if r < 0x80 && frames.ValidName(string(r)) {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	if b.Len() == 0 {
		return "unnamed"
	}
	return b.String()
}
