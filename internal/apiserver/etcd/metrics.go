package etcd

import "github.com/prometheus/client_golang/prometheus"

// Metrics are gauges of the room that the member has.
func (m *Member) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tako_store_free_bytes", Help: "Bytes that are free on the file system of the data directory; -1 when it cannot be asked."}, func() float64 {
			bytes, _, err := look(m.opts.Dir)
			if err != nil {
				return -1
			}
			return float64(bytes)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tako_store_writable", Help: "1 when objects can be written, 0 when the disk or the quota leaves no room."}, func() float64 {
			if m.Writable() != nil {
				return 0
			}
			return 1
		}),
	}
}
