package workloads

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/transfer/wire"
)

// written is that a server has written something.
func (w *world) written(s *server, verb string, o object) {
	switch o := o.(type) {
	case *v1alpha1.Revision:
		if verb == "create" {
			w.truth.templates[o.Name] = o.Spec.Template.DeepCopy()
		}
	case *v1alpha1.Workload:
		if verb == "create" {
			w.checkRun(s, o)
		}
		if verb == "create" || verb == "update" { // of its finalizers
			w.truth.declared(o)
		}
		w.checkStatus(verb, o)
	case *v1alpha1.Instance:
		w.checkInstance(s, verb, o)
	}
}

func (w *world) checkStatus(verb string, o *v1alpha1.Workload) {
	if verb != "status" {
		return
	}
	const takenMax, failedMax = 100, 10 // as in fleet/workload
	switch st := &o.Status; {
	case st.ObservedGeneration > o.Generation:
		w.broken("I11", "%s is said to be of generation %d, and there are %d", o.Name, st.ObservedGeneration, o.Generation)
	case len(st.Taken) > takenMax, len(st.Failed) > failedMax, len(st.Culprits) > pace.CulpritsMax:
		w.broken("I11", "%s grows: %s", o.Name, words(st))
	}
}

func (w *world) checkInstance(s *server, verb string, o *v1alpha1.Instance) {
	of := w.store.workload(o.Spec.Workload)
	if owner := metav1.GetControllerOf(o); of != nil && (owner == nil || owner.UID != of.UID) {
		of = nil
	}
	switch {
	case verb == "create":
		w.did("instance created")
		w.say("%s creates %s %s of %s on %s", s.name, o.Name, o.UID, o.Spec.Revision, o.Spec.Node)
		w.checkCreated(s, of, o)
		w.checkRollout(s, of, o)
		w.checkRoom(o)
	case verb == "delete":
		w.did("instance deleted")
		w.freed(o)
		if n := s.sights[o.Spec.NodeUID]; n != nil && n.seen.Presence == node.Gone {
			w.did("fenced")
		}
		w.say("%s deletes %s %s on %s", s.name, o.Name, o.UID, o.Spec.Node)
		if id, runs := w.runs(o); runs {
			w.broken("I4", "%s deletes %s, and %v runs on %s", s.name, o.Name, id, o.Spec.Node)
		}
	case verb == "status" && o.Status.Abandoned != nil:
		w.did("instance given up")
		w.say("%s gives up %s %s on %s", s.name, o.Name, o.UID, o.Spec.Node)
	case verb == "update" && o.Spec.Stop != nil:
		w.did("stopped for " + o.Spec.Stop.Code)
		w.say("%s stops %s %s on %s: %s", s.name, o.Name, o.UID, o.Spec.Node, o.Spec.Stop.Code)
		if of != nil {
			w.checkBudget(s, of, o)
		}
	case verb == "update" && of != nil:
		w.did("changed in place")
		w.say("%s has %s %s on %s be of %s", s.name, o.Name, o.UID, o.Spec.Node, o.Spec.Revision)
		w.checkRollout(s, of, o)
	}
}

// runs finds what runs of an instance, in truth.
func (w *world) runs(o *v1alpha1.Instance) (run.ID, bool) {
	h := w.byUID[string(o.Spec.NodeUID)]
	for id, p := range h.procs {
		if id.Instance == string(o.UID) && p.status.Phase != run.Ended {
			return id, true
		}
	}
	return run.ID{}, false
}

// of are the instances of a workload.
func (w *world) of(o *v1alpha1.Workload) (all []*v1alpha1.Instance) {
	for _, in := range listed[*v1alpha1.Instance](w.store) {
		if owner := metav1.GetControllerOf(in); owner != nil && owner.UID == o.UID {
			all = append(all, in)
		}
	}
	return all
}

