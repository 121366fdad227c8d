package harness

import (
	"context"
	"time"
)

// sweepEvery is also how old what is swept is at least.
const sweepEvery = time.Hour

// sweep removes the large values of sessions that are gone, until ctx ends. Each
// replica does so: it is done as well twice.
func (h *harness) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	upTo := uint64(0)
	for {
		var err error
		if upTo, err = h.sweepOnce(ctx, upTo); err != nil && ctx.Err() == nil {
			h.log.Warn("the values of sessions that are gone are not swept yet", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweepOnce sweeps what was written up to upTo, and gives how far the next may go.
func (h *harness) sweepOnce(ctx context.Context, upTo uint64) (next uint64, err error) {
	next, err = h.store.LastValue(ctx)
	if err != nil || upTo == 0 {
		return next, err
	}
	n, err := h.store.SweepValues(ctx, upTo)
	if n > 0 {
		h.log.Info("swept the values of sessions that are gone", "sessions", n)
	}
	return next, err
}
