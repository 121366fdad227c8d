package manifesttools

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weavebus/weavebus/pkg/tool"
)

const (
	// drainLimit leaves it to the tools' time-outs and the work context to end what
	// outlasts a stop.
	drainLimit = time.Hour
	// maxDraining is how many replaced generations may still run calls.
	maxDraining = 64
)

// errReplaced is why calls end whose declaration was replaced many times since.
var errReplaced = errors.New("the tool was replaced while the call ran, and many times since")

// generation is the tools of one source at one time, on the bus as an instance of
// their own: so a change is an instance that comes and one that drains.
type generation struct {
	// stop takes no new calls; cut ends those that run.
	stop context.CancelFunc
	cut  context.CancelCauseFunc
	done chan struct{}
	err  error // once done
}

// serve puts tools on the bus and returns when calls can come.
func (s *service) serve(ctx context.Context, set *tool.Set) (*generation, error) {
	g := &generation{done: make(chan struct{})}
	ctx, g.stop = context.WithCancel(ctx)
	var work context.Context
	work, g.cut = context.WithCancelCause(s.env.Work)
	ready := make(chan struct{})
	go func() {
		defer close(g.done)
		defer g.cut(nil)
		g.err = tool.Serve(ctx, s.conn, set,
			tool.WorkContext(work), tool.DrainTimeout(drainLimit), tool.OnReady(func() { close(ready) }), tool.Logger(s.env.Log))
	}()
	select {
	case <-ready:
		return g, nil
	case <-g.done:
		g.stop()
		return nil, g.err
	}
}

// retire lets a generation finish what it runs. When too many do, the oldest is cut.
func (s *service) retire(g *generation) {
	if g == nil {
		return
	}
	g.stop()
	s.draining = slices.DeleteFunc(s.draining, (*generation).ended)
	s.draining = append(s.draining, g)
	if len(s.draining) > maxDraining {
		s.draining[0].cut(errReplaced)
	}
}

func (g *generation) ended() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// wait gives how a generation that was stopped has ended.
func (g *generation) wait() error {
	<-g.done
	return g.err
}
