package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
)

// cancelWait bounds the wait for a turn to be cancelled.
const cancelWait = 10 * time.Second

// display shows a session: what happens on stderr, the model's text on stdout;
// with --json every frame on stdout, one a line.
type display struct {
	c *console
	// streamed is how much of the model's text was shown live and is yet to come
	// as a durable frame; open: the line is not ended.
	streamed string
	open     bool
}

func newDisplay(c *console) *display { return &display{c: c} }

func (d *display) frame(f *frames.Frame) error {
	if d.c.JSON {
		data, err := frames.Encode(frames.JSON, f)
		if err != nil {
			return err
		}
		d.c.say("%s", data)
		return nil
	}
	if f.Entry == 0 {
		d.live(f)
		return nil
	}
	d.durable(f)
	return nil
}

// live shows deltas where they can be seen as they come.
func (d *display) live(f *frames.Frame) {
	switch {
	case f.Type == frames.TypeText && f.Metadata.Get("stream") != nil:
		d.output(f)
	case f.Type == frames.TypeText && d.c.live:
		fmt.Fprint(d.c.out, f.Text())
		d.streamed += f.Text()
		d.open = true
	}
}

// output shows what a running tool writes.
func (d *display) output(f *frames.Frame) {
	if !d.c.live {
		return // its result will say
	}
	d.endLine()
	for line := range strings.Lines(f.Text()) {
		d.c.note("  │ %s", strings.TrimRight(line, "\r\n"))
	}
}

func (d *display) durable(f *frames.Frame) {
	switch f.Type {
	case frames.TypeText:
		d.text(f)
	case frames.TypeToolCall:
		d.endLine()
		args, _ := f.Arguments() // shown as far as it can be
		d.c.note("→ %s %s", f.Name, clip(string(args), 200))
	case frames.TypeToolResult:
		d.endLine()
		d.result(f)
	case frames.TypeError:
		d.endLine()
		d.c.note("! %v", f.Err())
	case frames.TypeProgress:
		d.progress(f)
	case frames.TypeEnd:
		d.endLine()
	}
}

// text shows a whole text, or ends the one that was streamed.
func (d *display) text(f *frames.Frame) {
	if f.Metadata.Text("role") == "user" {
		d.endLine()
		d.c.note("you: %s", clip(f.Text(), 200))
		return
	}
	if rest, ok := strings.CutPrefix(f.Text(), d.streamed); ok {
		fmt.Fprint(d.c.out, rest)
	} else {
		d.endLine()
		fmt.Fprint(d.c.out, f.Text())
	}
	d.streamed, d.open = "", f.Text() != "" && !strings.HasSuffix(f.Text(), "\n")
	d.endLine()
}

func (d *display) endLine() {
	if d.open {
		fmt.Fprintln(d.c.out)
	}
	d.open, d.streamed = false, ""
}

func (d *display) result(f *frames.Frame) {
	res, err := f.Result()
	switch {
	case err != nil:
		d.c.note("← %s %v", f.Name, err)
	case res.Err != nil:
		d.c.note("← %s %s: %s", f.Name, res.Err.Code, clip(res.Err.Message, 300))
	default:
		d.c.note("← %s %s (%v)", f.Name, clip(brief(res), 200), res.Duration.Round(time.Millisecond))
	}
}

// brief gives one line of a result.
func brief(res *frames.ToolResult) string {
	var v map[string]json.RawMessage
	if json.Unmarshal(res.Result, &v) != nil {
		return string(res.Result)
	}
	delete(v, "success")
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return string(res.Result)
	}
	return strings.TrimSpace(text.String())
}

func (d *display) progress(f *frames.Frame) {
	op, _ := f.Content.Lookup("operation").Text()
	if op == "max-turns-reached" {
		d.endLine()
		d.c.note("! the session has used all its turns")
	}
}

// clip shortens a text to one line.
func clip(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
