package assignments

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// instanceOf is an instance of a workload in namespace shop on a node.
func (r *rig) instanceOf(name, revision string, on *v1alpha1.Node) *v1alpha1.Instance {
	r.Helper()
	at := strings.LastIndex(name, "-")
	workload := name[:at]
	slot, err := strconv.ParseInt(name[at+1:], 10, 32)
	r.must(err)
	yes := true
	return &v1alpha1.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{v1alpha1.LabelWorkload: workload},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: declare.APIVersion, Kind: v1alpha1.KindWorkload, Name: workload, UID: "uid-of-" + types.UID(workload), Controller: &yes}}},
		Spec: v1alpha1.InstanceSpec{Workload: workload, Revision: revision, Slot: int32(slot), Node: on.Name, NodeUID: on.UID, LeaseSeconds: 60},
	}
}

// place makes an instance.
func (r *rig) place(name, revision string, on *v1alpha1.Node) *v1alpha1.Instance {
	r.Helper()
	i := r.instanceOf(name, revision, on)
	r.must(local.Create(r.Context(), i))
	return i
}

// runs are the instances that a node's host is to run, as NAME of REVISION, and those that it is to end, with a - before; and the templates that it has.
func (r *rig) runs(name string) (instances, templates []string) {
	a := r.assignment(name)
	if a.Spec.Own != nil {
		for _, in := range a.Spec.Own.Instances {
			text := in.Name + " of " + in.Revision
			if in.Stop {
				text = "-" + text
			}
			instances = append(instances, text)
		}
	}
	for _, l := range a.Spec.Layers {
		if tpl, is := catalog.TemplateOf(l.Config); is {
			templates = append(templates, tpl.Revision)
		}
	}
	slices.Sort(instances)
	return instances, templates
}

func (r *rig) wantRuns(name, instances, templates string) {
	r.Helper()
	r.eventually(name+" runs "+instances, func() string {
		is, of := r.runs(name)
		if strings.Join(is, ", ") == instances && strings.Join(of, " ") == templates {
			return ""
		}
		return fmt.Sprintf("%q of %q", is, of)
	})
}

func templateID(revision string) string { return catalog.TemplateLayer("shop", revision) }

func TestInstancesAreAssigned(t *testing.T) {
	r := newRig(t)
	one, two := r.join("n1", "shop"), r.join("n2", "shop")
	r.layers.set(templateID("web-a"), func() {
		r.layers.keys[templateID("web-a")] = []layers.KeyUse{{ID: strings.Repeat("1", 32), Secret: "shop/db/password"}}
	})
	first := r.place("web-0", "web-a", one)
	r.place("web-1", "web-a", two)
	job := r.place("load-0", "load-a", one)
	r.wantRuns("n1", "load-0 of load-a, web-0 of web-a", "load-a web-a")
	r.wantRuns("n2", "web-1 of web-a", "web-a")
	a := r.assignment("n1")
	l := layerOf(a.Spec.Layers, templateID("web-a"))
	in := a.Spec.Own.Instances[slices.IndexFunc(a.Spec.Own.Instances, func(i v1alpha1.AssignedInstance) bool { return i.UID == first.UID })]
	if want := (v1alpha1.AssignedInstance{UID: first.UID, Namespace: "shop", Name: "web-0", Workload: "web", Revision: "web-a", LeaseSeconds: 60}); in != want {
		t.Errorf("%+v, want %+v", in, want)
	}
	if l == nil || l.Priority != catalog.TemplatePriority || l.Root == "" || len(a.Spec.Own.Keys) != 1 || a.Spec.Entries != 2 {
		t.Errorf("%+v with keys %+v and %d entries", l, a.Spec.Own.Keys, a.Spec.Entries)
	}
	if faults := v1alpha1.ValidateAssignment(a); len(faults) > 0 {
		t.Error(faults)
	}
	// What is to end stays, with its template, until its object has gone.
	r.retry(func() error {
		r.must(local.Get(r.Context(), types.NamespacedName{Namespace: "shop", Name: "web-0"}, first))
		first.Spec.Stop = &v1alpha1.InstanceStop{Code: "TK0902", Since: metav1.Now()}
		return local.Update(r.Context(), first)
	})
	r.wantRuns("n1", "-web-0 of web-a, load-0 of load-a", "load-a web-a")
	// What changes in place has another revision.
	r.retry(func() error {
		r.must(local.Get(r.Context(), types.NamespacedName{Namespace: "shop", Name: "load-0"}, job))
		job.Spec.Revision = "load-b"
		return local.Update(r.Context(), job)
	})
	r.wantRuns("n1", "-web-0 of web-a, load-0 of load-b", "load-b web-a")
	r.must(local.Delete(r.Context(), first, nil))
	r.wantRuns("n1", "load-0 of load-b", "load-b")
	// What has ended is not begun by a host that does not know that any more.
	r.retry(func() error {
		r.must(local.Get(r.Context(), types.NamespacedName{Namespace: "shop", Name: "load-0"}, job))
		job.Status.Phase = v1alpha1.InstanceDone
		return local.UpdateStatus(r.Context(), job)
	})
	r.wantRuns("n1", "-load-0 of load-b", "load-b")
	if keys := r.assignment("n1").Spec.Own.Keys; len(keys) != 0 {
		t.Errorf("the keys %+v are left", keys)
	}
	r.must(local.Delete(r.Context(), job, nil))
	r.wantRuns("n1", "", "")
	// Another leader comes to the same.
	before := r.assignment("n2").ResourceVersion
	r.stop()
	r.begin()
	r.place("web-2", "web-a", one)
	r.wantRuns("n1", "web-2 of web-a", "web-a")
	if now := r.assignment("n2").ResourceVersion; now != before {
		t.Errorf("the new leader has written %s where %s was", now, before)
	}
}

