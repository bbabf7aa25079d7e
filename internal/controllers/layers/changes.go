package layers

import (
	"maps"
	"slices"
	"sync"
)

// Changes tells which configs to ask for again. It holds each config once, however often something happened to it.
type Changes struct {
	of *subscriptions
	c  chan struct{} // holds one

	mu      sync.Mutex // guards configs
	configs map[string]bool
}

// C has something to receive when there are configs to take. It is the same channel always.
func (c *Changes) C() <-chan struct{} { return c.c }

// Take returns the configs whose layers may have changed since the last call, sorted.
func (c *Changes) Take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	configs := slices.Sorted(maps.Keys(c.configs))
	clear(c.configs)
	return configs
}

// Close ends the subscription.
func (c *Changes) Close() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.all, c)
}

func (c *Changes) add(configs []string) {
	c.mu.Lock()
	for _, config := range configs {
		c.configs[config] = true
	}
	c.mu.Unlock()
	select {
	case c.c <- struct{}{}:
	default: // it knows
	}
}

// subscriptions are those that are open.
type subscriptions struct {
	mu  sync.Mutex // guards all; a subscription's own comes after it
	all map[*Changes]bool
}

func (s *subscriptions) open() *Changes {
	c := &Changes{of: s, c: make(chan struct{}, 1), configs: map[string]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[c] = true
	return c
}

func (s *subscriptions) tell(configs []string) {
	if len(configs) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		c.add(configs)
	}
}
