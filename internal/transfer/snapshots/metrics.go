package snapshots

import (
	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// Where parts are from.
const (
	fromKept = "kept"
	fromMade = "made"
)

// metrics are what a Store counts.
type metrics struct {
	parts *prometheus.CounterVec // by where they are from
	bytes prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{
		parts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tako_transfer_snapshot_parts_total", Help: "Parts of snapshots that were sent, by where they are from: kept, or made for this host."}, []string{"from"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tako_transfer_snapshot_bytes", Help: "Bytes of snapshots that are kept as they go to hosts."}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.parts, m.bytes} {
		if err := r.Register(c); err != nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "register metrics of snapshots", Cause: err}
		}
	}
	return nil
}