// TestInstancesOfAnotherNode: an instance is for the node of its UID, and not for one that has got its name.
func TestInstancesOfAnotherNode(t *testing.T) {
	r := newRig(t)
	was := r.join("n1", "shop")
	r.place("web-0", "web-a", was)
	r.wantRuns("n1", "web-0 of web-a", "web-a")
	r.must(local.Delete(r.Context(), was, nil))
	r.eventually("the Assignment goes", func() string {
		a := r.assignment("n1")
		if a.UID != "" {
			_ = local.Delete(r.Context(), a, nil) // as the garbage collector does
		}
		return string(a.UID)
	})
	is := r.join("n1", "shop")
	r.place("web-1", "web-a", is)
	r.wantRuns("n1", "web-1 of web-a", "web-a")
}

// TestTemplateThatCannotBe: an instance whose template takes a value that is not there waits, and it can be found out why; one that has it keeps it.
func TestTemplateThatCannotBe(t *testing.T) {
	r := newRig(t)
	n := r.join("n1", "shop")
	id := templateID("web-a")
	gone := &reason.Error{Code: reason.LayerReference, Doing: "take a value", Cause: errors.New("it is not there")}
	r.layers.set(id, func() { r.layers.missing[id] = gone })
	first := r.place("web-0", "web-a", n)
	r.place("load-0", "load-a", n)
	r.wantRuns("n1", "load-0 of load-a", "load-a")
	r.eventually("it is known why", func() string {
		if err := r.begun.Unassigned(n.UID, first.UID); !reason.Is(err, reason.LayerReference) {
			return fmt.Sprint(err)
		}
		return ""
	})
	r.layers.set(id, func() { delete(r.layers.missing, id) })
	r.wantRuns("n1", "load-0 of load-a, web-0 of web-a", "load-a web-a")
	if err := r.begun.Unassigned(n.UID, first.UID); err != nil {
		t.Errorf("it is there, and not: %v", err)
	}
	root := layerOf(r.assignment("n1").Spec.Layers, id).Root
	r.layers.set(id, func() { r.layers.missing[id] = gone })
	r.place("web-1", "web-a", n)
	r.wantRuns("n1", "load-0 of load-a, web-0 of web-a, web-1 of web-a", "load-a web-a")
	if is := layerOf(r.assignment("n1").Spec.Layers, id).Root; is != root {
		t.Errorf("the root has moved from %s to %s", root, is)
	}
	// Another value moves it, on every node, and no instance.
	r.layers.set(id, func() { delete(r.layers.missing, id); r.layers.salt[id] = "another value" })
	r.eventually("the root moves", func() string {
		if layerOf(r.assignment("n1").Spec.Layers, id).Root != root {
			return ""
		}
		return root
	})
	r.wantRuns("n1", "load-0 of load-a, web-0 of web-a, web-1 of web-a", "load-a web-a")
}

