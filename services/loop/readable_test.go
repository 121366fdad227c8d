package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/loop"
)

// logText is 200 KB of lines, with one that a model looks for near its end.
func logText() string {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "日 line %d\n", i+1)
		if i == 19_000 {
			b.WriteString("FATAL: the needle\n")
		}
	}
	return b.String()
}

// logs serves a tool whose result is long, with details for people.
func (r *rig) logs(limits frames.OutputLimits) {
	r.t.Helper()
	r.tools(func(s *tool.Set) {
		decl := frames.Declaration{Name: "logs", Schema: anything, OutputLimits: limits}
		r.must(s.AddRaw(decl, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			return &frames.ToolResult{
				Result: json.RawMessage(`{"lines":20001}`), Details: json.RawMessage(`{"screen":"only for people"}`),
				Parts: []frames.Part{{Type: "text", MediaType: "text/plain", Text: logText()}},
			}, nil
		}))
	})
}

var reading = regexp.MustCompile(`read_result \{"ref":"([0-9a-f]+)","offset":(\d+)\}`)

// mark gives the ref and the offset that a cut text names.
func mark(text string) (ref, offset string) {
	if m := reading.FindStringSubmatch(text); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

// pages plays a model that reads on where the result was cut, by the calls that it
// makes of ref and offset.
func pages(calls func(ref, offset string) []string) func(context.Context, int, *provider.Request) ([]provider.Event, error) {
	return func(_ context.Context, _ int, req *provider.Request) ([]provider.Event, error) {
		last := req.Messages[len(req.Messages)-1]
		switch ref, offset := mark(last.Content()); {
		case last.Role == provider.RoleUser:
			return answer("", "logs {}"), nil
		case ref != "":
			return answer("", calls(ref, offset)...), nil
		}
		return answer("done"), nil
	}
}

func offers(req *provider.Request) bool {
	return slices.ContainsFunc(req.Tools, func(t provider.Tool) bool { return t.Name == "read_result" })
}

// shown gives what the model saw as tool messages in a request, the last first.
func shown(req *provider.Request) []string {
	var out []string
	for _, m := range slices.Backward(req.Messages) {
		if m.Role == provider.RoleTool {
			out = append(out, m.Content())
		}
	}
	return out
}

// A model sees a long result cut by the tool's limits and pages the rest; people and
// programs have the whole of it.
//
// contract: E7, E13, E15, E16
// case: res-05-too-large
func TestLongResultOfASession(t *testing.T) {
	whole := logText()
	for retain, part := range map[string]string{frames.RetainHead: "日 line 1\n", frames.RetainTail: "日 line 20000\n", frames.RetainBoth: "日 line 1\n"} {
		t.Run(retain, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.logs(frames.OutputLimits{MaxBytes: 20_000, Retain: retain})
				r.loop(loop.Config{})
				r.play = pages(func(ref, offset string) []string {
					return []string{
						fmt.Sprintf(`read_result {"ref":%q,"offset":%s,"bytes":1000}`, ref, offset),
						fmt.Sprintf(`read_result {"ref":%q,"grep":"^FATAL"}`, ref),
						fmt.Sprintf(`read_result {"ref":%q,"tail":2}`, ref),
						`read_result {"ref":"000000000000000000000000"}`,
						`read_result {"ref":"../s2/x"}`,
					}
				})
				h := r.session("s1")
				h.say("go")
				h.await("META idle 1", 1)
				h.settled()
				h.check()
				asked := r.asked()
				if len(asked) != 3 || offers(asked[0]) || !offers(asked[1]) {
					t.Fatalf("%d requests; read_result is offered once there is something to read", len(asked))
				}
				saw := shown(asked[1])[0]
				if len(saw) > 20_000 || !utf8.ValidString(saw) || !strings.Contains(saw, part) || strings.Contains(saw, "only for people") {
					t.Errorf("the model saw %d bytes: %.100s … %s", len(saw), saw, saw[len(saw)-100:])
				}
				ref, offset := mark(saw)
				got := shown(asked[2])
				wanted := []string{"no cut result", "no cut result", "日 line 19999\n日 line 20000\n[bytes ", ": FATAL: the needle\n[1 of 1 lines", "[bytes " + offset + " to "}
				for i, want := range wanted {
					if !strings.Contains(got[i], want) {
						t.Errorf("call %d from the end gave %.300q, want %q", i, got[i], want)
					}
				}
				h.wantTruncated("logs", ref, whole, len(saw))
			})
		})
	}
}

// wantTruncated checks the durable result of a tool: whole, with what the model saw.
func (h *harness) wantTruncated(tool, ref, whole string, saw int) {
	h.r.t.Helper()
	for _, f := range h.durable() {
		if f.Type != frames.TypeToolResult || f.Name != tool {
			continue
		}
		res, err := f.Result()
		h.r.must(err)
		c := res.Truncated
		switch {
		case c == nil || c.Ref != ref || c.TotalBytes != int64(len(whole)) || c.TotalLines != 20_001:
			h.r.t.Errorf("truncated: %+v", c)
		case c.Bytes > int64(saw) || c.Bytes < int64(saw)-300 || c.Lines == 0:
			h.r.t.Errorf("the model saw %d bytes, truncated says %+v", saw, c)
		}
		if len(res.Parts) != 1 || res.Parts[0].Text != whole || res.Details == nil || string(res.Result) != `{"lines":20001}` {
			h.r.t.Error("the durable result is not what the tool gave")
		}
		return
	}
	h.r.t.Errorf("no result of %s", tool)
}

