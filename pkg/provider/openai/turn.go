package openai

import (
	"encoding/json"
	"strings"

	"github.com/weavebus/weavebus/internal/sse"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// turn turns chunks into events, one turn long.
type turn struct {
	yield func(provider.Event, error) bool
	tools *export.Set // what the model was told
	left  bool        // the range was left: nothing may be yielded any more

	answer, thought pieces
	calls           *calls
	choices         choices
	usage           provider.Usage
	raw             string
	reason          provider.StopReason // empty until the server gives one
}

func newTurn(yield func(provider.Event, error) bool) *turn {
	return &turn{yield: yield, calls: newCalls()}
}

func (t *turn) emit(event provider.Event) {
	if !t.left {
		t.left = !t.yield(event, nil)
	}
}

// event takes one event of the stream; done is the server's own end of it.
func (t *turn) event(e sse.Event) (done bool, err error) {
	for _, data := range values(e.Data) {
		if string(data) == "[DONE]" {
			return true, nil
		}
		if !json.Valid(data) {
			return false, t.unreadable(e, data)
		}
		if e.Name == "error" {
			return false, asRefusal(data)
		}
		if err := t.add(data); err != nil || t.left {
			return false, err
		}
	}
	return false, nil
}

// values splits the data of servers that leave out the blank line between
// events: then each line is a value of its own.
func values(data []byte) [][]byte {
	whole := trim(data)
	if json.Valid(whole) {
		return [][]byte{whole}
	}
	var out [][]byte
	for line := range strings.SplitSeq(string(whole), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, []byte(line))
		}
	}
	return out
}

func (t *turn) unreadable(e sse.Event, data []byte) error {
	if e.Unfinished {
		return brokenOff("the stream ended inside an event")
	}
	return brokenOff("the stream holds an event that is not JSON: " + clip(strings.ToValidUTF8(string(data), "\uFFFD")))
}

func asRefusal(data []byte) error {
	if r := readRefusal(data); r != nil {
		return r
	}
	return readErrorObject(data)
}

// add takes one chunk, or a whole completion.
func (t *turn) add(data []byte) error {
	if r := readRefusal(data); r != nil {
		return r
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return brokenOff("a chunk of the stream is not in the form of a chat completion: " + clip(err.Error()))
	}
	t.count(c.Usage)
	t.read(t.choices.pick(c.Choices))
	return nil
}

func (t *turn) read(list []choice) {
	for i := range list {
		c := &list[i]
		t.count(c.Usage)
		for _, d := range []*delta{c.Message, c.Delta} {
			if d != nil {
				t.delta(d)
			}
		}
		t.finished(c.FinishReason.String())
	}
}

// count takes a usage: each says what was used in all, so the last one counts.
func (t *turn) count(u *usage) {
	if u.said() {
		t.usage = u.neutral()
	}
}

// finished takes a finish_reason. One that says the turn was cut off is kept
// whatever comes after it.
func (t *turn) finished(raw string) {
	if raw == "" || t.reason != "" && !t.reason.Complete() {
		return
	}
	t.raw, t.reason = raw, stopReason(raw)
}

func (t *turn) delta(d *delta) {
	t.think(contentText(d.reasoning(), partThinking))
	t.think(contentText(d.Content, partThinkingOnly))
	t.speak(contentText(d.Content, partText))
	t.speak(contentText(d.Refusal, partText))
	for i := range d.ToolCalls {
		t.calls.add(&d.ToolCalls[i])
	}
	if d.FunctionCall != nil {
		t.calls.add(&callDelta{Function: *d.FunctionCall})
	}
}

func (t *turn) speak(piece []byte) {
	if len(piece) == 0 {
		return
	}
	if text := t.answer.add(piece); text != "" {
		t.emit(provider.Text{Text: text})
	}
}

func (t *turn) think(piece []byte) {
	if len(piece) == 0 {
		return
	}
	if text := t.thought.add(piece); text != "" {
		t.emit(provider.Thinking{Text: text})
	}
}

// end closes the turn. Without the server's own end it is complete only if a
// finish_reason came.
func (t *turn) end(done bool) error {
	if t.reason == "" {
		t.read(t.choices.rest())
	}
	if t.reason == "" && !done {
		return brokenOff("the stream ended before the answer was complete")
	}
	if text := t.thought.rest(); text != "" {
		t.emit(provider.Thinking{Text: text})
	}
	if text := t.answer.rest(); text != "" {
		t.emit(provider.Text{Text: text})
	}
	reason := t.outcome()
	for _, call := range t.calls.finish(reason, t.tools) {
		t.emit(call)
	}
	t.emit(provider.Stop{Reason: reason, Raw: t.raw, Usage: t.usage})
	return nil
}

// outcome gives the stop reason: a complete turn ends for its calls if it has
// any, and by itself if not, whatever the server said.
func (t *turn) outcome() provider.StopReason {
	switch {
	case t.reason != "" && !t.reason.Complete():
		return t.reason
	case len(t.calls.order) > 0:
		return provider.StopToolCalls
	}
	return provider.StopDone
}
