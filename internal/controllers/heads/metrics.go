package heads

import "github.com/prometheus/client_golang/prometheus"

// metrics are what the heads count.
type metrics struct {
	signed    prometheus.Counter
	nodes     prometheus.GaugeFunc
	fresh     prometheus.GaugeFunc
	lost      prometheus.Counter
	malformed prometheus.Counter
	keyless   prometheus.Gauge
	suspected prometheus.Counter
	behind    prometheus.Counter
}

func (h *Heads) newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "tako_heads_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Name: "tako_heads_" + name, Help: help}
	}
	return &metrics{
		signed:    counter("signed_total", "Heads that were signed."),
		nodes:     prometheus.NewGaugeFunc(gauge("nodes", "Nodes and Assignments that are in view."), func() float64 { return float64(h.view.size()) }),
		fresh:     prometheus.NewGaugeFunc(gauge("fresh", "1 while the view is proven fresh: only then heads are signed."), h.freshValue),
		lost:      counter("lost_events_total", "Changes that no watch has told of, and that comparing has found."),
		malformed: counter("malformed_assignments_total", "Assignments that nothing could be made of."),
		keyless:   prometheus.NewGauge(gauge("key_missing", "1 while no key may sign heads.")),
		suspected: counter("rollback_suspected_total", "Nodes that have shown a state that the store does not know, once in each epoch."),
		behind:    counter("behind_total", "Hosts that were sent away for a moment, because they have a state that another server has signed and this one has not seen yet."),
	}
}

// register registers all metrics or none, and returns what takes them out again.
func (m *metrics) register(r prometheus.Registerer) (unregister func(), err error) {
	var registered []prometheus.Collector
	unregister = func() {
		for _, c := range registered {
			r.Unregister(c)
		}
	}
	for _, c := range []prometheus.Collector{m.signed, m.nodes, m.fresh, m.lost, m.malformed, m.keyless, m.suspected, m.behind} {
		if err := r.Register(c); err != nil {
			unregister()
			return nil, err
		}
		registered = append(registered, c)
	}
	return unregister, nil
}
