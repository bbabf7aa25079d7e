package workloads

import (
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/fleet/scale"
)

// TestGates: what a rollout waits for is asked while it goes on, and not after; what comes out of bounds takes it back.
func TestGates(t *testing.T) {
	r, l := measured(t)
	q, most := measures.Query{Server: "default", Text: "errors"}, declare.Quantity("0.05")
	spec := web(3)
	spec.Rollout.Gates = []declare.Gate{{Name: "errors", Prometheus: declare.PrometheusQuery{Query: q.Text}, Max: &most}}
	r.declare("web", spec)
	r.is("web", "Complete")
	r.pass(time.Minute)
	if len(l.queries) > 0 {
		t.Errorf("nothing is rolled out, and %v are measured", l.queries)
	}
	l.answers[q] = scale.Answer{Missing: "default does not answer"}
	r.declare("web", version(spec, "2"))
	r.is("web", "Monitoring")
	r.pass(time.Minute)
	if o := r.workload("web"); !l.queries[q] || o.Status.Phase != "Monitoring" || !strings.Contains(o.Status.Message, "gate errors is not measured: default does not answer") {
		t.Errorf("without a measure it is %s: %s", o.Status.Phase, o.Status.Message)
	}
	answer := func(v float64) func() string {
		return func() string {
			l.answers[q] = scale.Answer{At: r.now, Value: v}
			return unless(r.workload("web").Status.Phase == "Complete" || r.workload("web").Status.Phase == "RolledBack", r.dump())
		}
	}
	r.until("it is at its end", answer(0.05))
	r.is("web", "Complete")
	delete(l.answers, q)
	r.declare("web", version(spec, "3"))
	r.is("web", "Monitoring")
	r.until("it is taken back", answer(0.5))
	r.is("web", "RolledBack")
	if o := r.workload("web"); !strings.Contains(o.Status.Message, "gate errors measures 0.5, and its max is 0.05") {
		t.Errorf("it says %q", o.Status.Message)
	}
}

// TestGateWithoutPrometheus: a server that measures nothing says so.
func TestGateWithoutPrometheus(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	most := declare.Quantity("1")
	spec := web(1)
	spec.Rollout.Gates = []declare.Gate{{Name: "errors", Prometheus: declare.PrometheusQuery{Query: "errors"}, Max: &most}}
	r.declare("web", spec)
	r.is("web", "Complete")
	r.declare("web", version(spec, "2"))
	r.is("web", "Monitoring")
	r.pass(time.Minute)
	if o := r.workload("web"); !strings.Contains(o.Status.Message, "start it with --prometheus") {
		t.Errorf("it says %q", o.Status.Message)
	}
}

// TestTellingAfterAClockWasSetBack: what may be told is counted anew.
func TestTellingAfterAClockWasSetBack(t *testing.T) {
	l := telling{since: start, told: statusesMax}
	if l.left(start.Add(countsEvery/2)) != 0 {
		t.Error("more may be told than is allowed")
	}
	if l.left(start.Add(-time.Hour)) != statusesMax {
		t.Error("nothing may be told for as long as the clock was set back")
	}
}
