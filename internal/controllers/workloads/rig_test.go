package workloads

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// rig is a fleet of hosts that are not there, on a store that is one, with a server that leads, on a virtual clock.
type rig struct {
	testing.TB
	now      time.Time
	store    *memory
	c        *Workloads
	w        *world
	next     time.Time
	hosts    map[string]*agent
	recorder *fakeRecorder
	quality  func(in *v1alpha1.Instance) quality // of what an instance runs
	feeding  int                                 // how much watches tell at once; 0: all
	crashes  *crashes                            // of what is crashing
	many     bool                                // there are too many objects to compare all of them each time
	told     map[string]heardOf                  // what is known of hosts, as the server was told
}

// heardOf is what is known of a host.
type heardOf struct {
	uid  types.UID
	seen presence.Seen
}

// quality is what becomes of an instance.
type quality uint8

const (
	good     quality = iota
	unready          // it runs, and is never ready
	failing          // it ends badly, at once
	ending           // it ends well, at once
	refused          // its node does not take it
	crashing         // it ends badly and is started again, over and over
)

// agent is what would be a host.
type agent struct {
	name   string
	uid    types.UID
	linked bool
	slow   bool // what is to end does not
	offers wire.Offers
	images []string
	has    map[types.UID]*wire.Instance
	report *wire.Report
	seen   presence.Seen
}

func newRig(t testing.TB) *rig {
	r := &rig{TB: t, now: start, hosts: map[string]*agent{}, told: map[string]heardOf{}, recorder: &fakeRecorder{}, quality: func(*v1alpha1.Instance) quality { return good }}
	r.store = newMemory(func() time.Time { return r.now })
	r.lead()
	return r
}

