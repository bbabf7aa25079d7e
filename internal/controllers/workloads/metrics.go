package workloads

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// metrics are what is counted. No label names a workload: there may be any number.
type metrics struct {
	decisions, placements, evictions, failures prometheus.Counter
	pending, instances                         prometheus.Gauge
	seconds                                    prometheus.Histogram
}

func newMetrics() *metrics {
	name := func(s string) string { return "tako_workloads_" + s }
	counter := func(n, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name(n), Help: help})
	}
	gauge := func(n, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name(n), Help: help})
	}
	return &metrics{
		decisions:  counter("decisions_total", "Decisions about single workloads."),
		placements: counter("placements_total", "Instances that were created on a node."),
		evictions:  counter("preemptions_total", "Instances that were told to leave for others of higher priority."),
		failures:   counter("failures_total", "Writes that have failed, or met a newer version, and are decided about again."),
		pending:    gauge("pending", "Instances that are wanted and have no node."),
		instances:  gauge("instances", "Instances that there are."),
		seconds:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: name("round_seconds"), Help: "How long a round takes, with its writes.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.decisions, m.placements, m.evictions, m.failures, m.pending, m.instances, m.seconds}
}

// observe notes how a round has ended.
func (m *metrics) observe(w *world, took time.Duration) {
	pending := 0
	for _, of := range w.workloads {
		pending += len(of.pending)
	}
	m.pending.Set(float64(pending))
	m.instances.Set(float64(len(w.instances)))
	m.seconds.Observe(took.Seconds())
}

// register registers all or none; nil is nowhere.
func (m *metrics) register(at prometheus.Registerer) error {
	if at == nil {
		return nil
	}
	for i, one := range m.all() {
		if err := at.Register(one); err != nil {
			for _, registered := range m.all()[:i] {
				at.Unregister(registered)
			}
			return &reason.Error{Code: reason.InternalFault, Doing: "register the metrics of the workloads", Cause: err}
		}
	}
	return nil
}

func (m *metrics) unregister(at prometheus.Registerer) {
	if at == nil {
		return
	}
	for _, one := range m.all() {
		at.Unregister(one)
	}
}
