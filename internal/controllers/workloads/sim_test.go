package workloads

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 40

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// TestSimulation: whatever happens to servers, watches, hosts and what people declare, nothing is done that may not be done, and when the world is
// quiet everything is as declared.
func TestSimulation(t *testing.T) {
	first, seeds := uint64(1), number("TAKO_SEEDS", simSeeds)
	if one := number("TAKO_SEED", 0); one != 0 {
		first, seeds = one, 1
	}
	happened := map[string]int{}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { simulate(t, seed, happened) })
		if t.Failed() {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
	if seeds < simSeeds {
		return
	}
	for _, what := range []string{"create", "stop TK0752", "stop TK0753", "stop TK0754", "stop TK0758", "abandon", "delete", "killed", "lead", "conflict", "busy"} {
		if happened[what] == 0 {
			t.Errorf("%s has not happened once: %v", what, happened)
		}
	}
}

// sim is a world in which anything happens.
type sim struct {
	*rig
	rng      *rand.Rand
	happened map[string]int
	bad      map[string]quality // by version
	versions int
	deciding bool
	specs    map[types.UID]declared.Spec
	calm     bool
}

func simulate(t *testing.T, seed uint64, happened map[string]int) {
	s := &sim{rig: newRig(t), rng: rand.New(rand.NewPCG(seed, 0)), happened: happened, bad: map[string]quality{}, specs: map[types.UID]declared.Spec{}}
	s.quality = func(in *v1alpha1.Instance) quality {
		if s.calm {
			return good
		}
		return s.bad[s.versionOf(in)]
	}
	s.store.onWrite, s.store.fault = s.check, s.refuse
	for i := range 3 + s.rng.IntN(4) {
		s.join(fmt.Sprint("n", i))
	}
	for range 60 {
		s.any()
		s.some()
	}
	s.heal()
}

// refuse is a store that refuses a write of the server now and then: because somebody was faster, or because it is busy.
func (s *sim) refuse(_ string, o runtime.Object) error {
	switch {
	case !s.deciding || s.calm || !s.oneIn(30):
		return nil
	case s.oneIn(2):
		s.happened["conflict"]++
		return apierrors.NewConflict(resource(o.(object)), o.(object).GetName(), errors.New("somebody was faster"))
	}
	s.happened["busy"]++
	return apierrors.NewTooManyRequestsError("the store is busy")
}

func (s *sim) oneIn(n int) bool { return s.rng.IntN(n) == 0 }

func (s *sim) versionOf(in *v1alpha1.Instance) string {
	for _, r := range all[*v1alpha1.Revision](s.store) {
		if r.Name == in.Spec.Revision && len(r.Spec.Template.Tasks[0].Args) > 0 {
			return r.Spec.Template.Tasks[0].Args[0]
		}
	}
	return ""
}

// some is a few rounds, or work of hosts, in any order; watches may be late.
func (s *sim) some() {
	s.feeding = []int{0, 0, 1, 3}[s.rng.IntN(4)]
	for range s.rng.IntN(6) {
		if s.oneIn(3) {
			s.work()
		}
		if s.oneIn(4) {
			s.store.collect()
		}
		s.decideOnce()
	}
	s.now = s.now.Add(time.Duration(s.rng.IntN(30_000)) * time.Millisecond)
	if s.oneIn(5) {
		s.now = s.now.Add(time.Duration(s.rng.IntN(400)) * time.Second)
	}
}

func (s *sim) decideOnce() {
	s.deciding = true
	s.round()
	s.deciding = false
	if s.store.killed {
		s.happened["killed"]++
		s.newLeader()
	}
}

func (s *sim) newLeader() {
	s.happened["lead"]++
	s.lead()
}

// any is something that happens.
func (s *sim) any() {
	name := []string{"a", "b", "c"}[s.rng.IntN(3)]
	h := s.hosts[slices.Sorted(maps.Keys(s.hosts))[s.rng.IntN(len(s.hosts))]]
	switch s.rng.IntN(16) {
	case 0, 1, 2, 3:
		s.declareAny(name)
	case 4:
		if o := s.there(name); o != nil {
			s.byPeople(func() { s.must(s.store.Delete(s.Context(), o, nil)) })
		}
	case 5:
		s.cut(h.name)
	case 6, 7:
		s.link(h.name)
	case 8:
		s.changeNode(h.name, func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} })
	case 9, 10:
		s.changeNode(h.name, func(n *v1alpha1.Node) { n.Spec.Drain, n.Spec.Taints, n.Spec.Unschedulable = nil, nil, false })
	case 11:
		s.changeNode(h.name, func(n *v1alpha1.Node) { n.Spec.Taints = []declare.Taint{taint(declare.TaintNoExecute)} })
	case 12:
		s.newLeader()
	case 13:
		s.store.budget = 1 + s.rng.IntN(8)
	case 14:
		h.slow = !h.slow
	case 15:
		s.store.relist(s.c)
	}
}

func (s *sim) changeNode(name string, change func(*v1alpha1.Node)) {
	s.byPeople(func() { s.change(name, change) })
}

