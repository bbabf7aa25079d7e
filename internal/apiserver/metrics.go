package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// takoMetrics registers metrics where the library's own are, which /metrics shows. That registry belongs to the process: what
// was registered once stays.
type takoMetrics struct{}

var _ prometheus.Registerer = takoMetrics{}

// Register adds a collector.
func (takoMetrics) Register(c prometheus.Collector) error {
	legacyregistry.RawMustRegister(c)
	return nil
}

// MustRegister adds collectors.
func (takoMetrics) MustRegister(all ...prometheus.Collector) { legacyregistry.RawMustRegister(all...) }

// Unregister does not: the registry cannot.
func (takoMetrics) Unregister(prometheus.Collector) bool { return false }