// TestTemplateThatCannotBeNow: what passes by itself is tried again without news.
func TestTemplateThatCannotBeNow(t *testing.T) {
	r := newRig(t)
	n := r.join("n1", "shop")
	id := templateID("web-a")
	r.layers.set(id, func() { r.layers.missing[id] = &reason.Error{Code: reason.StoreUnreachable, Doing: "read"} })
	first := r.place("web-0", "web-a", n)
	r.eventually("it is known why", func() string {
		if err := r.begun.Unassigned(n.UID, first.UID); !reason.Is(err, reason.StoreUnreachable) {
			return fmt.Sprint(err)
		}
		return ""
	})
	r.layers.mu.Lock()
	delete(r.layers.missing, id)
	r.layers.mu.Unlock()
	r.wantRuns("n1", "web-0 of web-a", "web-a")
}

// TestInstanceIsAssignedAtOnce: from an Instance to the Assignment of its node it is some milliseconds; the bound is for a machine that is busy,
// where some of the times are those of others.
func TestInstanceIsAssignedAtOnce(t *testing.T) {
	r := newRig(t)
	n := r.join("n1", "shop")
	var took []time.Duration
	for i := range 40 {
		name := fmt.Sprint("web-", i)
		r.place(name, "web-a", n)
		began, again := time.Now(), time.NewTicker(time.Millisecond)
		for is := []string(nil); !slices.Contains(is, name+" of web-a"); is, _ = r.runs("n1") {
			if <-again.C; time.Since(began) > within {
				t.Fatalf("%v", is)
			}
		}
		again.Stop()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("median %v, 90 of 100 %v, longest %v", took[len(took)/2], took[len(took)*9/10], took[len(took)-1])
	if tenth := took[len(took)/10]; tenth > 250*time.Millisecond {
		t.Errorf("the best tenth takes %v", tenth)
	}
}

// TestManyInstancesAtOnce: those that come together to one node are few Assignments.
func TestManyInstancesAtOnce(t *testing.T) {
	r := newRig(t)
	n := r.join("n1", "shop")
	r.place("web-0", "web-a", n)
	r.wantRuns("n1", "web-0 of web-a", "web-a")
	before := r.assignment("n1").Generation
	const many = 100
	var jobs []job
	for i := range many {
		o := r.instanceOf(fmt.Sprint("load-", i), "load-a", n)
		jobs = append(jobs, job{do: func(ctx context.Context) error { return local.Create(ctx, o) }, done: func(err error) { r.must(err) }})
	}
	write(r.Context(), jobs)
	r.eventually("all are assigned", func() string {
		if is, _ := r.runs("n1"); len(is) != many+1 {
			return fmt.Sprint(len(is))
		}
		return ""
	})
	written := r.assignment("n1").Generation - before
	t.Logf("%d instances came in %d Assignments", many, written)
	if written > many/2 {
		t.Errorf("%d Assignments were written for %d instances", written, many)
	}
}

// TestInstancesDisturbNoRollout: what a host has said of a config stays true while its Assignment changes in instances alone.
func TestInstancesDisturbNoRollout(t *testing.T) {
	h := &host{assigned: &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}, since: 5}
	of := rollout.Target{Revision: "a-1", Priority: 1, Root: "r"}
	for version, want := range map[uint64]rollout.Verdict{4: 0, 5: rollout.Converged, 7: rollout.Converged, 9: rollout.Converged, 10: 0} {
		h.seen = presence.Seen{Presence: node.Here, Believed: true, Report: &wire.Report{Enforced: catalog.Mark{Version: version}, Configs: []wire.ConfigReport{{ID: "NodeConfig/shop/a", Settled: true, Converged: true}}}}
		if got := h.report("NodeConfig/shop/a", of).Verdict; got != want {
			t.Errorf("of version %d: %v, want %v", version, got, want)
		}
		h.seen.Report = &wire.Report{Verdict: wire.Verdict{Type: wire.Rejected, Version: version}}
		if got := h.report("NodeConfig/shop/a", of).Verdict; (got == rollout.Rejected) != (want == rollout.Converged) {
			t.Errorf("refused with version %d: %v", version, got)
		}
	}
}

