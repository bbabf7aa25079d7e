package load

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// stormers is how many clients write versions. All write one object, and whoever comes second at the same moment has to begin anew.
const stormers = 2

// Storm replaces a config so many times as fast as the API takes it, and in no order; body makes what it is replaced by.
func (s *Server) Storm(ctx context.Context, name string, versions int, body func(round int) ([]byte, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	rounds := make(chan int, versions)
	for round := range versions {
		rounds <- round
	}
	close(rounds)
	for range stormers {
		g.Go(func() error {
			c := s.Client()
			defer c.Leave()
			for round := range rounds {
				text, err := body(round)
				if err != nil {
					return err
				}
				if err := c.Put(ctx, ConfigsPath+"/"+name, text); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// goneMetric is how many nodes the server says are lost.
const goneMetric = `tako_presence_nodes{presence="gone"}`

// Gone waits until the server says of so many hosts that they are lost.
func (s *Server) Gone(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	c := s.Client()
	defer c.Leave()
	for {
		gone, err := c.Value(ctx, goneMetric)
		if err != nil {
			return err
		}
		if int(gone) == count {
			return nil
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("of %d hosts, %v are known to be lost: %w", count, gone, err)
		}
	}
}