// byPeople does what the server is not killed by.
func (s *sim) byPeople(do func()) {
	was := s.store.budget
	s.store.budget = -1
	do()
	s.store.budget = was
}

func (s *sim) there(name string) *v1alpha1.Workload {
	o := &v1alpha1.Workload{}
	err := s.store.Get(s.Context(), types.NamespacedName{Namespace: "prod", Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return o
}

// declareAny declares anything of a workload, while the server works on what was before.
func (s *sim) declareAny(name string) {
	o := s.there(name)
	if o != nil && o.DeletionTimestamp != nil {
		return
	}
	spec := web(int32(s.rng.IntN(5)))
	if o != nil {
		spec = *o.Spec.DeepCopy()
		if spec.Mode == declared.Replicated && s.oneIn(2) {
			spec.Replicas = new(int32(s.rng.IntN(5)))
		}
	} else {
		spec.Mode = declared.Replicated
		if s.oneIn(6) {
			spec.Mode, spec.Replicas = declared.PerNode, nil
			spec.Template.Tasks[0].Resources.Requests.CPU = "100m"
		}
	}
	if s.oneIn(2) {
		s.versions++
		v := fmt.Sprint(s.versions)
		s.bad[v] = []quality{good, good, good, unready, failing}[s.rng.IntN(5)]
		spec = version(spec, v)
	}
	spec.Rollout.Pause = s.oneIn(8)
	spec.Priority = int32([]int{0, 0, 10}[s.rng.IntN(3)])
	spec.DisruptionBudget = []*declared.DisruptionBudget{nil, {MaxUnavailable: "1"}, {MinAvailable: "2"}}[s.rng.IntN(3)]
	s.byPeople(func() { s.declare(name, spec) })
}

// check looks at each write that was done: what of it may not be.
func (s *sim) check(verb string, o runtime.Object) {
	if !s.deciding {
		return
	}
	s.store.mu.Unlock() // it is asked within a write
	defer s.store.mu.Lock()
	switch o := o.(type) {
	case *v1alpha1.Workload:
		s.checkWorkload(verb, o)
	case *v1alpha1.Instance:
		s.checkInstance(verb, o)
	}
}

func (s *sim) checkWorkload(verb string, o *v1alpha1.Workload) {
	if was, known := s.specs[o.UID]; verb == "update" && known && !equality.Semantic.DeepEqual(was, o.Spec) && o.Generation == 0 {
		s.Fatalf("the spec of %s was written", o.Name)
	}
	if verb == "status" && o.Status.ObservedGeneration > o.Generation {
		s.Fatalf("%s is said to be of generation %d, and there are %d", o.Name, o.Status.ObservedGeneration, o.Generation)
	}
	if len(o.Status.Taken) > 100 || len(o.Status.Failed) > 10 || len(o.Status.Culprits) > 10 {
		s.Fatalf("%s grows: %+v", o.Name, o.Status)
	}
}

func (s *sim) checkInstance(verb string, o *v1alpha1.Instance) {
	h := s.hosts[o.Spec.Node]
	switch {
	case verb == "create":
		s.happened["create"]++
		s.checkRoom(o)
		of := s.there(o.Spec.Workload)
		if of == nil || !slices.Contains(of.Finalizers, finalizer) {
			s.Fatalf("%s is made for nobody who waits for its end", o.Name)
		}
		if h == nil || h.seen.Presence != node.Here {
			s.Fatalf("%s is placed on %s, which is not heard", o.Name, o.Spec.Node)
		}
	case verb == "delete":
		s.happened["delete"]++
		has := h.has[o.UID]
		if has != nil && has.Phase > wire.InstancePlaced && has.Phase < wire.InstanceFailed && h.uid == o.Spec.NodeUID {
			s.Fatalf("%s is deleted, and runs: %+v\n%s", o.Name, *has, s.dump())
		}
	case o.Spec.Stop != nil && verb == "update":
		s.happened["stop "+o.Spec.Stop.Code]++
		decidedBefore := false
		if of := s.there(o.Spec.Workload); of != nil {
			decidedBefore = of.DeletionTimestamp != nil || slices.ContainsFunc(of.Status.Taken, func(t v1alpha1.TakenInstance) bool { return t.UID == o.UID })
		}
		if s.w.deaf && !decidedBefore {
			s.Fatalf("%s is taken away before all were heard", o.Name)
		}
		s.checkBudget(o)
	case o.Status.Leave != nil && verb == "status":
		s.happened["preempted"]++
	case o.Status.Abandoned != nil && verb == "status":
		s.happened["abandon"]++
	}
}

// checkRoom: no commit places onto a node more than is free at that commit (W2).
func (s *sim) checkRoom(made *v1alpha1.Instance) {
	used := int64(0)
	h := s.hosts[made.Spec.Node]
	names := []string{}
	for _, in := range all[*v1alpha1.Instance](s.store) {
		if in.Spec.NodeUID != made.Spec.NodeUID {
			continue
		}
		if has := h.has[in.UID]; has != nil && has.Phase >= wire.InstanceFailed {
			continue
		}
		names = append(names, in.Name)
		used += s.cpuOf(in)
	}
	if used > h.offers.CPU {
		s.Fatalf("%dm are used on %s by %s, there are %dm: %s", used, made.Spec.Node, strings.Join(names, ", "), h.offers.CPU, s.dump())
	}
}

func (s *sim) cpuOf(in *v1alpha1.Instance) int64 {
	for _, r := range all[*v1alpha1.Revision](s.store) {
		if r.Name == in.Spec.Revision {
			n, _ := r.Spec.Template.Tasks[0].Resources.Requests.CPU.Milli()
			return n
		}
	}
	return 0
}

// checkBudget: a drain leaves as many that are ready as the budget of what is declared says (I10).
func (s *sim) checkBudget(stopped *v1alpha1.Instance) {
	of := s.there(stopped.Spec.Workload)
	has := s.hosts[stopped.Spec.Node].has[stopped.UID]
	if stopped.Spec.Stop.Code != reason.NodeDrained.String() || of == nil || of.Spec.Mode == declared.PerNode || of.Status.ObservedGeneration != of.Generation || has == nil || !has.Ready {
		return
	}
	floor := max(int(of.Status.Wanted)-1, 1)
	if b := of.Spec.DisruptionBudget; b != nil {
		floor = min(int(of.Status.Wanted), 2)
		if b.MaxUnavailable != "" {
			floor = int(of.Status.Wanted) - 1
		}
	}
	ready := 0 // what was given up and is back counts: that is decided with it
	for _, in := range s.instances(stopped.Spec.Workload) {
		if has := s.hosts[in.Spec.Node].has[in.UID]; in.Spec.Stop == nil && has != nil && has.Ready {
			ready++
		}
	}
	if ready < min(floor, int(of.Status.Wanted)) {
		s.Fatalf("%s is stopped for a drain, and %d of %d are left, at least %d must be\n%s", stopped.Name, ready, of.Status.Wanted, floor, s.dump())
	}
}

// heal lets everything be well again, and wants all to be as declared.
func (s *sim) heal() {
	s.calm, s.store.budget, s.feeding = true, -1, 0
	for _, name := range slices.Sorted(maps.Keys(s.hosts)) {
		h := s.hosts[name]
		h.slow = false
		s.link(name)
		s.change(name, func(n *v1alpha1.Node) { n.Spec.Drain, n.Spec.Taints, n.Spec.Unschedulable = nil, nil, false })
	}
	s.join("more", "room")
	s.pass(2 * time.Hour)
	for _, o := range all[*v1alpha1.Workload](s.store) {
		s.versions++
		spec := version(o.Spec, fmt.Sprint(s.versions)) // what has failed is not tried again by itself
		spec.Rollout.Pause = false
		s.declare(o.Name, spec)
	}
	s.pass(2 * time.Hour)
	for _, o := range all[*v1alpha1.Workload](s.store) {
		wanted := o.Spec.ReplicasOrDefault()
		if o.Spec.Mode == declared.PerNode {
			wanted = len(s.hosts)
		}
		if n := len(s.instances(o.Name)); n != wanted || s.running(o.Name) != wanted || o.Status.ObservedGeneration != o.Generation || int(o.Status.AvailableReplicas) != wanted ||
			wanted > 0 && o.Status.Phase != "Complete" {
			s.Fatalf("%s wants %d, and %d are there: %+v\n%s", o.Name, wanted, n, o.Status, s.dump())
		}
		for _, in := range s.instances(o.Name) {
			if in.Spec.Revision != o.Status.Rollout.Target {
				s.Fatalf("%s has %s", in.Name, in.Spec.Revision)
			}
		}
		if len(o.Status.Taken) > 100 || o.Status.Pending != nil {
			s.Fatalf("%+v", o.Status)
		}
	}
	for _, n := range all[*v1alpha1.Node](s.store) {
		for _, c := range n.Status.Conditions {
			if c.Type == v1alpha1.ConditionDrained {
				s.Fatalf("%s is said to be %+v", n.Name, c)
			}
		}
	}
	writes := s.store.writes
	s.pass(24 * time.Hour)
	if s.store.writes != writes {
		s.Fatalf("%d writes in a quiet world\n%s", s.store.writes-writes, s.dump())
	}
	s.remembered()
}

// remembered: nothing is of what has gone.
func (s *sim) remembered() {
	names := map[types.NamespacedName]bool{}
	for _, in := range all[*v1alpha1.Instance](s.store) {
		names[keyOf(in)] = true
	}
	if len(s.w.instances) != len(names) || len(s.w.uids) != len(names) || len(s.c.shown.all) != len(names) || s.w.queue.Len() != 0 || len(s.w.groups) != 0 {
		s.Fatalf("%d instances, %d by UID, %d shown, of %d; %d queued, %d groups", len(s.w.instances), len(s.w.uids), len(s.c.shown.all), len(names), s.w.queue.Len(), len(s.w.groups))
	}
	if n := len(all[*v1alpha1.Workload](s.store)); len(s.w.workloads) != n || len(s.w.byUID) != n {
		s.Fatalf("%d workloads, %d by UID, of %d", len(s.w.workloads), len(s.w.byUID), n)
	}
}
