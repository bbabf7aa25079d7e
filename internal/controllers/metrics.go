package controllers

import "github.com/prometheus/client_golang/prometheus"

// metrics are what the controllers count.
type metrics struct {
	objects    prometheus.Gauge
	unsynced   prometheus.Gauge
	decisions  *prometheus.CounterVec // by action and result
	failures   *prometheus.CounterVec // by controller
	stored     prometheus.Gauge
	evicted    prometheus.Counter
	made       *prometheus.CounterVec // by kind
	removed    *prometheus.CounterVec // by kind
	namespaces prometheus.Counter

	stay map[prometheus.Collector]bool // in a registry that takes nothing out again
}

func newMetrics() *metrics {
	name := func(s string) string { return "tako_controller_" + s }
	counter := func(n, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name(n), Help: help} }
	gauge := func(n, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name(n), Help: help} }
	return &metrics{
		stay:       map[prometheus.Collector]bool{},
		objects:    prometheus.NewGauge(gauge("gc_objects", "Objects and owners that the garbage collector knows of.")),
		unsynced:   prometheus.NewGauge(gauge("gc_unlisted_kinds", "Kinds that could not be listed yet.")),
		decisions:  prometheus.NewCounterVec(counter("gc_decisions_total", "What the garbage collector did, by action and result: done, stale, failed."), []string{"action", "result"}),
		failures:   prometheus.NewCounterVec(counter("failures_total", "Tries that ended with an error and are repeated, by controller."), []string{"controller"}),
		stored:     prometheus.NewGauge(gauge("events", "Event objects that there are.")),
		evicted:    prometheus.NewCounter(counter("events_evicted_total", "Event objects that were deleted to make room.")),
		made:       prometheus.NewCounterVec(counter("revisions_made_total", "Revisions that were made, by kind."), []string{"kind"}),
		removed:    prometheus.NewCounterVec(counter("revisions_removed_total", "Old revisions that were removed, by kind."), []string{"kind"}),
		namespaces: prometheus.NewCounter(counter("namespaces_removed_total", "Namespaces that were emptied and let go.")),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.objects, m.unsynced, m.decisions, m.failures, m.stored, m.evicted, m.made, m.removed, m.namespaces}
}

// register registers all metrics or none, and returns what takes them out again. It may be called again after that.
func (m *metrics) register(r prometheus.Registerer) (unregister func(), err error) {
	var registered []prometheus.Collector
	unregister = func() {
		for _, c := range registered {
			m.stay[c] = !r.Unregister(c)
		}
	}
	for _, c := range m.all() {
		if !m.stay[c] {
			if err := r.Register(c); err != nil {
				unregister()
				return nil, err
			}
		}
		registered = append(registered, c)
	}
	return unregister, nil
}
