package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// metrics are what a relay counts, beside what its own server counts.
type metrics struct {
	connected prometheus.Gauge
	agents    prometheus.Gauge
	questions prometheus.Counter
	hits      *prometheus.CounterVec // by what was wanted
	misses    *prometheus.CounterVec // the same
	fetched   prometheus.Counter
	wrong     prometheus.Counter
	kept      prometheus.Gauge
	dropped   prometheus.Counter
}

func newMetrics() *metrics {
	name := func(s string) string { return "tako_relay_" + s }
	counter := func(n, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name(n), Help: help} }
	gauge := func(n, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name(n), Help: help} }
	return &metrics{
		connected: prometheus.NewGauge(gauge("connected", "1 while the relay has a stream to a server.")),
		agents:    prometheus.NewGauge(gauge("agents", "Agents that are connected to the relay.")),
		questions: prometheus.NewCounter(counter("questions_total", "Questions to hosts that were passed on.")),
		hits:      prometheus.NewCounterVec(counter("hits_total", "Things that were given from what is kept or on its way, by kind: sync, part, list, object."), []string{"kind"}),
		misses:    prometheus.NewCounterVec(counter("misses_total", "Things that a server was asked for, by kind."), []string{"kind"}),
		fetched:   prometheus.NewCounter(counter("fetched_bytes_total", "Bytes of content that have come from servers.")),
		wrong:     prometheus.NewCounter(counter("wrong_total", "Answers of servers that were not what was asked for.")),
		kept:      prometheus.NewGauge(gauge("cache_bytes", "Bytes that are kept.")),
		dropped:   prometheus.NewCounter(counter("cache_dropped_total", "Things that were let go to make room.")),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.connected, m.agents, m.questions, m.hits, m.misses, m.fetched, m.wrong, m.kept, m.dropped} {
		if err := r.Register(c); err != nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "register metrics of the relay", Cause: err}
		}
	}
	return nil
}
