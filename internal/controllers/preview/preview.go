package preview

import (
	"cmp"
	"context"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/controllers/workloads"
)

// Fleet is what there is. The objects may be shared: they are not changed.
type Fleet struct {
	// Nodes are all nodes: those of other environments count where it is said that too many are gone, and that they are others.
	Nodes []*v1alpha1.Node
	// Workloads, Revisions and Instances are those of the namespace, and of others that they are to be near to or away from.
	Workloads []*v1alpha1.Workload
	Revisions []*v1alpha1.Revision
	Instances []*v1alpha1.Instance
	Hosts
}

// Hosts are what is known of hosts, and stored nowhere.
type Hosts struct {
	// Seen is what is known of the host of a node.
	Seen func(node types.UID) (presence.Seen, bool)
	// Measures is what the scale of workloads follows. Nil: nothing is measured.
	Measures workloads.Measures
}

const (
	// roundsMax is how many rounds are decided at most: a thousand instances that are replaced one after the other take about three each.
	roundsMax = 5000
	// horizon is how far the clock goes on at most: rollouts with longer pauses are shown as far as they have come by then.
	horizon = 24 * time.Hour
	// soon is how long decisions put off what they do by themselves: half a second for what is only told, one for what could not be written.
	soon = 2 * time.Second
	// idleMax is how often the clock goes on although nothing came of it before: twice for what was put off, and once more.
	idleMax = 3
)

// Make says what would come of applying and deleting workloads of a namespace now. It ends with ctx, and says in the answer where that was too soon.
// The spec is valid.
func Make(ctx context.Context, fleet *Fleet, namespace string, spec *v1alpha1.PlanSpec, now time.Time) (v1alpha1.PlanStatus, error) {
	s := newStore(now.Truncate(time.Microsecond))
	message, err := follow(ctx, s, &hosts{real: fleet.Seen, seen: map[types.UID]heard{}}, fleet, namespace, spec)
	if err != nil {
		return v1alpha1.PlanStatus{}, err
	}
	status := compare(fleet, namespace, s).status(spec)
	status.Message = message
	return status, nil
}

// follow leaves in a store, and with hosts, what comes of it. It returns why that is not all; empty: it is.
func follow(ctx context.Context, s *store, h *hosts, fleet *Fleet, namespace string, spec *v1alpha1.PlanSpec) (string, error) {
	c, err := workloads.New(workloads.Options{Objects: s, Presence: h, Recorder: silent{}, Writers: 1, Measures: readingOf(fleet.Measures)})
	if err != nil {
		return "", err
	}
	s.gone = func(kind string, o object) { _ = c.Inbox(kind).Delete(o) } // an Inbox takes everything
	planned := s.fill(fleet, namespace, spec)
	for _, kind := range []string{v1alpha1.KindNode, v1alpha1.KindWorkload, v1alpha1.KindRevision, v1alpha1.KindInstance} {
		_ = c.Inbox(kind).Replace(s.list(kind), "")
	}
	h.work(fleet.Instances)
	return s.run(ctx, c.Lead(s.now), h, planned), nil
}

// fill puts in what there is, and what is planned. It returns the names of what is planned.
func (s *store) fill(fleet *Fleet, namespace string, spec *v1alpha1.PlanSpec) map[types.NamespacedName]bool {
	for _, n := range fleet.Nodes {
		s.put(n)
	}
	for _, o := range fleet.Workloads {
		if o.Spec.Schedule == nil { // no run begins by itself while the clock goes on
			s.put(o)
		}
	}
	for _, o := range fleet.Revisions {
		s.put(o)
	}
	for _, o := range fleet.Instances {
		s.put(o)
	}
	planned := map[types.NamespacedName]bool{}
	for i := range spec.Workloads {
		p := &spec.Workloads[i]
		planned[types.NamespacedName{Namespace: namespace, Name: p.Name}] = true
		s.apply(namespace, p)
	}
	for _, name := range spec.Delete {
		planned[types.NamespacedName{Namespace: namespace, Name: name}] = true
		o := &v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		_ = s.Delete(context.Background(), o, nil) // what is not there is what is wanted
	}
	s.writes, s.fresh = 0, nil
	return planned
}

// apply makes a workload what it would be. Of a schedule it is one run that begins now.
func (s *store) apply(namespace string, p *v1alpha1.PlannedWorkload) {
	o := &v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.Name, UID: types.UID("planned/" + p.Name), CreationTimestamp: metav1.NewTime(s.now), Generation: 1}}
	if was, is := s.objects[keyOf(o)].(*v1alpha1.Workload); is {
		o = was.DeepCopy()
		if !equality.Semantic.DeepEqual(o.Spec, p.Spec) {
			o.Generation++
		}
	}
	o.Annotations, o.Spec = p.Annotations, *p.Spec.DeepCopy()
	o.Spec.Schedule = nil
	s.write(o)
}

// list are the objects of a kind, by name.
func (s *store) list(kind string) []any {
	var all []any
	for k, o := range s.objects {
		if k.kind == kind {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b any) int { return cmp.Compare(a.(object).GetName(), b.(object).GetName()) })
	return all
}

// run lets everything happen that follows. It returns why that is not all; empty: it is.
func (s *store) run(ctx context.Context, lead *workloads.Lead, h *hosts, planned map[types.NamespacedName]bool) string {
	end, idle := s.now.Add(horizon), 0
	for range roundsMax {
		writes := s.writes
		next, _ := lead.Round(ctx, s.now)
		if ctx.Err() != nil {
			return "there was no time to follow it to its end"
		}
		worked := h.work(s.fresh)
		s.fresh = nil
		switch {
		case worked || s.writes > writes:
			idle = 0
			continue
		case next.IsZero(), idle == idleMax, next.After(s.now.Add(soon)) && !s.waits(planned):
			return ""
		case next.After(end):
			return "what comes more than " + horizon.String() + " from now is left out"
		case next.After(s.now):
			s.now = next
		}
		idle++
	}
	return "there was too much to follow it to its end"
}

// waits reports whether something that is planned goes on when a time is over: instances are ready and do not count yet, or a step has its pause.
func (s *store) waits(planned map[types.NamespacedName]bool) bool {
	for _, o := range of[*v1alpha1.Workload](s) {
		status := &o.Status
		if planned[keyOf(o).name] && (status.ReadyReplicas > status.AvailableReplicas || status.Rollout != nil && status.Rollout.Held != nil) {
			return true
		}
	}
	return false
}

// silent hears of no events.
type silent struct{}

func (silent) Tell(core.ObjectReference, string, string, string) {}

// reading is what is measured, of which nothing more is wanted than others want.
type reading struct{ workloads.Measures }

func readingOf(m workloads.Measures) workloads.Measures {
	if m == nil {
		return nil
	}
	return reading{m}
}

// Want wants nothing.
func (reading) Want(map[types.UID]bool, map[measures.Query]bool) {}
