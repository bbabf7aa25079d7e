package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// crowdMax bounds what a crowd of clients does.
	crowdMax = 10 * time.Minute
	// startersMax is how many clients connect at once: on a machine of two cores more would not be done sooner.
	startersMax = 16
	// inFlight is how many changes are on their way to the watchers at most. The server's two queues for a watcher hold ten each
	// at least, and a watch that does not empty them is ended: measured is how events are delivered, not how watches begin again.
	inFlight = 8
	// askPause is how long is waited between two looks at something that the server does by itself: each look takes from it.
	askPause = 100 * time.Millisecond
)

// CreateAll creates objects by so many clients at once, each of which has the next one when it is done with one, and returns how
// long that took, connecting aside. An object that is refused is an error.
func (s *Server) CreateAll(ctx context.Context, clients int, path string, bodies [][]byte) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	all, err := s.clients(ctx, clients)
	if err != nil {
		return 0, err
	}
	defer leave(all)
	var next atomic.Int64
	start := time.Now()
	err = each(ctx, clients, clients, func(ctx context.Context, i int) error {
		for n := int(next.Add(1)) - 1; n < len(bodies); n = int(next.Add(1)) - 1 {
			if err := all[i].do(ctx, http.MethodPost, path, bodies[n]); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(start), err
}

// Settled waits until so many configs have their revisions, and returns how long that took.
func (s *Server) Settled(ctx context.Context, want int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	c := s.Client()
	defer c.Leave()
	for start := time.Now(); ; {
		n, err := c.count(ctx, RevisionsPath)
		if err == nil && n >= want {
			return time.Since(start), nil
		}
		if waitErr := Pause(ctx, askPause); waitErr != nil {
			return 0, fmt.Errorf("there are %d revisions of %d configs: %w", n, want, errors.Join(err, waitErr))
		}
	}
}

// Deliver creates ConfigMaps under the eyes of watchers, each with a connection of its own, and returns how long it takes until
// all have seen all. A watch that ends is an error.
func (s *Server) Deliver(ctx context.Context, watchers int, bodies [][]byte) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	all, err := s.clients(ctx, watchers+inFlight)
	if err != nil {
		return 0, err
	}
	defer leave(all)
	creators := all[watchers:]
	now, err := creators[0].page(ctx, ConfigMapsPath, 1, "")
	if err != nil {
		return 0, err
	}
	g, ctx := errgroup.WithContext(ctx)
	watches := make([]*watch, watchers)
	// A watch lives as long as the context it was begun with, not only until all have begun.
	err = each(ctx, watchers, startersMax, func(_ context.Context, i int) (err error) {
		watches[i], err = all[i].watch(ctx, ConfigMapsPath, now.meta.ResourceVersion)
		return err
	})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	// All see the events in the same order. Who sees one as the last makes room for another change.
	seen, room := make([]atomic.Int64, len(bodies)), make(chan struct{}, inFlight)
	for _, w := range watches {
		g.Go(func() error {
			defer w.body.Close()
			for k := range bodies {
				if err := w.next(); err != nil {
					return err
				}
				if seen[k].Add(1) == int64(watchers) {
					<-room
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for i, body := range bodies {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			g.Go(func() error { return creators[i%inFlight].do(ctx, http.MethodPost, ConfigMapsPath, body) })
		}
		return nil
	})
	err = g.Wait()
	return time.Since(start), err
}

// clients makes clients that are connected.
func (s *Server) clients(ctx context.Context, n int) ([]*Client, error) {
	all := make([]*Client, n)
	err := each(ctx, n, startersMax, func(ctx context.Context, i int) error {
		all[i] = s.Client()
		return all[i].do(ctx, http.MethodGet, "/readyz", nil)
	})
	return all, err
}

// leave ends the connections.
func leave(all []*Client) {
	for _, c := range all {
		c.Leave()
	}
}

// each calls do for 0 to n-1, some at once.
func each(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

// Pause waits, or ends with the context.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
