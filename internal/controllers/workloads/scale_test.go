package workloads

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/reason"
)

// load is what would be measured: instances share it, and are looked at every 15 s.
type load struct {
	r       *rig
	total   int64 // thousandths of processors that all instances together use
	deaf    bool  // nobody says anything
	answers map[measures.Query]scale.Answer
	nodes   map[types.UID]bool
	queries map[measures.Query]bool
}

func (l *load) Of(node, instance types.UID) (scale.Sample, bool) {
	n := int64(0)
	for _, in := range all[*v1alpha1.Instance](l.r.store) {
		if in.Spec.Stop == nil {
			n++
		}
	}
	if l.deaf || n == 0 || !l.nodes[node] {
		return scale.Sample{}, false
	}
	return scale.Sample{At: l.r.now.Truncate(5 * time.Second), Over: 5 * time.Second, CPU: l.total / n, Memory: 100 << 20}, true
}

func (l *load) Answer(q measures.Query) scale.Answer { return l.answers[q] }

func (l *load) Want(nodes map[types.UID]bool, queries map[measures.Query]bool) {
	l.nodes, l.queries = nodes, queries
}

// measured is a rig in which something is measured.
func measured(t *testing.T) (*rig, *load) {
	r := newRig(t)
	l := &load{r: r, answers: map[measures.Query]scale.Answer{}}
	r.c.options.Measures = l
	r.join("n0", "n1", "n2")
	return r, l
}

// byCPU is a workload of 1 to 6 instances that are to use half of the processor that each requests.
func byCPU(replicas int32) declared.Spec {
	spec, half := web(replicas), int32(50)
	spec.Scale = &declared.Scale{Max: 6, Targets: []declared.ScaleTarget{{Name: "cpu", CPU: &half}}, Down: declared.ScaleBound{Stabilization: "1m"}}
	return spec
}

// TestScaleFollowsLoad: the number follows what instances use, up at once and down after its stabilisation, and people are told why.
func TestScaleFollowsLoad(t *testing.T) {
	r, l := measured(t)
	l.total = 500
	r.declare("web", byCPU(1))
	r.is("web", "Complete")
	r.pass(5 * time.Minute)
	o := r.workload("web")
	if s := o.Status.Scale; s == nil || s.Replicas != 1 || o.Status.Wanted != 1 || s.Code != "" || !strings.Contains(s.Message, "cpu: 1 of 1 instances use processors") {
		t.Fatalf("under a load for one: %+v", s)
	}
	if len(l.nodes) != 1 || len(l.queries) != 0 {
		t.Errorf("measured are %v and %v", l.nodes, l.queries)
	}
	shown := r.instances("web")[0].DeepCopy()
	r.c.Describe(shown)
	asked := shown.Status.Requests[v1alpha1.CapacityCPU]
	if u := shown.Status.Usage; u == nil || u.CPU == nil || u.CPU.MilliValue() != 500 || u.Memory.Value() != 100<<20 || u.At.IsZero() || asked.MilliValue() != 1000 {
		t.Errorf("shown is %+v of %+v", shown.Status.Usage, shown.Status.Requests)
	}
	l.total = 1700 // of 500 each: 4
	r.until("four", func() string { return unless(r.running("web") == 4, r.dump()) })
	if o = r.workload("web"); o.Spec.Replicas == nil || *o.Spec.Replicas != 1 || o.Status.Scale.Declared != 1 || !r.recorder.has("web: ScaledUp") {
		t.Errorf("declared are %v, status %+v, told %v", o.Spec.Replicas, o.Status.Scale, r.recorder.all)
	}
	l.total = 9000
	r.until("no more than six", func() string {
		return unless(r.running("web") == 6 && r.workload("web").Status.Scale.Code == reason.ScaleBounded.String(), r.dump())
	})
	if !r.recorder.has("web: ScaleBounded") {
		t.Errorf("told: %v", r.recorder.all)
	}
	l.total = 900 // 2
	low := r.now
	r.until("two", func() string { return unless(len(r.instances("web")) == 2 && r.running("web") == 2, r.dump()) })
	if took := r.now.Sub(low); took < time.Minute || took > 2*time.Minute {
		t.Errorf("down it went after %s", took)
	}
	if !r.recorder.has("web: ScaledDown") {
		t.Errorf("told: %v", r.recorder.all)
	}
	r.declare("web", web(2))
	r.pass(time.Minute)
	if o = r.workload("web"); o.Status.Scale != nil || len(l.nodes) != 0 {
		t.Errorf("without a scale it has %+v, and measured are %v", o.Status.Scale, l.nodes)
	}
}

// TestScaleWithoutSamples: while nobody says what instances use the number stays, and after a while that is told with its code; another leader
// goes on with the number.
func TestScaleWithoutSamples(t *testing.T) {
	r, l := measured(t)
	l.total = 1500
	r.declare("web", byCPU(1))
	r.until("three", func() string { return unless(r.running("web") == 3, r.dump()) })
	l.deaf = true
	r.pass(10 * time.Minute)
	if o := r.workload("web"); o.Status.Wanted != 3 || o.Status.Scale.Code != reason.NoSamples.String() || !r.recorder.has("web: MeasuresMissing") {
		t.Errorf("without samples: %+v; told %v", o.Status.Scale, r.recorder.all)
	}
	r.lead()
	r.c.options.Measures = l
	r.pass(10 * time.Minute)
	if o := r.workload("web"); o.Status.Wanted != 3 || r.running("web") != 3 {
		t.Errorf("after another leader began: %+v", o.Status.Scale)
	}
	l.deaf, l.total = false, 400
	r.until("one", func() string {
		return unless(r.running("web") == 1 && r.workload("web").Status.Scale.Code == "", r.dump())
	})
}

