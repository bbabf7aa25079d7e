package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
)

// flightsMax is how many things are asked of servers at once. Hosts that ask for more come again.
const flightsMax = 128

// flights are what is being asked of servers, each once for all that want it. A flight goes on when who has asked first hangs up: others
// may wait, and what comes is kept.
type flights struct {
	mu    sync.Mutex // guards what follows
	start func(func(context.Context))
	open  map[string]*flight
}

// flight is one of them.
type flight struct {
	settled chan struct{} // closed when what follows is set
	value   any
	err     error
}

func newFlights() *flights { return &flights{open: map[string]*flight{}} }

// begin has flights run until ctx ends, in tasks.
func (f *flights) begin(ctx context.Context, tasks *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start = func(run func(context.Context)) { tasks.Go(func() { run(ctx) }) }
}

// settle says what came of a flight, which may go on after that.
func (x *flight) settle(value any, err error) {
	x.value, x.err = value, err
	close(x.settled)
}

// join waits for what is to be had under a name, and has it fetched when nobody does so yet: fly settles the flight, once. first says that
// this call is why.
func (f *flights) join(ctx context.Context, name string, fly func(context.Context, *flight)) (value any, first bool, err error) {
	f.mu.Lock()
	x := f.open[name]
	if first = x == nil; first {
		if len(f.open) >= flightsMax || f.start == nil {
			f.mu.Unlock()
			return nil, false, &reason.Error{Code: reason.TransferBusy, Doing: "ask a server for what a host wants", Cause: errors.New("too much is on its way"), After: 2 * time.Second}
		}
		x = &flight{settled: make(chan struct{})}
		f.open[name] = x
		f.start(func(ctx context.Context) {
			defer func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.open, name)
			}()
			fly(ctx, x)
		})
	}
	f.mu.Unlock()
	select {
	case <-x.settled:
		return x.value, first, x.err
	case <-ctx.Done():
		return nil, first, context.Cause(ctx)
	}
}
