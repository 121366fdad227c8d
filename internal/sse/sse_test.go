package sse_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read gives the events as "name|data", unfinished ones with a ~, and the error.
func read(in io.Reader, limit int) ([]string, error) {
	r := sse.NewReader(in, limit)
	var out []string
	for {
		e, err := r.Next()
		if err != nil {
			return out, err
		}
		line := e.Name + "|" + string(e.Data)
		if e.Unfinished {
			line += "~"
		}
		out = append(out, line)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, wire string
		want       []string
	}{
		{"two", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		{"without the space", "data:a\n\n", []string{"|a"}},
		{"one space only is cut", "data:  a \n\n", []string{"| a "}},
		{"lines", "data: a\ndata\ndata: b\n\n", []string{"|a\n\nb"}},
		{"name", "event: error\ndata: a\n\ndata: b\n\n", []string{"error|a", "|b"}},
		{"name without data", "event: ping\n\ndata: b\n\n", []string{"|b"}},
		{"comments and unknown fields", ": hi\n:\nid: 7\nretry: 1\nfoo: bar\nnonsense\n\ndata: a\n\n", []string{"|a"}},
		{"CRLF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []string{"|a\nb", "|c"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		{"mixed ends", "data: a\r\n\ndata: b\n\r\n", []string{"|a", "|b"}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"|a"}},
		{"mark later is data", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []string{"|a"}},
		{"empty data", "data\n\ndata: a\n\n", []string{"|", "|a"}},
		{"blank lines", "\n\n\r\n\ndata: a\n\n\n\n", []string{"|a"}},
		{"not UTF-8", "data: \xc3\n\ndata: \xa4\n\n", []string{"|\xc3", "|\xa4"}},
		{"zero byte", "data: \x00\n\n", []string{"|\x00"}},
		{"ends in a line", "data: a\n\ndata: b", []string{"|a", "|b~"}},
		{"ends after a line", "data: a\n\ndata: b\n", []string{"|a", "|b~"}},
		{"ends in a mark", "\xef\xbb\xbfdata: b", []string{"|b~"}},
		{"ends in a field", "data: a\n\nda", []string{"|a"}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		for name, in := range map[string]io.Reader{
			"whole": strings.NewReader(tt.wire), "one byte": iotest.OneByteReader(strings.NewReader(tt.wire)),
			"data with EOF": iotest.DataErrReader(strings.NewReader(tt.wire)),
		} {
			got, err := read(in, 0)
			if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, io.EOF) {
				t.Errorf("%s (%s): error %v, events (-want +got):\n%s", tt.name, name, err, diff)
			}
		}
	}
}

// An event is given at its blank line: a CR is not held until the next byte.
func TestEventsAreNotHeld(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		in, out := io.Pipe()
		go func() {
			_, _ = io.WriteString(out, "data: a"+end)
		}()
		if e, err := sse.NewReader(in, 0).Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: %q, %v", end, e.Data, err)
		}
		_ = in.Close()
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string]string{
		"line":     "data: " + strings.Repeat("x", 100),
		"lines":    strings.Repeat("data: x\n", 20),
		"comments": strings.Repeat(": comment\n", 20),
		"endless":  strings.Repeat("x", 1000),
	} {
		if _, err := read(strings.NewReader(wire), 50); !errors.Is(err, sse.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wire := strings.Repeat("data: "+strings.Repeat("x", 44)+"\n\n", 100)
	if got, err := read(strings.NewReader(wire), 50); len(got) != 100 || !errors.Is(err, io.EOF) {
		t.Errorf("%d events, %v", len(got), err)
	}
}

func TestErrorsStay(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	r := sse.NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(boom)), 0)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if e, err := r.Next(); !errors.Is(err, boom) || e.Data != nil {
			t.Errorf("%q, %v", e.Data, err)
		}
	}
}

// What is written as events is read as written, however the bytes are cut.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		data := rapid.SliceOf(rapid.StringMatching(`[^\r\n]{0,20}`)).Draw(rt, "data")
		end := rapid.SampledFrom([]string{"\n", "\r", "\r\n"}).Draw(rt, "end")
		var wire strings.Builder
		var want []string
		for _, d := range data {
			fmt.Fprintf(&wire, "data: %s%s%s", d, end, end)
			want = append(want, "|"+d)
		}
		got, err := read(&cutReader{rt, wire.String()}, 0)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
			rt.Fatalf("error %v, events (-want +got):\n%s", err, diff)
		}
	})
}

type cutReader struct {
	rt   *rapid.T
	rest string
}

func (c *cutReader) Read(b []byte) (int, error) {
	if c.rest == "" {
		return 0, io.EOF
	}
	n := copy(b, c.rest[:rapid.IntRange(1, len(c.rest)).Draw(c.rt, "n")])
	c.rest = c.rest[n:]
	return n, nil
}

func FuzzReader(f *testing.F) {
	for _, seed := range []string{"data: a\n\n", "event: x\r\ndata: b\r\r\n", "\xef\xbb\xbf: c\n\ndata", "data: \xc3\n\n\r\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		const limit = 64
		whole, err := read(strings.NewReader(string(wire)), limit)
		cut, cutErr := read(iotest.OneByteReader(strings.NewReader(string(wire))), limit)
		if diff := cmp.Diff(whole, cut); diff != "" || errors.Is(err, io.EOF) != errors.Is(cutErr, io.EOF) {
			t.Fatalf("by the byte: %v, %v\n%s", err, cutErr, diff)
		}
		for _, e := range whole {
			if len(e) > 2*limit {
				t.Fatalf("event of %d bytes", len(e))
			}
		}
	})
}
