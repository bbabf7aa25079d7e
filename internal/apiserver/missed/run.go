package missed

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

const (
	// every is the shortest time between two comparisons of a kind, and half as much again the longest: transfer.md asks for 5 to 10 minutes.
	every = 5 * time.Minute
	// kindPause is between two kinds.
	kindPause = 100 * time.Millisecond
	// compareMax bounds one comparison.
	compareMax = time.Minute
	// toldMax is how many names are told at once.
	toldMax = 10
)

// Options say how to compare.
type Options struct {
	// Log takes what was missed. Default nothing is logged.
	Log *slog.Logger
	// Metrics is where tako_store_lost_events_total is registered, while Run runs. Default nowhere.
	Metrics prometheus.Registerer
	// Every is the shortest time between two comparisons of a kind; the longest is half as much again. Default 5 m.
	Every time.Duration
}

// Caches are all watch caches of a server. The zero value is good.
type Caches struct {
	mu  sync.Mutex // guards all
	all map[*Cache]bool
}

// Add has a cache compared, until Remove.
func (s *Caches) Add(c *Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*Cache]bool{}
	}
	s.all[c] = true
}

// Remove is called before a cache ends.
func (s *Caches) Remove(c *Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

func (s *Caches) sorted() []*Cache {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.all), func(a, b *Cache) int { return cmp.Compare(a.kind.Resource.String(), b.kind.Resource.String()) })
}

// Run compares until ctx is done, and returns nil then. It may be called once at a time.
func (s *Caches) Run(ctx context.Context, o Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Every = cmp.Or(o.Every, every)
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tako_store_lost_events_total", Help: "Changes that etcd's watch has not told of, and that comparing has found, by kind.",
	}, []string{"resource"})
	if o.Metrics != nil {
		if err := o.Metrics.Register(counts); err != nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "register the metric of lost events", Cause: err}
		}
		defer o.Metrics.Unregister(counts)
	}
	for {
		if rest(ctx, o.Every+rand.N(o.Every/2)) != nil {
			return nil
		}
		for _, c := range s.sorted() {
			if err := c.compare(ctx, o.Log, counts); err != nil && ctx.Err() == nil {
				o.Log.Warn("what is in the store cannot be compared with what is known of it", "resource", c.kind.Resource.String(), "err", err)
			}
			if rest(ctx, kindPause) != nil {
				return nil
			}
		}
	}
}

// compare has the cache read everything again where it has missed something.
func (c *Cache) compare(ctx context.Context, log *slog.Logger, counts *prometheus.CounterVec) error {
	ctx, cancel := context.WithTimeout(ctx, compareMax)
	defer cancel()
	counted := counts.WithLabelValues(c.kind.Resource.String()) // 0 is shown too
	lost, err := c.lost(ctx)
	if err != nil || len(lost) == 0 {
		return err
	}
	counted.Add(float64(len(lost)))
	names := slices.Sorted(maps.Keys(lost))
	log.Error("etcd's watch has not told of changes, all objects of the kind are read again", "resource", c.kind.Resource.String(), "changes", len(names),
		"names", names[:min(len(names), toldMax)])
	c.reread()
	return nil
}
