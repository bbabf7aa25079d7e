package workloads

import (
	"time"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/controllers/scales"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/fleet/scale"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// Measures is what is measured for the scale of workloads. *measures.Measures is one.
type Measures interface {
	// Of is what an instance takes on a node; false where that is not known.
	Of(node, instance types.UID) (scale.Sample, bool)
	measures.Answers
	// Want says what is to be measured: the instances on nodes, and queries. The maps are the callee's from then on.
	Want(nodes map[types.UID]bool, queries map[measures.Query]bool)
}

const (
	// wantEvery is how often it is found out what is to be measured: less than what measures are apart, and seldom enough that it may look at all.
	wantEvery = time.Second
	// measuredEvery is how often the status of a workload is written for what was measured alone: less than the two minutes for which a decision
	// counts what was asked for before without a break, so that another leader goes on with it.
	measuredEvery = time.Minute
)

// scaled is what the loop knows of workloads whose number follows what is measured.
type scaled struct {
	measured map[*workload]bool
	wantAt   time.Time // when it is found out again what is to be measured
}

// scaleOf decides how many instances of a workload are wanted by what is measured, where that is declared.
func (c *Workloads) scaleOf(w *world, of *workload, d *decision, now time.Time) (wanted int) {
	spec := &of.o.Spec
	wanted, d.status.Scale = spec.ReplicasOrDefault(), nil
	if of.o.DeletionTimestamp != nil {
		delete(w.measured, of)
		return wanted
	}
	if spec.Scale != nil || len(spec.Rollout.Gates) > 0 {
		w.measured[of] = true
	}
	if spec.Scale == nil {
		return wanted
	}
	v := scale.View{
		Spec: spec.Scale, Declared: wanted, Workload: string(of.o.UID), Stable: of.was.Stable.Of, Rollout: stands(of.was.Phase), Was: scales.Decode(of.o.Status.Scale), Zone: time.LoadLocation,
		Answers: map[string]scale.Answer{}, Instances: make([]scale.Instance, 0, len(of.instances)),
	}
	for i := range spec.Scale.Targets {
		if t := &spec.Scale.Targets[i]; t.Prometheus != nil && c.options.Measures != nil {
			v.Answers[t.Name] = c.options.Measures.Answer(measures.QueryOf(of.o.Namespace, &t.Prometheus.PrometheusQuery))
		}
	}
	for _, in := range of.sorted() {
		v.Instances = append(v.Instances, c.measuredOf(in))
	}
	s := scale.Decide(v, now)
	d.status.Scale = scales.Encode(&s)
	d.status.Scale.Message = clip(s.Why)
	d.measureAt = s.WakeAt.Truncate(time.Second).Add(time.Second) // those of many workloads in one round
	return s.Replicas
}

// measuredOf is an instance as the scale sees it.
func (c *Workloads) measuredOf(in *instance) scale.Instance {
	s := &in.seen
	wants := in.of.requestsOf(s.Revision).amounts
	i := scale.Instance{
		Workload: s.Owner, Revision: s.Revision, Terminating: in.o.Spec.Stop != nil || s.Phase >= fleet.Terminating || s.Abandoned, CPU: wants.CPU, Memory: wants.Memory,
	}
	if s.Phase == fleet.Running {
		i.Ready = s.ReadySince
	}
	if c.options.Measures != nil && in.here {
		i.Sample, _ = c.options.Measures.Of(in.o.Spec.NodeUID, in.o.UID)
	}
	return i
}

// requested is what the tasks of a revision request together, for decisions and for people.
type requested struct {
	uid     types.UID // of the revision, whose template never changes
	amounts fit.Amounts
	told    map[v1alpha1.CapacityName]quantity.Quantity // shared, and never changed
}

// requestsOf are what the tasks of a revision request together; nothing where nobody has it any more.
func (of *workload) requestsOf(revision string) requested {
	r := of.revisions[revision]
	if r == nil {
		return requested{}
	}
	if known := of.requests[revision]; known.uid == r.UID {
		return known
	}
	is := requested{uid: r.UID}
	if request, err := fit.Compile(&declared.Spec{Template: *r.Spec.Template}); err == nil { // validation lets nothing else through
		a := request.Amounts
		is.amounts, is.told = a, map[v1alpha1.CapacityName]quantity.Quantity{
			v1alpha1.CapacityCPU: *quantity.NewMilliQuantity(a.CPU, quantity.DecimalSI), v1alpha1.CapacityMemory: *quantity.NewQuantity(a.Memory, quantity.BinarySI),
			v1alpha1.CapacityDisk: *quantity.NewQuantity(a.Disk, quantity.BinarySI),
		}
	}
	if of.requests == nil {
		of.requests = map[string]requested{}
	}
	of.requests[revision] = is
	return is
}

// usageOf is what an instance takes, for people; nil where its host has not said. It may be called by any goroutine.
func (c *Workloads) usageOf(in *v1alpha1.Instance) *v1alpha1.InstanceUsage {
	if c.options.Measures == nil {
		return nil
	}
	s, known := c.options.Measures.Of(in.Spec.NodeUID, in.UID)
	if !known {
		return nil
	}
	u := &v1alpha1.InstanceUsage{At: statuses.Seconds(s.At), Memory: *quantity.NewQuantity(s.Memory, quantity.BinarySI)}
	if s.CPU >= 0 {
		u.CPU = quantity.NewMilliQuantity(s.CPU, quantity.DecimalSI)
	}
	return u
}

// stands is how a rollout does that was in a phase at the last decision.
func stands(p pace.Phase) scale.Rollout {
	switch p {
	case "", pace.Empty, pace.Complete:
		return scale.Settled
	case pace.Halted, pace.RollingBack, pace.RolledBack:
		return scale.Broken
	}
	return scale.Rolling
}

// want has measured what the scales of workloads are about, and nothing else.
func (c *Workloads) want(w *world, now time.Time) {
	if c.options.Measures == nil || now.Before(w.wantAt) {
		return
	}
	w.wantAt = now.Add(wantEvery)
	nodes, queries := map[types.UID]bool{}, map[measures.Query]bool{}
	for of := range w.measured {
		if of.o == nil || of.o.Spec.Scale == nil && len(of.o.Spec.Rollout.Gates) == 0 {
			delete(w.measured, of)
			continue
		}
		for i := range of.gates() {
			queries[measures.QueryOf(of.o.Namespace, &of.gates()[i].Prometheus)] = true
		}
		usage := false
		for i := range of.targets() {
			if t := &of.targets()[i]; t.Prometheus != nil {
				queries[measures.QueryOf(of.o.Namespace, &t.Prometheus.PrometheusQuery)] = true
			} else {
				usage = true
			}
		}
		for _, in := range of.instances {
			if usage && in.here {
				nodes[in.o.Spec.NodeUID] = true
			}
		}
	}
	c.options.Measures.Want(nodes, queries)
}

// targets are what its number follows.
func (of *workload) targets() []declared.ScaleTarget {
	if of.o.Spec.Scale == nil {
		return nil
	}
	return of.o.Spec.Scale.Targets
}

// gates are those of a rollout that is under way, and not on its way back.
func (of *workload) gates() []declare.Gate {
	if r := &of.was.Rollout; r.Over || r.Halt != nil || r.Goal != r.Target || of.o.Spec.Mode == declared.RunToCompletion {
		return nil
	}
	return of.o.Spec.Rollout.Gates
}

// differsByMeasures reports whether two statuses differ in nothing but what was measured, and what was asked for because of it.
func differsByMeasures(a, b *v1alpha1.WorkloadStatus) bool {
	if a.Scale == nil || b.Scale == nil || a.Scale.Replicas != b.Scale.Replicas || a.Scale.Declared != b.Scale.Declared || a.Scale.Code != b.Scale.Code {
		return false
	}
	plainA, plainB := *a, *b
	plainA.Scale, plainB.Scale = nil, nil
	return sameStatus(&plainA, &plainB)
}

// tellScale makes the Events about another number, and about one that is not what the load needs.
func (c *Workloads) tellScale(of *workload, was *v1alpha1.ScaleStatus) {
	for _, e := range scales.Events(was, of.o.Status.Scale) {
		c.options.Recorder.Tell(of.reference(), e.Type, e.Reason, e.Message)
	}
}
