// Package meters is what the controller of workloads counts.
package meters

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// Meters are the metrics tako_workloads_*. No label names a workload: there may be any number.
type Meters struct {
	Decisions, Placements, Evictions, Failures prometheus.Counter
	pending, instances                         prometheus.Gauge
	seconds                                    prometheus.Histogram
}

// New makes them. They count from 0.
func New() *Meters {
	name := func(s string) string { return "tako_workloads_" + s }
	counter := func(n, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name(n), Help: help})
	}
	gauge := func(n, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name(n), Help: help})
	}
	return &Meters{
		Decisions:  counter("decisions_total", "Decisions about single workloads."),
		Placements: counter("placements_total", "Instances that were created on a node."),
		Evictions:  counter("preemptions_total", "Instances that were told to leave for others of higher priority."),
		Failures:   counter("failures_total", "Writes that have failed, or met a newer version, and are decided about again."),
		pending:    gauge("pending", "Instances that are wanted and have no node."),
		instances:  gauge("instances", "Instances that there are."),
		seconds:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: name("round_seconds"), Help: "How long a round takes, with its writes.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
	}
}

func (m *Meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.Decisions, m.Placements, m.Evictions, m.Failures, m.pending, m.instances, m.seconds}
}

// Observe notes how a round has ended: how many instances have no node, how many there are, and how long it took.
func (m *Meters) Observe(pending, instances int, took time.Duration) {
	m.pending.Set(float64(pending))
	m.instances.Set(float64(instances))
	m.seconds.Observe(took.Seconds())
}

// Register registers all or none; nil is nowhere. The error is InternalFault.
func (m *Meters) Register(at prometheus.Registerer) error {
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

// Unregister undoes that.
func (m *Meters) Unregister(at prometheus.Registerer) {
	if at == nil {
		return
	}
	for _, one := range m.all() {
		at.Unregister(one)
	}
}
