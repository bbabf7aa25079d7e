package converge

import (
	"fmt"
	"time"
)

// Lane is a group of vertices that run under common bounds: one resource type, or several that share a resource.
type Lane struct {
	Name     string
	Parallel int  // operations in flight at once, at least 1
	Batch    int  // vertices in one operation, at least 1
	Gather   bool // apply in as few operations as possible: wait while any check of the lane is due or in flight
	// Burst and Every are a token bucket for what the declaration did not just ask for: repairs of drift and refreshes.
	// Burst 0 means no limit.
	Burst int
	Every time.Duration
}

// Options are the engine's bounds.
type Options struct {
	Lanes []Lane
	// BackOffMin and BackOffMax bound the delay after the first and after many failed attempts; each failure doubles it, and
	// the half of it is drawn at random. Default 1 s and 5 min.
	BackOffMin, BackOffMax time.Duration
	// ContendedAfter repairs of drift of one vertex within ContendedWithin are taken for a fight. Default 5 in 1 min.
	ContendedAfter  int
	ContendedWithin time.Duration
	// HoldOffMin and HoldOffMax bound how long a contended vertex is left alone. Default 1 min and 1 h.
	HoldOffMin, HoldOffMax time.Duration
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.BackOffMin, time.Second)
	set(&o.BackOffMax, 5*time.Minute)
	set(&o.ContendedWithin, time.Minute)
	set(&o.HoldOffMin, time.Minute)
	set(&o.HoldOffMax, time.Hour)
	if o.ContendedAfter == 0 {
		o.ContendedAfter = 5
	}
	return o
}

func (o Options) validate() error {
	seen := map[string]bool{}
	for _, l := range o.Lanes {
		switch {
		case seen[l.Name]:
			return fmt.Errorf("converge options: lane %q is given twice", l.Name)
		case l.Parallel < 1 || l.Batch < 1:
			return fmt.Errorf("converge options: lane %q: parallel %d and batch %d must be at least 1", l.Name, l.Parallel, l.Batch)
		case l.Burst < 0 || l.Burst > 0 && l.Every <= 0:
			return fmt.Errorf("converge options: lane %q: burst %d every %v is no rate", l.Name, l.Burst, l.Every)
		}
		seen[l.Name] = true
	}
	if o.BackOffMin < 0 || o.BackOffMax < o.BackOffMin || o.HoldOffMax < o.HoldOffMin || o.ContendedAfter < 1 {
		return fmt.Errorf("converge options: bounds out of order: %+v", o)
	}
	return nil
}

// jumpMax is the largest step that the engine believes of a clock: a suspend or a clock set forward by years makes
// everything that waits due once, and a clock set back makes nothing wait longer. It is many times the longest wait
// (HoldOffMax's default, 1 h), because nobody calls a quiet engine, and its calm counts.
const jumpMax = 24 * time.Hour

// clock turns the driver's `now` into time that never goes back and never leaps.
type clock struct {
	wall time.Time     // what the driver said last
	now  time.Duration // since the first time that it said
}

func (c *clock) advance(wall time.Time) {
	if !c.wall.IsZero() {
		c.now += min(max(wall.Sub(c.wall), 0), jumpMax)
	}
	c.wall = wall
}

// bucket is a token bucket on the engine's clock.
type bucket struct {
	tokens float64
	at     time.Duration
	full   bool // has been filled once
}

// fill adds the tokens that time has brought, and says how long until there is one.
func (b *bucket) fill(l Lane, now time.Duration) (wait time.Duration) {
	if !b.full {
		b.tokens, b.full = float64(l.Burst), true
	}
	b.tokens = min(float64(l.Burst), b.tokens+float64(now-b.at)/float64(l.Every))
	b.at = now
	if b.tokens >= 1 {
		return 0
	}
	// Rounded up, so that the token is there when the wait is over.
	return time.Duration((1-b.tokens)*float64(l.Every)) + 1
}
