package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// metrics are what the server counts.
type metrics struct {
	connections prometheus.Gauge
	rejected    *prometheus.CounterVec // by why
	watches     prometheus.Gauge
	relays      prometheus.Gauge
	heads       prometheus.Counter
	deposits    prometheus.Counter
	calls       *prometheus.CounterVec // by call
	sent        *prometheus.CounterVec // by call
	refused     *prometheus.CounterVec // by call and code
	syncs       *prometheus.CounterVec // by kind
	waiting     *prometheus.GaugeVec   // by budget
	questions   *prometheus.CounterVec // by what and result
	slow        prometheus.Counter
}

func newMetrics() *metrics {
	name := func(s string) string { return "tako_transfer_" + s }
	counter := func(n, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name(n), Help: help} }
	gauge := func(n, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name(n), Help: help} }
	return &metrics{
		connections: prometheus.NewGauge(gauge("connections", "Connections of hosts that are open.")),
		rejected:    prometheus.NewCounterVec(counter("connections_rejected_total", "Connections that were closed before their handshake, by why."), []string{"why"}),
		watches:     prometheus.NewGauge(gauge("watches", "Watches that are open, through relays too.")),
		relays:      prometheus.NewGauge(gauge("relays", "Relays that are connected.")),
		heads:       prometheus.NewCounter(counter("heads_sent_total", "Heads that were sent, heartbeats too.")),
		deposits:    prometheus.NewCounter(counter("deposits_total", "Heads that were left with the hosts of other nodes, because theirs are away.")),
		calls:       prometheus.NewCounterVec(counter("calls_total", "Calls, by call."), []string{"call"}),
		sent:        prometheus.NewCounterVec(counter("sent_bytes_total", "Bytes of answers before encryption, by call."), []string{"call"}),
		refused:     prometheus.NewCounterVec(counter("refused_total", "Calls that were refused, by call and code."), []string{"call", "code"}),
		syncs:       prometheus.NewCounterVec(counter("syncs_total", "Ways from one root to another that were sent, by kind."), []string{"kind"}),
		waiting:     prometheus.NewGaugeVec(gauge("waiting", "Calls that wait for their turn, by budget."), []string{"budget"}),
		questions:   prometheus.NewCounterVec(counter("questions_total", "Questions to hosts, by what and result: answered, refused, late, unconnected, busy."), []string{"what", "result"}),
		slow:        prometheus.NewCounter(counter("slow_closed_total", "Connections that were closed because their host did not read within the write deadline.")),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.connections, m.rejected, m.watches, m.relays, m.heads, m.deposits, m.calls, m.sent, m.refused, m.syncs, m.waiting, m.questions, m.slow} {
		if err := r.Register(c); err != nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "register metrics of the transfer", Cause: err}
		}
	}
	return nil
}