// lead is a server that begins to lead: it knows what is stored, and has heard nobody.
func (r *rig) lead() {
	r.Helper()
	c, err := New(Options{Objects: r.store, Presence: r, Recorder: r.recorder, Writers: 1, Log: slog.New(slog.NewTextHandler(r.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))})
	r.must(err)
	r.store.killed, r.store.budget = false, -1
	r.c, r.w = c, newWorld(r.now)
	r.store.relist(c)
	for _, h := range r.hosts {
		h.seen = presence.Seen{Believed: true}
		if h.linked {
			h.speak()
		}
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// Of is what is known of a node.
func (r *rig) Of(uid types.UID) (presence.Seen, bool) {
	for _, h := range r.hosts {
		if h.uid == uid {
			return h.seen, true
		}
	}
	return presence.Seen{}, false
}

// Tell is not needed: a test says when there is a round.
func (r *rig) Tell(chan struct{}) func() { return func() {} }

// Since names the hosts of which something else is known than at the last call.
func (r *rig) Since(changes uint64) (names []string, all bool, now uint64) {
	for name, h := range r.hosts {
		if is := (heardOf{uid: h.uid, seen: h.seen}); r.told[name] != is {
			r.told[name] = is
			names = append(names, name)
		}
	}
	return names, changes == 0, changes + 1
}

func (h *agent) speak() {
	h.seen = presence.Seen{Presence: node.Here, Believed: true, Report: h.report, Host: h.report.Host}
}

// join makes a node that a host has joined as and that is heard: 4 processors and 8 GiB.
func (r *rig) join(names ...string) {
	r.Helper()
	for _, name := range names {
		n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: v1alpha1.NodeSpec{Environment: "prod"}}
		r.must(r.store.Create(r.Context(), n))
		n.Status.Identity = &v1alpha1.NodeIdentity{Key: "sha256:00", Joined: metav1.NewTime(r.now)}
		r.must(r.store.UpdateStatus(r.Context(), n))
		h := &agent{name: name, uid: n.UID, linked: true, has: map[types.UID]*wire.Instance{},
			offers: wire.Offers{CPU: 4000, Memory: 8 << 30, Disk: 100 << 30, Arch: "amd64", Runtimes: []string{"Process", "Systemd"}}}
		r.hosts[name] = h
		h.tell()
		h.speak()
	}
}

// tell makes a report of what the host has.
func (h *agent) tell() {
	offers := h.offers
	h.report = &wire.Report{Offers: &offers, Host: &wire.Host{Images: slices.Clone(h.images)}}
	for _, uid := range slices.Sorted(maps.Keys(h.has)) {
		h.report.Instances = append(h.report.Instances, *h.has[uid])
	}
}

// cut has nobody hear a host any more, and link has it heard again.
func (r *rig) cut(name string) {
	h := r.hosts[name]
	h.linked = false
	h.seen.Presence = node.Gone
}

func (r *rig) link(name string) {
	h := r.hosts[name]
	h.linked = true
	h.speak()
}

// work has every host that is reached take up what is to be there, and go on with it by one step. It reports whether anything has changed.
func (r *rig) work() bool {
	changed := false
	byNode := map[types.UID][]*v1alpha1.Instance{}
	for _, in := range all[*v1alpha1.Instance](r.store) {
		byNode[in.Spec.NodeUID] = append(byNode[in.Spec.NodeUID], in)
	}
	for _, name := range slices.Sorted(maps.Keys(r.hosts)) {
		if h := r.hosts[name]; h.linked && r.step(h, byNode[h.uid]) {
			h.tell()
			h.speak()
			changed = true
		}
	}
	return changed
}

func (r *rig) step(h *agent, wanted []*v1alpha1.Instance) bool {
	changed := false
	there := map[types.UID]bool{}
	for _, o := range wanted {
		there[o.UID] = true
		has := h.has[o.UID]
		if has == nil {
			has = &wire.Instance{UID: string(o.UID)}
			h.has[o.UID] = has
			changed = true
			continue
		}
		was := *has
		r.live(h, o, has)
		changed = changed || was.Revision != has.Revision || was.Phase != has.Phase || was.Ready != has.Ready || was.Code != has.Code
	}
	for uid := range h.has {
		if !there[uid] {
			delete(h.has, uid)
			changed = true
		}
	}
	return changed
}

// live is one step in the life of an instance on its host.
func (r *rig) live(h *agent, o *v1alpha1.Instance, has *wire.Instance) {
	what := r.quality(o)
	if o.Spec.Stop == nil && has.Phase < wire.InstanceTerminating {
		has.Revision = declared.HashIn(o.Spec.Workload, o.Spec.Revision)
	}
	switch {
	case has.Phase >= wire.InstanceFailed:
	case o.Spec.Stop != nil && has.Phase == wire.InstanceTerminating && h.slow:
	case o.Spec.Stop != nil && (has.Phase == wire.InstanceTerminating || has.Phase == wire.InstancePlaced):
		has.Phase, has.Ready = wire.InstanceDone, false
	case o.Spec.Stop != nil:
		has.Phase, has.Ready = wire.InstanceTerminating, false
	case has.Phase == wire.InstancePlaced && what == refused:
		has.Phase, has.Code, has.Message, has.OfNode, has.Since = wire.InstanceFailed, reason.InstanceRefused, "needs 1 gpu, 0 are free", true, r.now.UnixMilli()
	case has.Phase == wire.InstancePlaced:
		has.Phase = wire.InstanceStarting
		has.Attempt++
	case what == crashing:
		r.crashes.live(r.now, has)
	case has.Phase == wire.InstanceStarting:
		has.Phase = wire.InstanceRunning
	case what == failing:
		has.Phase, has.Code, has.Message, has.Since = wire.InstanceFailed, reason.TaskNotStarted, "exit code 1", r.now.UnixMilli()
	case what == ending:
		has.Phase = wire.InstanceDone
	case what == good:
		has.Ready = true
	}
}

// round has the server decide once.
func (r *rig) round() {
	r.Helper()
	most := r.feeding
	if most == 0 {
		most = 1 << 30
	}
	r.store.feed(r.c, most)
	r.next, _ = r.c.round(r.Context(), r.w, r.now)
	if r.many {
		return
	}
	if shared := r.store.intact(); shared != "" {
		r.Fatalf("%s is shared, and was changed", shared)
	}
}

// settle lets servers and hosts work until nothing happens any more at this moment.
func (r *rig) settle() {
	r.Helper()
	for range 400 {
		writes := r.store.writes
		r.store.collect()
		r.round()
		worked := r.work()
		if !worked && r.store.writes == writes && len(r.store.log) == 0 && (r.next.IsZero() || r.next.After(r.now)) {
			return
		}
	}
	r.Fatalf("it does not come to rest: %s", r.dump())
}

// pass lets time go on, with all that happens meanwhile.
func (r *rig) pass(d time.Duration) {
	r.Helper()
	until := r.now.Add(d)
	r.settle()
	for range 10_000 {
		if r.next.IsZero() || r.next.After(until) {
			r.now = until
			r.settle()
			return
		}
		r.now = r.next
		r.settle()
	}
	r.Fatalf("it wakes up all the time: %s", r.dump())
}

// until lets time go on until look returns "".
func (r *rig) until(what string, look func() string) {
	r.Helper()
	state := ""
	for range 2000 {
		r.settle()
		if state = look(); state == "" {
			return
		}
		r.now = r.now.Add(500 * time.Millisecond)
	}
	r.Fatalf("%s: %s\n%s", what, state, r.dump())
}

func unless(is bool, state string) string {
	if is {
		return ""
	}
	return state
}

// web is a workload of one task.
func web(replicas int32) declared.Spec {
	return declared.Spec{
		Replicas: &replicas,
		Template: declared.Template{Tasks: []declared.Task{{Name: "web", Command: []string{"/bin/web"}, Resources: declared.Resources{Requests: declared.Amounts{CPU: "1", Memory: "512Mi"}}}}},
	}
}

// version is the same with another template.
func version(s declared.Spec, v string) declared.Spec {
	s.Template = *s.Template.DeepCopy()
	s.Template.Tasks[0].Args = []string{v}
	return s
}

// declare makes or changes a workload.
func (r *rig) declare(name string, spec declared.Spec) {
	r.Helper()
	r.retry(func() error {
		o := &v1alpha1.Workload{}
		err := r.store.Get(r.Context(), types.NamespacedName{Namespace: "prod", Name: name}, o)
		if apierrors.IsNotFound(err) {
			return r.store.Create(r.Context(), &v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Spec: *spec.DeepCopy()})
		}
		if err != nil {
			return err
		}
		o.Spec = *spec.DeepCopy()
		return r.store.Update(r.Context(), o)
	})
}