// TestRolloutBesideInstances: a config goes out over nodes whose instances change all the time, and whose hosts are always one Assignment behind.
func TestRolloutBesideInstances(t *testing.T) {
	r := newRig(t)
	nodes := []*v1alpha1.Node{r.join("n1", "shop"), r.join("n2", "shop")}
	revision := r.declare("shop", "motd", "one", declare.Rollout{})
	r.settles("shop", "motd", revision, string(rollout.Complete))
	revision = r.declare("shop", "motd", "two", declare.Rollout{})
	count := 0
	r.eventually("the rollout is complete", func() string {
		for i, n := range nodes {
			if count++; count < 200 {
				r.place(fmt.Sprintf("web-%d", count), "web-a", nodes[i])
			}
			r.workOne(r.agents[n.Name])
		}
		if s := r.config("shop", "motd").Status.Rollout; s.Phase != string(rollout.Complete) || s.Target != revision {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if is := r.assigned("n1"); !slices.Contains(is, revision) {
		t.Errorf("n1 has %v", is)
	}
}

// TestPlansOfInstances: whatever instances come and go, the plan of a node has the instances that are for it, as many as there is room for, with the layers
// of what they run and no others; what the host has stays before what is new; and a plan that is stored is planned again as it is.
func TestPlansOfInstances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fakeLayers{changed: make(chan struct{}, 1), salt: map[string]string{}, missing: map[string]error{}, keys: map[string][]layers.KeyUse{}}
		w := newWorkloads()
		h := &host{hostSpec: hostSpec{name: "n", uid: "u", joined: true}}
		all := map[string]*tenant{}
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			news := map[string]*tenant{}
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				name := fmt.Sprint("web-", rapid.IntRange(0, 9).Draw(t, "name"))
				var is *tenant
				if rapid.IntRange(0, 3).Draw(t, "goes") > 0 {
					is = &tenant{node: "n", nodeUID: rapid.SampledFrom([]types.UID{"u", "u", "u", "v"}).Draw(t, "of"), is: v1alpha1.AssignedInstance{
						UID: types.UID(fmt.Sprint(name, rapid.IntRange(0, 1).Draw(t, "uid"))), Namespace: "shop", Name: name, Workload: "web",
						Revision: fmt.Sprint("web-", rapid.IntRange(0, 4).Draw(t, "revision")), Stop: rapid.Bool().Draw(t, "stop")}}
				}
				news["shop/"+name] = is
				if all["shop/"+name] = is; is == nil {
					delete(all, "shop/"+name)
				}
			}
			var told []string
			for i := range 5 {
				id := templateID(fmt.Sprint("web-", i))
				if rapid.IntRange(0, 5).Draw(t, "breaks") == 0 {
					f.missing[id] = &reason.Error{Code: reason.LayerReference}
					told = append(told, id)
				} else if f.missing[id] != nil && rapid.Bool().Draw(t, "heals") {
					delete(f.missing, id)
					told = append(told, id)
				}
			}
			w.absorb(news, func(*tenant) {})
			w.outdated(told, time.Time{}, func(string) {})
			checkWorkloads(t, &w, all)
			next := planOf(t, f, &w, h)
			checkPlan(t, next, &w, h, f)
			h.assigned = &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(step + 1)}, Spec: next.spec}
			if again := planOf(t, f, &w, h); !again.is(&h.assigned.Spec, "") {
				t.Fatalf("planned again it is\n%+v, and was\n%+v", again.spec, next.spec)
			}
		}
	})
}