// TestScaleEdited: whoever declares another number has that one at once, and measures go on from there; who declares the same again changes nothing;
// 0 is off.
func TestScaleEdited(t *testing.T) {
	r, l := measured(t)
	l.total = 1500
	r.declare("web", byCPU(1))
	r.until("three", func() string { return unless(r.running("web") == 3, r.dump()) })
	r.declare("web", byCPU(1))
	r.pass(5 * time.Minute)
	if n := r.running("web"); n != 3 {
		t.Errorf("declared again, there are %d", n)
	}
	r.declare("web", byCPU(5))
	r.until("five", func() string { return unless(r.running("web") == 5, r.dump()) })
	r.until("three again", func() string { return unless(r.running("web") == 3, r.dump()) })
	r.declare("web", byCPU(0))
	r.is("web", "Empty")
	r.pass(5 * time.Minute)
	if o := r.workload("web"); r.running("web") != 0 || !strings.Contains(o.Status.Scale.Message, "off") {
		t.Errorf("off, there are %d: %+v", r.running("web"), o.Status.Scale)
	}
}

// TestScaleByQuery: the answer of a Prometheus counts, also from none on; why there is none is told.
func TestScaleByQuery(t *testing.T) {
	r, l := measured(t)
	q := measures.Query{Server: "default", Text: "sum(queue)"}
	none := int32(0)
	spec := web(0)
	spec.Scale = &declared.Scale{Min: &none, Max: 6, Down: declared.ScaleBound{Stabilization: "30s"}, Targets: []declared.ScaleTarget{
		{Name: "queue", Prometheus: &declared.PrometheusTarget{PrometheusQuery: declare.PrometheusQuery{Query: q.Text}, PerInstance: "10"}}}}
	answer := func(v float64) { l.answers[q] = scale.Answer{At: r.now, Value: v} }
	answer(0)
	r.declare("web", spec)
	r.is("web", "Empty")
	if !l.queries[q] || len(l.queries) != 1 || len(l.nodes) != 0 {
		t.Errorf("measured are %v and %v", l.nodes, l.queries)
	}
	r.until("three", func() string {
		answer(25)
		return unless(r.running("web") == 3, r.dump())
	})
	l.answers[q] = scale.Answer{Missing: "default does not answer: it cannot be reached"}
	r.pass(5 * time.Minute)
	if s := r.workload("web").Status.Scale; s.Replicas != 3 || s.Code != reason.NoSamples.String() || !strings.Contains(s.Message, "cannot be reached") {
		t.Errorf("without an answer: %+v", s)
	}
	r.until("none", func() string {
		answer(0)
		return unless(len(r.instances("web")) == 0, r.dump())
	})
}

// TestScaleIsSeldomWritten: what is measured is written once a minute at most where it changes nothing.
func TestScaleIsSeldomWritten(t *testing.T) {
	r, l := measured(t)
	l.total = 500
	r.declare("web", byCPU(1))
	r.is("web", "Complete")
	r.pass(5 * time.Minute)
	before := r.store.writes
	for range 40 {
		l.total ^= 8 // within the tolerance
		r.pass(15 * time.Second)
	}
	if n := r.store.writes - before; n > 11 {
		t.Errorf("%d writes in ten minutes", n)
	}
}

// TestScaleDuringRollout: of a revision that never gets ready nothing counts.
func TestScaleDuringRollout(t *testing.T) {
	r, l := measured(t)
	l.total = 900
	r.declare("web", byCPU(2))
	stable := r.is("web", "Complete").Status.Rollout.Target
	r.quality = func(in *v1alpha1.Instance) quality {
		if in.Spec.Revision != stable {
			return unready
		}
		return good
	}
	spec := version(byCPU(2), "2")
	spec.Rollout.ProgressDeadline = "1m"
	r.declare("web", spec)
	for range 60 {
		r.pass(15 * time.Second)
		if o := r.workload("web"); o.Status.Scale.Replicas > 2 {
			t.Fatalf("it has grown: %+v", o.Status.Scale)
		}
	}
}

// TestStands: in which phases of a rollout what is there may not be trusted.
func TestStands(t *testing.T) {
	for phase, want := range map[pace.Phase]scale.Rollout{
		"": scale.Settled, pace.Complete: scale.Settled, pace.Empty: scale.Settled, pace.Rolling: scale.Rolling, pace.Waiting: scale.Rolling, pace.Paused: scale.Rolling,
		pace.Halted: scale.Broken, pace.RollingBack: scale.Broken, pace.RolledBack: scale.Broken,
	} {
		if is := stands(phase); is != want {
			t.Errorf("%s stands as %d, want %d", phase, is, want)
		}
	}
}
