package sources

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What came of a look.
const (
	lookNothing = "nothing" // nothing was new
	lookApplied = "applied" // what is committed is applied, whether or not something was written for it
	lookDrift   = "drift"   // what others had changed was put back, or is reported
	lookRefused = "refused" // the commit cannot be applied
	lookFailed  = "failed"  // the repository or the API did not answer
)

// metrics are what the loops count. No label names a Source: there may be any number.
type metrics struct {
	looks   *prometheus.CounterVec // by result
	seconds prometheus.Histogram
}

func newMetrics(count func() float64) (*metrics, []prometheus.Collector) {
	m := &metrics{
		looks:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tako_source_looks_total", Help: "Looks at the repositories of sources, by result: nothing, applied, drift, refused, failed."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tako_source_apply_seconds", Help: "How long it took to plan and apply a commit.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 8)}),
	}
	objects := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tako_source_objects", Help: "Objects that all sources declare."}, count)
	return m, []prometheus.Collector{m.looks, m.seconds, objects}
}

func (m *metrics) looked(result string) { m.looks.WithLabelValues(result).Inc() }

func (m *metrics) applied(took time.Duration) { m.seconds.Observe(took.Seconds()) }