func planOf(t rapid.TB, f *fakeLayers, w *workloads, h *host) *plan {
	w.compile(context.Background(), f, []string{h.name}, time.Unix(1e9, 0))
	p := planner{layers: f, host: h, configs: map[string]*config{}, now: time.Unix(1e9, 0), workloads: w, orders: orders{}}
	next, err := p.plan(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// checkWorkloads compares what is counted with what there is.
func checkWorkloads(t rapid.TB, w *workloads, all map[string]*tenant) {
	uses, onNodes := map[string]int{}, 0
	for _, is := range all {
		uses[is.template()]++
	}
	for _, on := range w.byNode {
		onNodes += len(on)
	}
	if !reflect.DeepEqual(w.instances, all) || len(w.templates) != len(uses) || onNodes != len(all) {
		t.Fatalf("%d instances, %d on nodes, %d templates; want %d and %d", len(w.instances), onNodes, len(w.templates), len(all), len(uses))
	}
	for id, n := range uses {
		if w.templates[id].instances != n {
			t.Fatalf("%s is counted %d times, want %d", id, w.templates[id].instances, n)
		}
	}
}

// checkPlan checks a plan against the instances.
func checkPlan(t rapid.TB, next *plan, w *workloads, h *host, f *fakeLayers) {
	var own []v1alpha1.AssignedInstance
	if next.spec.Own != nil {
		own = next.spec.Own.Instances
	}
	runs := map[string]bool{}
	for i, in := range own {
		is := w.byNode["n"][in.UID]
		if is == nil || is.nodeUID != h.uid || is.is != in || i > 0 && own[i-1].UID >= in.UID {
			t.Fatalf("%+v is planned, and there is %+v", in, is)
		}
		runs[is.template()] = true
		if layerOf(next.spec.Layers, is.template()) == nil && !in.Stop {
			t.Fatalf("%+v has no template", in)
		}
	}
	for _, is := range w.byNode["n"] {
		at := slices.IndexFunc(own, func(in v1alpha1.AssignedInstance) bool { return in.UID == is.is.UID })
		if why := next.left[is.is.UID]; is.nodeUID == h.uid && (at < 0) != (why != nil) || why != nil && f.missing[is.template()] == nil {
			t.Fatalf("%+v is at %d, and left out for %v", is, at, why)
		}
	}
	for _, l := range next.spec.Layers {
		if !runs[l.Config] {
			t.Fatalf("%s is there, and nothing runs it", l.Config)
		}
	}
	if faults := v1alpha1.ValidateAssignment(&v1alpha1.Assignment{Spec: next.spec}); len(faults) > 0 {
		t.Fatal(faults)
	}
}

// TestRoomForInstances: above what a host takes, what it has stays, and the rest is told why.
func TestRoomForInstances(t *testing.T) {
	for name, c := range map[string]struct {
		most     int
		revision func(i int) string
		rows     int
	}{
		"instances": {catalog.InstancesMax, func(int) string { return "web-a" }, 1},
		"templates": {catalog.TemplatesMax, func(i int) string { return fmt.Sprintf("web-%04d", i) }, catalog.TemplatesMax},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeLayers{changed: make(chan struct{}, 1), salt: map[string]string{}, missing: map[string]error{}, keys: map[string][]layers.KeyUse{}}
			w := newWorkloads()
			h := &host{hostSpec: hostSpec{name: "n", uid: "u", joined: true}}
			add := func(i int) {
				w.absorb(map[string]*tenant{fmt.Sprint("shop/web-", i): {node: "n", nodeUID: "u", is: v1alpha1.AssignedInstance{
					UID: types.UID(fmt.Sprintf("%04d", i)), Namespace: "shop", Name: fmt.Sprint("web-", i), Workload: "web", Revision: c.revision(i)}}}, func(*tenant) {})
			}
			for i := range c.most {
				add(10 + i)
			}
			next := planOf(t, f, &w, h)
			if len(next.spec.Own.Instances) != c.most || len(next.left) != 0 || len(next.spec.Layers) != c.rows {
				t.Fatalf("%d instances of %d revisions, and %d left out", len(next.spec.Own.Instances), len(next.spec.Layers), len(next.left))
			}
			h.assigned = &v1alpha1.Assignment{Spec: next.spec}
			for i := range 3 {
				add(i) // before them by their names
			}
			again := planOf(t, f, &w, h)
			if !again.is(&next.spec, "") || len(again.left) != 3 {
				t.Errorf("what was there has not stayed, or %d are left out", len(again.left))
			}
			for uid, err := range again.left {
				if !reason.Is(err, reason.TooManyResources) || !strings.Contains(err.Error(), fmt.Sprint(c.most)) {
					t.Errorf("%s: %v", uid, err)
				}
			}
			w.absorb(map[string]*tenant{"shop/web-10": nil, "shop/web-11": nil, "shop/web-12": nil}, func(*tenant) {})
			if last := planOf(t, f, &w, h); len(last.left) != 0 || len(last.spec.Own.Instances) != c.most {
				t.Errorf("%d are left out where there is room", len(last.left))
			}
		})
	}
}