func (r *rig) retry(do func() error) {
	r.Helper()
	for range 5 {
		if err := do(); err == nil {
			return
		} else if !apierrors.IsConflict(err) {
			r.Fatal(err)
		}
	}
	r.Fatal("somebody is always faster")
}

// change changes a node.
func (r *rig) change(name string, change func(*v1alpha1.Node)) {
	r.Helper()
	n := &v1alpha1.Node{}
	r.must(r.store.Get(r.Context(), types.NamespacedName{Name: name}, n))
	change(n)
	r.must(r.store.Update(r.Context(), n))
}

func (r *rig) workload(name string) *v1alpha1.Workload {
	r.Helper()
	o := &v1alpha1.Workload{}
	r.must(r.store.Get(r.Context(), types.NamespacedName{Namespace: "prod", Name: name}, o))
	return o
}

func (r *rig) remove(name string) {
	r.Helper()
	r.must(r.store.Delete(context.Background(), r.workload(name), nil))
}

// instances are those of a workload.
func (r *rig) instances(name string) []*v1alpha1.Instance {
	return slices.DeleteFunc(all[*v1alpha1.Instance](r.store), func(in *v1alpha1.Instance) bool { return in.Spec.Workload != name })
}

// running counts those that hosts really run.
func (r *rig) running(name string) int {
	n := 0
	for _, in := range r.instances(name) {
		for _, h := range r.hosts {
			if has := h.has[in.UID]; has != nil && has.Phase > wire.InstancePlaced && has.Phase < wire.InstanceFailed {
				n++
			}
		}
	}
	return n
}

// is waits until a workload is in a phase for what is declared, with all instances available.
func (r *rig) is(name, phase string) *v1alpha1.Workload {
	r.Helper()
	var o *v1alpha1.Workload
	r.until(name+" is "+phase, func() string {
		o = r.workload(name)
		return unless(o.Status.Phase == phase && o.Status.ObservedGeneration == o.Generation, fmt.Sprintf("%s %+v", o.Status.Phase, o.Status))
	})
	return o
}

func (r *rig) wantCondition(o *v1alpha1.Workload, kind string, status metav1.ConditionStatus, why string) {
	r.Helper()
	is := meta.FindStatusCondition(o.Status.Conditions, kind)
	if is == nil && status == "" {
		return
	}
	if is == nil || is.Status != status || is.Reason != why || is.ObservedGeneration != o.Generation {
		r.Errorf("%s of %s is %+v, want %s %s", kind, o.Name, is, status, why)
	}
}

func (r *rig) dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s next %s\n", r.now, r.next)
	for _, o := range all[*v1alpha1.Workload](r.store) {
		fmt.Fprintf(&b, "%s %s wanted %d there %d updated %d ready %d available %d pending %d: %s\n", o.Name, o.Status.Phase, o.Status.Wanted, o.Status.Replicas, o.Status.UpdatedReplicas,
			o.Status.ReadyReplicas, o.Status.AvailableReplicas, o.Status.PendingReplicas, o.Status.Message)
	}
	for _, in := range all[*v1alpha1.Instance](r.store) {
		shown := in.DeepCopy()
		r.c.Describe(shown)
		fmt.Fprintf(&b, "  %s %s %s on %s %s ready %v stop %v abandoned %v\n", in.Name, in.UID, in.Spec.Revision, in.Spec.Node, shown.Status.Phase, shown.Status.Ready, in.Spec.Stop != nil, in.Status.Abandoned != nil)
	}
	return b.String()
}

// fakeRecorder keeps what is told.
type fakeRecorder struct {
	mu  sync.Mutex
	all []string
}

func (f *fakeRecorder) Tell(about core.ObjectReference, _, why, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, about.Name+": "+why)
}

func (f *fakeRecorder) has(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.all, text)
}

func taint(effect declare.TaintEffect) declare.Taint {
	return declare.Taint{Key: "broken", Effect: effect}
}
