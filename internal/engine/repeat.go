package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// MaxRepeats is how often a call may give the same result while nothing new
// happens: then the model is told, and the next time the run ends.
const MaxRepeats = 3

// loopDetected is the reason of the LIMIT that ends a run which goes in circles.
const loopDetected = "loop_detected"

// callKey is a call by its tool and its arguments, whatever the order of keys.
type callKey struct {
	tool      string
	arguments string
}

func keyOf(tool, arguments string) callKey { return callKey{tool, canonical(arguments)} }

// canonical writes JSON with its keys in order; other text stays as it is.
func canonical(text string) string {
	if strings.TrimSpace(text) == "" {
		return "{}"
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(out)
}

// repeats are the calls that were made MaxRepeats times with the same result
// since anything new happened.
type repeats map[callKey]bool

// repeats looks at the turn at the end of the messages, so that a run that goes
// on in another process sees what this one saw.
func (m *Machine) repeats() repeats {
	if len(m.messages) == 0 || m.messages[len(m.messages)-1].Role != provider.RoleTool {
		return nil
	}
	b := repeatBook{polls: m.polls, seen: map[made]bool{}, times: map[made]int{}}
	turn := m.messages[lastUser(m.messages)+1:]
	for i := range turn {
		if n := len(turn[i].Calls); n > 0 && i+n < len(turn) {
			b.round(turn[i].Calls, turn[i+1:i+1+n])
		}
	}
	return b.repeats()
}

func lastUser(messages []provider.Message) int {
	i := len(messages) - 1
	for i >= 0 && messages[i].Role != provider.RoleUser {
		i--
	}
	return i
}

// made is a call and what came of it.
type made struct {
	callKey
	result [sha256.Size]byte
}

// repeatBook counts what rounds brought, from the last one on that brought
// something new.
type repeatBook struct {
	polls func(string) bool
	seen  map[made]bool
	times map[made]int
}

func (b *repeatBook) round(calls []provider.Call, results []provider.Message) {
	round := map[made]bool{}
	for i, c := range calls {
		if b.polls == nil || !b.polls(c.Name) {
			round[made{keyOf(c.Name, c.Arguments), digest(&results[i])}] = true
		}
	}
	for call := range round {
		if !b.seen[call] {
			clear(b.times)
			break
		}
	}
	for call := range round {
		b.seen[call] = true
		b.times[call]++
	}
}

func digest(m *provider.Message) [sha256.Size]byte {
	var text bytes.Buffer
	fmt.Fprintln(&text, m.IsError, len(m.Text), m.Text)
	for _, p := range m.Parts {
		fmt.Fprintln(&text, p.Type, p.MediaType, p.URI, len(p.Text), p.Text, len(p.Data))
		text.Write(p.Data)
	}
	return sha256.Sum256(text.Bytes())
}

func (b *repeatBook) repeats() repeats {
	out := repeats{}
	for call, times := range b.times {
		if times >= MaxRepeats {
			out[call.callKey] = true
		}
	}
	return out
}

// all reports whether each of the calls is such a repeat.
func (r repeats) all(calls []provider.ToolCall) bool {
	for _, c := range calls {
		if !r[keyOf(c.Name, c.Arguments)] {
			return false
		}
	}
	return len(calls) > 0 && len(r) > 0
}

// notice is what the model is told of them; empty where there are none.
func (r repeats) notice() string {
	if len(r) == 0 {
		return ""
	}
	var tools []string
	for call := range r {
		if name := WireName(call.tool); !slices.Contains(tools, name) {
			tools = append(tools, name)
		}
	}
	slices.Sort(tools)
	return fmt.Sprintf("You called %s with the same arguments %d times and got the same result each time. "+
		"Do not repeat that call: use the result, try another way, or answer. One more repeat ends the run.",
		strings.Join(tools, ", "), MaxRepeats)
}

func loopError(tool string) *frames.Error {
	return frames.NewError(frames.CodeLimit,
		"the model repeats the same call of %s, which gave the same result %d times", WireName(tool), MaxRepeats).WithReason(loopDetected)
}

func isLoop(e *frames.Error) bool { return e != nil && e.Reason == loopDetected }
