package naming

import (
	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/names/server"
)

// What becomes of questions.
var (
	answers    = prometheus.NewDesc("tako_names_answers_total", "Questions of the DNS that were answered, by the code of the answer.", []string{"code"}, nil)
	truncated  = prometheus.NewDesc("tako_names_truncated_total", "Answers of the DNS that did not fit a packet, so that they had to be asked for by TCP.", nil, nil)
	unanswered = prometheus.NewDesc("tako_names_unanswered_total", "Questions of the DNS without an answer: limited, because their client asked too much; dropped, because they were none, or the answer could not be sent.", []string{"why"}, nil)
)

// collector shows what a server of names counts.
type collector struct{ *server.Server }

var _ prometheus.Collector = collector{}

// Describe names what is shown.
func (collector) Describe(to chan<- *prometheus.Desc) {
	to <- answers
	to <- truncated
	to <- unanswered
}

// Collect shows it.
func (c collector) Collect(to chan<- prometheus.Metric) {
	counts := c.Counts()
	for code, n := range counts.Answered {
		to <- prometheus.MustNewConstMetric(answers, prometheus.CounterValue, float64(n), code)
	}
	to <- prometheus.MustNewConstMetric(truncated, prometheus.CounterValue, float64(counts.Truncated))
	to <- prometheus.MustNewConstMetric(unanswered, prometheus.CounterValue, float64(counts.Limited), "limited")
	to <- prometheus.MustNewConstMetric(unanswered, prometheus.CounterValue, float64(counts.Dropped), "dropped")
}
