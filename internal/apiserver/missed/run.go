package missed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage"

	"tako.dev/tako/internal/reason"
)

const (
	// every is the shortest time between two comparisons of a kind, and half as much again the longest: transfer.md asks for 5 to 10 minutes.
	every = 5 * time.Minute
	// kindPause is between two kinds.
	kindPause = 100 * time.Millisecond
	// compareMax bounds how long the cache takes to say what it has.
	compareMax = time.Minute
	// behindMax is after how many comparisons that find the cache behind etcd it counts as one that hears nothing any more.
	behindMax = 3
	// followPause is between two tries to follow what other servers have missed.
	followPause = 5 * time.Second
	// toldMax is how many names are told at once.
	toldMax = 10
)

// Options say how to compare.
type Options struct {
	// Log takes what was missed. Default nothing is logged.
	Log *slog.Logger
	// Metrics is where tako_store_lost_events_total and tako_store_compared_timestamp_seconds are registered, while Run runs. Default nowhere.
	Metrics prometheus.Registerer
	// Every is the shortest time between two comparisons of a kind; the longest is half as much again. Default 5 m.
	Every time.Duration
	// Etcd is where other servers tell what they have missed. Default they are not heard.
	Etcd Etcd
	// Root is before every key in etcd.
	Root string
}

// Etcd is what is needed to follow other servers.
type Etcd interface {
	clientv3.KV
	clientv3.Watcher
}

// meters are what the metrics show.
type meters struct {
	lost     *prometheus.CounterVec
	compared *prometheus.GaugeVec
}

func newMeters() meters {
	return meters{
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tako_store_lost_events_total", Help: "Changes that etcd's watch has not told of, and that comparing has found, by kind.",
		}, []string{"resource"}),
		compared: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tako_store_compared_timestamp_seconds", Help: "When a kind was last compared with etcd, and what was missed could be put right.",
		}, []string{"resource"}),
	}
}

// register returns what undoes it.
func (m meters) register(with prometheus.Registerer) (func(), error) {
	if with == nil {
		return func() {}, nil
	}
	if err := with.Register(m.lost); err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "register the metric of lost events", Cause: err}
	}
	if err := with.Register(m.compared); err != nil {
		with.Unregister(m.lost)
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "register the metric of comparisons", Cause: err}
	}
	return func() {
		with.Unregister(m.lost)
		with.Unregister(m.compared)
	}, nil
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
	m := newMeters()
	unregister, err := m.register(o.Metrics)
	if err != nil {
		return err
	}
	defer unregister()
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { s.follow(ctx, o) })
	for {
		if rest(ctx, o.Every+rand.N(o.Every/2)) != nil {
			return nil
		}
		for _, c := range s.sorted() {
			if err := c.compare(ctx, o.Log, m); err != nil && ctx.Err() == nil {
				o.Log.Warn("what is in the store cannot be compared with what is known of it", "resource", c.kind.Resource.String(), "err", err)
			}
			if rest(ctx, kindPause) != nil {
				return nil
			}
		}
	}
}

// compare has the cache read everything again where it has missed something.
func (c *Cache) compare(ctx context.Context, log *slog.Logger, m meters) error {
	resource := c.kind.Resource.String()
	counted := m.lost.WithLabelValues(resource) // 0 is shown too
	lost, err := c.lost(ctx)
	if storage.IsTooLargeResourceVersion(err) {
		if c.behind++; c.behind == behindMax {
			log.Error("etcd's watch tells nothing any more, all objects of the kind are read again", "resource", resource)
			c.behind = 0
			c.reread()
		}
		return err
	}
	if err != nil {
		return err
	}
	c.behind = 0
	if len(lost) > 0 {
		counted.Add(float64(len(lost)))
		names := slices.Sorted(maps.Keys(lost))
		log.Error("etcd's watch has not told of changes, all objects of the kind are to be read again", "resource", resource, "changes", len(names),
			"names", names[:min(len(names), toldMax)])
		if err := c.mend(ctx); err != nil {
			return fmt.Errorf("write that changes were missed, without which the kind stays as it is: %w", err)
		}
	}
	m.compared.WithLabelValues(resource).SetToCurrentTime()
	return nil
}

// follow hears what this and other servers have missed, until ctx is done. Everything is read again every now and then: what a watch of etcd has not
// told is what this is about.
func (s *Caches) follow(ctx context.Context, o Options) {
	if o.Etcd == nil {
		return
	}
	for ctx.Err() == nil {
		if err := s.followOnce(ctx, o); err != nil && ctx.Err() == nil {
			o.Log.Warn("what other servers have missed cannot be read", "err", err)
		}
		_ = rest(ctx, followPause)
	}
}

func (s *Caches) followOnce(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, o.Every)
	defer cancel()
	got, err := o.Etcd.Get(ctx, o.Root+marks, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range got.Kvs {
		s.hear(ctx, string(kv.Key[len(o.Root+marks):]), uint64(kv.ModRevision))
	}
	for answer := range o.Etcd.Watch(ctx, o.Root+marks, clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1)) {
		for _, e := range answer.Events {
			s.hear(ctx, string(e.Kv.Key[len(o.Root+marks):]), uint64(e.Kv.ModRevision))
		}
	}
	return nil
}

// hear has all caches of a kind take a mark. Of a kind that others define there is one for each version.
func (s *Caches) hear(ctx context.Context, resource string, floor uint64) {
	for _, c := range s.sorted() {
		if c.kind.Resource.String() == resource {
			c.hear(ctx, floor)
		}
	}
}
