package apiserver

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// takoMetrics registers metrics where the library's own are, which /metrics shows. That registry belongs to the process, and can let
// nothing go; what a server measures as the leader ends with that, so all of it is in one collector there.
type takoMetrics struct{}

var _ prometheus.Registerer = takoMetrics{}

// measured is what is registered now. It belongs to the process, as the library's registry does.
var measured = sync.OnceValue(func() *changing {
	c := &changing{all: map[prometheus.Collector]bool{}}
	legacyregistry.RawMustRegister(c)
	return c
})

// Register adds a collector.
func (takoMetrics) Register(c prometheus.Collector) error {
	measured().set(c, true)
	return nil
}

// MustRegister adds collectors.
func (takoMetrics) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		measured().set(c, true)
	}
}

// Unregister takes a collector away, and says whether it was there.
func (takoMetrics) Unregister(c prometheus.Collector) bool { return measured().set(c, false) }

// changing is collectors that come and go.
type changing struct {
	mu  sync.Mutex // guards all
	all map[prometheus.Collector]bool
}

var _ prometheus.Collector = (*changing)(nil)

func (c *changing) set(one prometheus.Collector, there bool) (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was = c.all[one]
	if delete(c.all, one); there {
		c.all[one] = true
	}
	return was
}

// Describe says nothing: what there will be is not known.
func (*changing) Describe(chan<- *prometheus.Desc) {}

// Collect collects what is registered now.
func (c *changing) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.all))
	c.mu.Unlock()
	for _, one := range all {
		one.Collect(to)
	}
}
