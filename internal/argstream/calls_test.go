package argstream_test

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/frames"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func opened(t *testing.T, l argstream.Limits, keys ...argstream.Key) *argstream.Calls {
	t.Helper()
	c := argstream.NewCalls(l)
	for _, k := range keys {
		if err := c.Open(k, start); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func refusedWith(t *testing.T, err error, code frames.Code, reason string) {
	t.Helper()
	e := frames.AsError(err)
	if e == nil || e.Code != code || e.Reason != reason || (e.Effect != frames.EffectNone && e.Effect != "") {
		t.Errorf("got %+v, want %s %s", err, code, reason)
	}
}

func holdsNothing(t *testing.T, c *argstream.Calls) {
	t.Helper()
	if c.Count() != 0 || c.Held() != 0 {
		t.Errorf("%d calls with %d bytes are held", c.Count(), c.Held())
	}
}

// contract: P56, P57, P63
func TestInterleavedCalls(t *testing.T) {
	t.Parallel()
	a, b := argstream.Key{Stream: "s", Call: "a"}, argstream.Key{Stream: "s", Call: "b"}
	c := opened(t, argstream.Limits{}, a, b)
	for i, piece := range []string{`{"x"`, `:1}`} {
		for _, k := range []argstream.Key{b, a} {
			if err := c.Add(k, uint64(i+1), []byte(strings.ReplaceAll(piece, "x", k.Call)), start); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, k := range []argstream.Key{a, b} {
		text, err := c.Close(k, 3, start)
		if want := `{"` + k.Call + `":1}`; err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
		_, err = c.Close(k, 3, start)
		refusedWith(t, err, frames.CodeConflict, "not_open")
	}
	holdsNothing(t, c)
}

// contract: P57
func TestNumbersOfPieces(t *testing.T) {
	t.Parallel()
	type piece struct {
		seq  uint64
		text string
	}
	for what, tt := range map[string]struct {
		pieces []piece
		end    uint64
		want   string
		reason string
	}{
		"in order":           {[]piece{{1, "a"}, {2, "b"}}, 3, "ab", ""},
		"none":               {[]piece{{0, "a"}, {0, "b"}}, 0, "ab", ""},
		"none but the last":  {[]piece{{0, "a"}, {0, "b"}}, 7, "ab", ""},
		"some":               {[]piece{{1, "a"}, {0, "b"}, {2, "c"}}, 0, "abc", ""},
		"duplicates":         {[]piece{{1, "a"}, {1, "a"}, {2, "b"}, {1, "a"}, {2, "x"}}, 3, "ab", ""},
		"closed as the last": {[]piece{{1, "a"}}, 1, "a", ""},
		"a gap":              {[]piece{{1, "a"}, {3, "c"}, {2, "b"}}, 4, "", "arguments_gap"},
		"the first missing":  {[]piece{{2, "b"}}, 0, "", "arguments_gap"},
		"the last missing":   {[]piece{{1, "a"}}, 3, "", "arguments_gap"},
		"a huge number":      {[]piece{{1 << 63, "b"}}, 0, "", "arguments_gap"},
	} {
		k := argstream.Key{Call: "a"}
		c := opened(t, argstream.Limits{}, k)
		for _, p := range tt.pieces {
			_ = c.Add(k, p.seq, []byte(p.text), start) // an error stands until the close
		}
		text, err := c.Close(k, tt.end, start)
		if tt.reason != "" {
			refusedWith(t, err, frames.CodeBadFrame, tt.reason)
		} else if err != nil || string(text) != tt.want {
			t.Errorf("%s: %q, %v", what, text, err)
		}
		holdsNothing(t, c)
	}
}

// contract: B15
func TestCaps(t *testing.T) {
	t.Parallel()
	mine := func(call string) argstream.Key { return argstream.Key{Owner: "me", Call: call} }
	yours := argstream.Key{Owner: "you", Call: "a"}
	c := opened(t, argstream.Limits{Bytes: 10, TotalBytes: 25, Calls: 4, OwnerCalls: 3, OwnerBytes: 15}, mine("a"), mine("b"), mine("c"))
	refusedWith(t, c.Open(mine("a"), start), frames.CodeConflict, "")
	refusedWith(t, c.Open(mine("d"), start), frames.CodeBusy, "busy")
	if err := c.Open(yours, start); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, c.Open(argstream.Key{Owner: "third"}, start), frames.CodeBusy, "busy")

	ten := []byte("0123456789")
	if err := c.Add(mine("a"), 1, ten, start); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, c.Add(mine("b"), 1, ten, start), frames.CodeBusy, "busy") // over me's share
	if err := c.Add(yours, 1, ten, start); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, c.Add(mine("a"), 2, []byte("x"), start), frames.CodeTooLarge, argstream.ReasonTooLarge)
	if c.Held() != 10 {
		t.Errorf("%d bytes are held", c.Held())
	}
	refusedWith(t, c.Add(mine("a"), 3, nil, start), frames.CodeTooLarge, argstream.ReasonTooLarge) // it stands
	_, err := c.Close(mine("a"), 3, start)
	refusedWith(t, err, frames.CodeTooLarge, argstream.ReasonTooLarge)
	_, err = c.Close(mine("b"), 2, start)
	refusedWith(t, err, frames.CodeBusy, "busy")
	if text, err := c.Close(yours, 2, start); err != nil || !bytes.Equal(text, ten) {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := c.Close(mine("c"), 0, start); err != nil {
		t.Error(err)
	}
	holdsNothing(t, c)
}

// A call is its owner's and its stream's; nobody else finds it.
//
// contract: P59
func TestCallOfAnother(t *testing.T) {
	t.Parallel()
	c := opened(t, argstream.Limits{}, argstream.Key{Owner: "me", Stream: "s", Call: "a"})
	for _, k := range []argstream.Key{{Owner: "you", Stream: "s", Call: "a"}, {Owner: "me", Stream: "t", Call: "a"}, {Owner: "me", Call: "b"}, {}} {
		refusedWith(t, c.Add(k, 1, []byte("x"), start), frames.CodeConflict, "not_open")
		_, err := c.Close(k, 1, start)
		refusedWith(t, err, frames.CodeConflict, "not_open")
		if c.Fail(k, frames.Cancelled("f"), start) || c.Has("you", "a") {
			t.Errorf("%v is open", k)
		}
	}
	if got := c.Of("you", "s"); got != nil {
		t.Errorf("open: %v", got)
	}
	if err := c.Add(argstream.Key{Owner: "me", Call: "a"}, 1, []byte("x"), start); err != nil {
		t.Error(err)
	}
}

// contract: B15
func TestEndOfAStream(t *testing.T) {
	t.Parallel()
	k := func(stream, call string) argstream.Key { return argstream.Key{Stream: stream, Call: call} }
	c := opened(t, argstream.Limits{}, k("s", "a"), k("t", "b"), k("s", "c"))
	if diff := cmp.Diff([]string{"s", "t"}, c.Streams("")); diff != "" {
		t.Error(diff)
	}
	_ = c.Add(k("s", "c"), 2, []byte("x"), start)
	if diff := cmp.Diff([]argstream.Key{k("s", "a"), k("s", "c")}, c.Of("", "s")); diff != "" {
		t.Error(diff)
	}
	_, err := c.Close(k("s", "c"), 0, start)
	refusedWith(t, err, frames.CodeBadFrame, "arguments_gap")
	for _, open := range []argstream.Key{k("s", "a"), k("t", "b")} {
		if _, err := c.Close(open, 0, start); err != nil {
			t.Error(err)
		}
	}
	holdsNothing(t, c)
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	a, b := argstream.Key{Call: "a"}, argstream.Key{Call: "b"}
	c := opened(t, argstream.Limits{Age: time.Minute}, a)
	if err := c.Open(b, start.Add(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	before, at := start.Add(time.Minute-1), start.Add(time.Minute)
	if got := c.Expire(before); got != nil {
		t.Errorf("expired %v", got)
	}
	refusedWith(t, c.Add(a, 1, []byte("x"), at), frames.CodeTimeout, "arguments_timeout")
	if err := c.Add(b, 1, []byte("x"), at); err != nil {
		t.Error(err)
	}
	got := c.Expire(start.Add(time.Hour))
	if len(got) != 1 || got[0].Key != b {
		t.Fatalf("expired %v", got)
	}
	refusedWith(t, got[0].Err, frames.CodeTimeout, "arguments_timeout")
	holdsNothing(t, c)
}

// Any cut of the same texts, interleaved in any way, with pieces sent again,
// gives the same results.
//
// contract: P57, P63
func TestAnyInterleavingGivesTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.SliceOfN(rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 30), objectText()), 1, 4).Draw(rt, "texts")
		c := argstream.NewCalls(argstream.Limits{})
		keys, rest, seq := make([]argstream.Key, len(texts)), slices.Clone(texts), make([]uint64, len(texts))
		for i := range texts {
			keys[i] = argstream.Key{Stream: "s", Call: strconv.Itoa(i)}
			if err := c.Open(keys[i], start); err != nil {
				rt.Fatal(err)
			}
		}
		left := func(i int) bool { return len(rest[i]) > 0 }
		for {
			var open []int
			for i := range rest {
				if left(i) {
					open = append(open, i)
				}
			}
			if open == nil {
				break
			}
			i := rapid.SampledFrom(open).Draw(rt, "call")
			n := rapid.IntRange(1, len(rest[i])).Draw(rt, "n")
			seq[i]++
			for range rapid.IntRange(1, 2).Draw(rt, "times") {
				if err := c.Add(keys[i], seq[i], rest[i][:n], start); err != nil {
					rt.Fatal(err)
				}
			}
			rest[i] = rest[i][n:]
		}
		for i, want := range texts {
			got, err := c.Close(keys[i], seq[i]+1, start)
			if err != nil || !bytes.Equal(got, want) {
				rt.Fatalf("call %d: %q, %v, want %q", i, got, err, want)
			}
			args, repairs, err := argstream.Repair(got)
			wantArgs, wantRepairs, wantErr := argstream.Repair(want)
			if string(args) != string(wantArgs) || !slices.Equal(repairs, wantRepairs) || errorText(err) != errorText(wantErr) {
				rt.Fatalf("call %d: %s, %v, %v", i, args, repairs, err)
			}
		}
		if c.Count() != 0 || c.Held() != 0 {
			rt.Fatalf("%d calls with %d bytes are held", c.Count(), c.Held())
		}
	})
}