// said is what a server has heard of an instance, and from whom it is heard now; nil: nothing.
func (s *server) said(in *v1alpha1.Instance) (said *wire.Instance, here bool) {
	n := s.sights[in.Spec.NodeUID]
	if n == nil {
		return nil, false
	}
	if n.seen.Report != nil {
		if at := slices.IndexFunc(n.seen.Report.Instances, func(i wire.Instance) bool { return types.UID(i.UID) == in.UID }); at >= 0 {
			said = &n.seen.Report.Instances[at]
		}
	}
	return said, n.seen.Presence == node.Here
}

// checkCreated: an instance is made for a workload that waits for its end, and not one too many (W1, I3).
func (w *world) checkCreated(s *server, of *v1alpha1.Workload, made *v1alpha1.Instance) {
	if of == nil || !slices.Contains(of.Finalizers, "tako.dev/instances") {
		w.broken("I3", "%s makes %s for nobody who waits for its end", s.name, made.Name)
	}
	if n := s.sights[made.Spec.NodeUID]; n == nil || n.seen.Presence != node.Here {
		w.broken("I3", "%s is placed on %s, which is not heard", made.Name, made.Spec.Node)
	}
	if of.Spec.Mode != declared.Replicated || w.now.Before(w.truth.twice) {
		return
	}
	most := 0
	for _, spec := range w.truth.since(of, of.Status.ObservedGeneration) {
		most = max(most, bound(spec))
	}
	leaving := false
	var there []string
	for _, in := range w.of(of) {
		said, _ := s.said(in)
		n := w.store.node(in.Spec.Node)
		leaving = leaving || away(n) || in.Status.Leave != nil
		if in.Status.Abandoned == nil && (said == nil || said.Phase < wire.InstanceFailed) {
			there = append(there, fmt.Sprint(in.Name, " ", in.UID, " on ", in.Spec.Node))
		}
	}
	if leaving || w.now.Sub(w.truth.freed) < 2*lagMax {
		most += most // each that is to leave may have one that stands in for it first
	}
	if len(there) > most {
		w.broken("W1", "%s makes %s, and then there are %d of at most %d: %s", s.name, made.Name, len(there), most, strings.Join(there, ", "))
	}
}

// checkRollout: while people have paused a rollout nothing more gets the new revision, and in a step of a canary not more than it says (I7, I8).
func (w *world) checkRollout(s *server, of *v1alpha1.Workload, made *v1alpha1.Instance) {
	r := of.Status.Rollout
	if r == nil || r.Over || r.Goal != made.Spec.Revision || r.Goal == of.Status.Stable || of.Spec.Mode == declared.RunToCompletion || w.now.Before(w.truth.twice) {
		return
	}
	paused, most := true, 0
	for _, spec := range w.truth.since(of, of.Status.ObservedGeneration) {
		paused = paused && spec.Rollout.Pause
		most = max(most, w.canaries(of, spec))
	}
	if paused {
		w.broken("I7", "%s is paused, and %s has %s be of %s, which is new: %s", of.Name, s.name, made.Name, r.Goal, words(of.Status))
	}
	if w.did("given what is new"); most < math.MaxInt {
		w.did("given to a canary")
	}
	fresh, wishes := 0, 0
	for _, in := range w.of(of) {
		said, _ := s.said(in)
		if away(w.store.node(in.Spec.Node)) || in.Status.Leave != nil {
			wishes++ // one that stands in for it may be begun first
		}
		if in.Spec.Revision == r.Goal && in.Spec.Stop == nil && in.Status.Abandoned == nil && (said == nil || said.Phase < wire.InstanceFailed) {
			fresh++
		}
	}
	if most < math.MaxInt && fresh > most+wishes && w.now.Sub(w.truth.freed) > 2*lagMax {
		w.broken("I8", "%s has %s be of %s, and then %d are in step %d, which has %d", s.name, made.Name, r.Goal, fresh, r.Step, most)
	}
}

