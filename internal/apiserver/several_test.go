package apiserver

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
)

// TestOnlyLeadersWrite: a controller that works in a context that is no leader's writes nothing, in whatever way.
func TestOnlyLeadersWrite(t *testing.T) {
	objects := led{} // with nothing behind it
	for what, err := range map[string]error{
		"create": objects.Create(t.Context(), &v1alpha1.Assignment{}), "update": objects.Update(t.Context(), &v1alpha1.Assignment{}),
		"status": objects.UpdateStatus(t.Context(), &v1alpha1.Assignment{}), "delete": objects.Delete(t.Context(), &v1alpha1.Assignment{}, nil),
	} {
		if !reason.Is(err, reason.LeadLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMetricsComeAndGo: what a server measures as the leader ends with that, and is there again the next time.
func TestMetricsComeAndGo(t *testing.T) {
	registry, all := prometheus.NewPedanticRegistry(), &changing{all: map[prometheus.Collector]bool{}}
	registry.MustRegister(all)
	count := func() int {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return len(families)
	}
	for range 2 {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tako_presence_nodes", Help: "Nodes."})
		all.set(g, true)
		if n := count(); n != 1 {
			t.Errorf("%d metrics of a leader", n)
		}
		if !all.set(g, false) || all.set(g, false) {
			t.Error("it is not told whether it was there")
		}
		if n := count(); n != 0 {
			t.Errorf("%d metrics of who leads no more", n)
		}
	}
}