// FuzzCalls drives the machine with any sequence of events and holds it to what
// it must always keep: its counts, its caps, and nothing left in the end.
func FuzzCalls(f *testing.F) {
	f.Add([]byte("\x00\x01\x05hello\x02\x00\x03\x04"))
	f.Add([]byte("\x00\x10\x20\x30\x40\x01\x11\x21\x31\x02\x12\x22\x32\x42"))
	limits := argstream.Limits{Bytes: 16, TotalBytes: 40, Calls: 5, OwnerCalls: 3, OwnerBytes: 30, Age: time.Minute}
	f.Fuzz(func(t *testing.T, events []byte) {
		c, now := argstream.NewCalls(limits), start
		for i, b := range events {
			k := argstream.Key{Owner: string('a' + b>>4&1), Stream: string('s' + b>>5&1), Call: string('a' + b>>6)}
			switch b & 0xf {
			case 0, 1:
				_ = c.Open(k, now)
			case 2:
				if text, err := c.Close(k, uint64(i), now); err == nil && len(text) > limits.Bytes {
					t.Fatalf("%d bytes", len(text))
				}
			case 3:
				_ = c.Fail(k, frames.Cancelled("f"), now)
			case 4:
				for _, k := range c.Of(k.Owner, k.Stream) {
					_, _ = c.Close(k, 0, now)
				}
			case 5:
				now = now.Add(20 * time.Second)
				c.Expire(now)
			default:
				_ = c.Add(k, uint64(b&3), events[i:min(i+int(b>>3), len(events))], now)
			}
			if c.Held() < 0 || c.Held() > limits.TotalBytes || c.Count() < 0 || c.Count() > limits.Calls {
				t.Fatalf("%d calls with %d bytes", c.Count(), c.Held())
			}
		}
		c.Expire(now.Add(time.Hour))
		if c.Count() != 0 || c.Held() != 0 || len(c.Streams("a")) != 0 {
			t.Fatalf("%d calls with %d bytes are left", c.Count(), c.Held())
		}
	})
}