// A result over 256 KiB is kept aside; readers see it inline, and a loop that begins
// later has it for its model.
//
// contract: E16
func TestResultInTheObjectStore(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		text := strings.Repeat("0123456789\n", 60_000)
		r.tools(func(s *tool.Set) {
			r.must(s.AddRaw(frames.Declaration{Name: "f", Schema: anything, OutputLimits: frames.OutputLimits{MaxBytes: 1 << 20, MaxLines: 100_000}},
				func(context.Context, *tool.Call) (*frames.ToolResult, error) { return tool.Text(text), nil }))
		})
		first := r.loop(loop.Config{})
		r.play = script(answer("", "f {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		first.end()
		r.loop(loop.Config{})
		h.say("again")
		h.await("META idle 2", 1)
		h.settled()
		h.check()
		for i, req := range r.asked()[1:] {
			if got := shown(req); got[len(got)-1] != text {
				t.Errorf("request %d shows %d bytes of the first result", i+1, len(got[len(got)-1]))
			}
		}
		inline := 0
		for _, f := range h.durable() {
			if f.Type == frames.TypeToolResult {
				res, err := f.Result()
				r.must(err)
				if res.Truncated == nil && len(res.Parts) == 1 && res.Parts[0].Text == text {
					inline++
				}
			}
		}
		if inline != 2 {
			t.Errorf("%d of 2 results are inline for readers", inline)
		}
	})
}

// What was cut is read by another loop, and in a later turn; the model of another
// session does not get it.
//
// contract: E16
func TestCutResultsOutliveLoopsAndStayInTheirSession(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.logs(frames.OutputLimits{})
		first := r.loop(loop.Config{})
		r.play = script(answer("", "logs {}"), answer("there is more"))
		h := r.session("s1")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		ref, _ := mark(shown(r.asked()[1])[0])
		first.end()
		r.loop(loop.Config{})
		r.play = script(answer("", fmt.Sprintf(`read_result {"ref":%q,"grep":"needle"}`, ref)), answer("found"))
		h.say("read on")
		h.await("META idle 2", 1)
		h.settled()
		if got := shown(r.asked()[3])[0]; !strings.Contains(got, "FATAL: the needle") {
			t.Errorf("in a later turn: %.300q", got)
		}
		if got := shown(r.asked()[3])[1]; len(got) > 51_200 || got != shown(r.asked()[1])[0] {
			t.Errorf("a later turn shows another part: %d bytes", len(got))
		}
		r.play = script(answer("", "logs {}"), answer("", fmt.Sprintf(`read_result {"ref":%q}`, strings.Repeat("ab", 12))), answer("done"))
		other := r.session("s2")
		other.say("go")
		other.await("META idle 1", 1)
		other.settled()
		r.play = script(answer("", fmt.Sprintf(`read_result {"ref":%q}`, ref)), answer("done"))
		third := r.session("s3")
		third.say("go")
		third.await("META idle 1", 1)
		third.settled()
		for _, h := range []*harness{other, third} {
			if got := strings.Join(briefs(h.durable()), "\n"); !strings.Contains(got, "TOOL_RESULT read_result NOT_FOUND") {
				t.Errorf("another session's ref:\n%s", got)
			}
		}
	})
}

// contract: E16
func TestLongResultOfARun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.logs(frames.OutputLimits{})
		r.loop(loop.Config{})
		r.play = pages(func(ref, offset string) []string {
			return []string{
				fmt.Sprintf(`read_result {"ref":%q,"offset":%s}`, ref, offset),
				fmt.Sprintf(`read_result {"ref":%q,"grep":"needle"}`, ref),
			}
		})
		u := r.start(frames.Msgpack, "r1")
		lines := u.all()
		asked := r.asked()
		if len(asked) != 3 || offers(asked[0]) || !offers(asked[1]) {
			t.Fatalf("%d requests:\n%s", len(asked), strings.Join(lines, "\n"))
		}
		saw := shown(asked[1])[0]
		got := shown(asked[2])
		if len(saw) > 51_200 || !strings.Contains(got[0], "FATAL: the needle") || strings.Contains(got[1], "is kept") {
			t.Errorf("saw %d bytes, then %.200q and %.200q", len(saw), got[1], got[0])
		}
		_, offset := mark(saw)
		if !strings.Contains(got[1], "[bytes "+offset+" to ") {
			t.Errorf("does not read on at %s: %s", offset, got[1][len(got[1])-100:])
		}
	})
}

// What a model cannot use stands there as a line or not at all.
//
// contract: E6, E7
// case: res-02-empty-output
func TestPartsThatAModelSees(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.must(s.AddRaw(frames.Declaration{Name: "f", Schema: anything}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
				return &frames.ToolResult{
					Result: json.RawMessage(`{"n": 1}`), Details: json.RawMessage(`"a secret for people"`),
					Parts: []frames.Part{{Type: "text", Text: "a picture"}, {Type: "image", MediaType: "image/png", Data: []byte("png")}, {Type: "resource", URI: "file:///a.txt", MediaType: "text/plain"}, {Type: "video", Data: []byte("film")}},
				}, nil
			}))
			r.add(s, frames.Declaration{Name: "empty", Schema: anything}, func(context.Context, json.RawMessage) (any, error) { return "", nil })
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "f {}", "empty {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		got := shown(r.asked()[1])
		if want := "a picture\n[image image/png, 3 bytes]\n[resource text/plain file:///a.txt]\n[video, 4 bytes]"; got[1] != want {
			t.Errorf("the parts read %q, want %q", got[1], want)
		}
		if got[0] != `""` {
			t.Errorf("an empty text reads %q", got[0])
		}
		for _, req := range r.asked() {
			if strings.Contains(fmt.Sprintf("%+v", *req), "secret") {
				t.Error("details were sent to the model")
			}
		}
	})
}
