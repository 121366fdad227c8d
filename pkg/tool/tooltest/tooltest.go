// Package tooltest is the conformance suite that any tool on the bus must pass,
// whatever it is written with. It takes a connection and starts no server.
package tooltest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// limit bounds each check.
const limit = 30 * time.Second

// Config says which tool is tried, and how.
type Config struct {
	// Tool is the tool's name. Required.
	Tool string

	// Instance is the id of the instance to try. Default: the first to answer.
	Instance string

	// Good are arguments of calls that succeed. Required: at least one.
	Good []json.RawMessage

	// Bad are arguments that do not fit the tool's schema. They are tried on
	// tools that run as an instance; others need not validate. Default: only
	// what fits no schema.
	Bad []json.RawMessage

	// Slow are arguments of a call that runs until it is cancelled. Default:
	// nothing that needs a running call is tried.
	Slow json.RawMessage

	// Metadata goes along with each call, e.g. its workspace. Default: none.
	Metadata frames.Fields

	// Stop stops the instance and gives what its end gave. Default: its end is
	// not tried.
	Stop func() error
}

// Run tries a tool over a dispatcher's connection, check by check, each a
// subtest. With Config.Stop the instance is gone afterwards.
func Run(t *testing.T, conn *bus.Conn, cfg Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := newSuite(ctx, conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.checks() {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if err := c.run(s, ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// suite is one tool under test.
type suite struct {
	conn *bus.Conn
	cfg  Config
	decl *frames.Declaration
	out  *schema.Schema // nil: any result
}

// check is one thing that is tried. Its error says what is wrong.
type check struct {
	name string
	run  func(*suite, context.Context) error
}

// checks gives what is tried on the tool, in order.
func (s *suite) checks() []check {
	all := []check{
		{"declaration", (*suite).checkDeclaration},
		{"calls", (*suite).checkCalls},
	}
	if s.decl.Instance == "" {
		return all
	}
	all = append(all,
		check{"describe", (*suite).checkDescribe},
		check{"bad arguments", (*suite).checkBadArguments},
		check{"hostile messages", (*suite).checkHostile},
		check{"wrong frames", (*suite).checkWrongFrames},
		check{"liveness", (*suite).checkLiveness},
		check{"control", (*suite).checkControl},
	)
	if s.cfg.Slow != nil {
		all = append(all, check{"running call", (*suite).checkRunning})
	}
	if s.cfg.Stop != nil {
		all = append(all, check{"drain", (*suite).checkDrain})
	}
	return all
}

// newSuite finds the tool by DESCRIBE.
func newSuite(ctx context.Context, conn *bus.Conn, cfg Config) (*suite, error) {
	if len(cfg.Good) == 0 {
		return nil, frames.NewError(frames.CodeValidationInput, "tooltest: Config.Good is empty")
	}
	s := &suite{conn: conn, cfg: cfg}
	x, err := s.open(ctx, conn.Describe(), frames.Msgpack, frames.Describe(cfg.Tool))
	if err != nil {
		return nil, err
	}
	defer x.close()
	for s.decl == nil {
		m, err := x.next(ctx)
		if err != nil {
			return nil, frames.NewError(frames.CodeNotFound, "nobody describes tool %s: %w", cfg.Tool, err)
		}
		s.decl = s.chosen(m)
	}
	if s.decl.OutputSchema != nil {
		if s.out, err = schema.Compile(s.decl.OutputSchema); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// chosen gives the declaration of the tool under test, if it is in the message.
func (s *suite) chosen(m frames.Message) *frames.Declaration {
	for i := range m.Frames {
		if m.Frames[i].Type != frames.TypeDescription {
			continue
		}
		d, err := frames.DeclarationFrom(m.Frames[i].Content)
		if err == nil && d.Name == s.cfg.Tool && slices.Contains([]string{"", d.Instance}, s.cfg.Instance) {
			return d
		}
	}
	return nil
}

// subject is where the tool is called.
func (s *suite) subject() string {
	if s.decl.Instance == "" {
		return s.conn.Tool(s.cfg.Tool)
	}
	return s.conn.InstTool(s.decl.Identity, s.decl.Instance, s.cfg.Tool)
}

func (s *suite) control() string { return s.conn.Inst(s.decl.Identity, s.decl.Instance) }

// encodings are those that the tool reads.
func (s *suite) encodings() []frames.Encoding {
	var all []frames.Encoding
	for _, e := range []frames.Encoding{frames.Msgpack, frames.JSON} {
		if len(s.decl.Encodings) == 0 || slices.Contains(s.decl.Encodings, e.String()) {
			all = append(all, e)
		}
	}
	return all
}