// canaries is how many may have the new revision in the step that is under way; all, where there is none.
func (w *world) canaries(of *v1alpha1.Workload, spec *declared.Spec) int {
	r := of.Status.Rollout
	wanted := max(int(of.Status.Wanted), spec.ReplicasOrDefault())
	if spec.Rollout.Strategy != declared.Canary || int(r.Step) >= len(spec.Rollout.Steps) || r.Goal != r.Target || of.Status.Stable == "" {
		return math.MaxInt
	}
	return pace.Share(spec.Rollout.Steps[r.Step].Replicas, wanted, pace.Up)
}

// bound is how many there may be at most.
func bound(s *declared.Spec) int {
	n := int(s.ReplicasOrDefault())
	switch {
	case s.OnUnreachable.ActionOrDefault() == declared.FenceUnreachable:
		return n
	case s.Rollout.Strategy == declared.BlueGreen:
		return 2 * n
	}
	surge := s.Rollout.MaxSurge
	if surge == "" {
		surge = "25%"
	}
	return n + pace.Share(surge, n, pace.Up)
}

// checkRoom: no commit places onto a node more than is free at that commit (W2).
func (w *world) checkRoom(made *v1alpha1.Instance) {
	if w.now.Before(w.truth.twice) {
		return // of two that take themselves for leaders none knows what the other has just written: the host refuses then
	}
	h := w.byUID[string(made.Spec.NodeUID)]
	used := int64(0)
	var there []string
	for _, in := range listed[*v1alpha1.Instance](w.store) {
		if in.Spec.NodeUID != made.Spec.NodeUID || in.Status.Phase == v1alpha1.InstanceDone || in.Status.Phase == v1alpha1.InstanceFailed || w.over(h, in) {
			continue
		}
		milli, ok := w.truth.templates[in.Spec.Revision].Tasks[0].Resources.Requests.CPU.Milli()
		if ok != nil {
			panic(ok)
		}
		used += milli
		there = append(there, in.Name)
	}
	if used > h.offers.CPU {
		w.broken("W2", "%s has %dm, and %dm are placed there: %s", h.name, h.offers.CPU, used, strings.Join(there, ", "))
	}
}

// over: its host has it no more.
func (w *world) over(h *host, in *v1alpha1.Instance) bool {
	for _, s := range w.servers {
		if said, _ := s.said(in); s.leads() && said != nil && said.Phase >= wire.InstanceFailed {
			return true
		}
	}
	return false
}

// checkBudget: of what works as many stay as rollout and budget want, as far as the server that takes one away can know (I2, I10).
func (w *world) checkBudget(s *server, of *v1alpha1.Workload, stopped *v1alpha1.Instance) {
	spec := &of.Spec
	said, here := s.said(stopped)
	if said == nil || !said.Ready || !here || of.Status.ObservedGeneration != of.Generation || spec.Mode != declared.Replicated {
		return
	}
	wanted := int(of.Status.Wanted)
	floor := 0
	switch stopped.Spec.Stop.Code {
	case reason.Replaced.String():
		gone := pace.Share("25%", wanted, pace.Down)
		if bound(spec) == wanted {
			gone = max(gone, 1)
		}
		floor = wanted - gone
	case reason.NodeDrained.String(), reason.PlacementChanged.String():
		floor = wanted - 1
		if bound(spec) > wanted {
			floor = max(floor, 1)
		}
	default:
		return
	}
	if spec.DisruptionBudget != nil {
		floor = min(floor, wanted-2) // as it is declared here
	}
	ready := 0
	for _, in := range w.of(of) {
		if said, here := s.said(in); here && said != nil && said.Ready && in.Spec.Stop == nil && in.Status.Abandoned == nil {
			ready++
		}
	}
	if ready < min(floor, wanted) {
		w.broken("W1", "%s stops %s for %s, and of %d that are wanted %d are left that work, at least %d must be", s.name, stopped.Name, stopped.Spec.Stop.Code, wanted, ready, floor)
	}
}

// checkLeases: a host that is heard all the time begins what is exclusive, however seldom hosts report otherwise: it has known for long that leases
// are declared.
func (w *world) checkLeases(h *host, r *wire.Report) {
	if w.calm.IsZero() || w.now.Before(w.calm) {
		return
	}
	for i := range r.Instances {
		if r.Instances[i].Code != reason.LeaseOver {
			continue
		}
		for _, in := range listed[*v1alpha1.Instance](w.store) {
			of := w.store.workload(in.Spec.Workload)
			known := of != nil && in.CreationTimestamp.Sub(of.CreationTimestamp.Time) > silentMax
			if string(in.UID) == r.Instances[i].UID && known && !in.CreationTimestamp.Time.Before(w.calm) {
				w.broken("I9", "%s is heard, and refuses %s: %s", h.name, in.Name, r.Instances[i].Message)
			}
		}
	}
}

// settled: everything is as declared, on hosts and not only in words.
func (w *world) settled() {
	for _, o := range listed[*v1alpha1.Workload](w.store) {
		if o.Spec.Schedule != nil {
			continue
		}
		if o.Spec.Mode == declared.RunToCompletion {
			if o.Status.Job == nil || o.Status.Job.Over == nil {
				w.broken("I9", "%s is not over: %s", o.Name, words(o.Status))
			}
			continue
		}
		wanted := int(o.Spec.ReplicasOrDefault())
		if o.Spec.Mode == declared.PerNode {
			wanted = len(w.hosts)
		}
		work := 0
		all := w.of(o)
		for _, in := range all {
			if w.works(o, in) {
				work++
			}
		}
		st := &o.Status
		if len(all) != wanted || work != wanted || st.ObservedGeneration != o.Generation || int(st.AvailableReplicas) != wanted || wanted > 0 && st.Phase != string(pace.Complete) {
			w.broken("I9", "%s wants %d, %d are there, %d work: %s\n%s", o.Name, wanted, len(all), work, words(st), w.tellOf(o))
		}
	}
	for _, h := range w.hosts {
		for id, p := range h.procs {
			if p.status.Phase != run.Ended && h.wants(id.Instance) == nil {
				w.broken("I9", "%v runs on %s, and nobody wants it", id, h.name)
			}
		}
		if len(h.records) != len(h.have.list) {
			w.broken("I9", "%s has %d records of %d instances: %v", h.name, len(h.records), len(h.have.list), slices.Sorted(maps.Keys(h.records)))
		}
	}
}

// works: a process of it runs that is ready, of the version that is declared.
func (w *world) works(o *v1alpha1.Workload, in *v1alpha1.Instance) bool {
	h := w.byUID[string(in.Spec.NodeUID)]
	for id, p := range h.procs {
		if id.Instance == string(in.UID) && p.status.Phase == run.Running && !w.now.Before(p.ready) {
			return w.truth.templates[in.Spec.Revision].Tasks[0].Args[0] == o.Spec.Template.Tasks[0].Args[0]
		}
	}
	return false
}

// words are a status as people read it.
func words(status any) string {
	data, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// tellOf is how the instances of a workload stand.
func (w *world) tellOf(o *v1alpha1.Workload) string {
	var b strings.Builder
	for _, in := range w.of(o) {
		fmt.Fprintf(&b, "  %s %s %s on %s stop %v abandoned %v works %v\n", in.Name, in.UID, in.Spec.Revision, in.Spec.Node, in.Spec.Stop != nil, in.Status.Abandoned != nil, w.works(o, in))
		if h := w.byUID[string(in.Spec.NodeUID)]; h.running {
			for _, t := range h.machine.Told() {
				if t.UID == string(in.UID) {
					fmt.Fprintf(&b, "    its host says %+v\n", t)
				}
			}
		}
	}
	return b.String()
}
