// Package hosts counts the hosts that are as the configs of a Source declare. It watches Nodes and Assignments, keeps of each host what
// counting needs and no more, and finds out how a host is once for all Sources that are told of it. Watch and Tell start what they are
// given to run in; nothing else runs.
package hosts

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
)

// Pause is how far apart Sources are told that hosts have changed: ten thousand hosts change all the time.
const Pause = 5 * time.Second

// Objects is the way to what is stored.
type Objects interface {
	// ListerWatcher lists and watches all objects of a kind; nil where there is no way to them. The objects may be shared.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
}

// Live is what is known of hosts besides what is stored. *presence.Register is one.
type Live interface {
	// Decorate fills into a Node what is known of it now. It replaces fields, and changes nothing that they point to.
	Decorate(n *v1alpha1.Node)
	// Tell has c, which has room for one, hold something whenever something else is to be said of a host, until stop is called.
	Tell(c chan struct{}) (stop func())
}

// Config is what a config says of itself.
type Config struct {
	Revision string // that of what it declares; empty while there is none
	Selected int32  // nodes that it is for, as far as somebody has looked
}

// ConfigOf names a config as Assignments do, and says how it is; empty for anything else.
func ConfigOf(o *unstructured.Unstructured) (name string, state Config) {
	k := o.GroupVersionKind()
	if k.Group != v1alpha1.GroupName || k.Kind != v1alpha1.KindNodeConfig && k.Kind != v1alpha1.KindClusterNodeConfig {
		return "", state
	}
	name = k.Kind + "/" + o.GetName()
	if o.GetNamespace() != "" {
		name = k.Kind + "/" + o.GetNamespace() + "/" + o.GetName()
	}
	if observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); observed == o.GetGeneration() {
		state.Revision, _, _ = unstructured.NestedString(o.Object, "status", "revision")
	}
	selected, _, _ := unstructured.NestedInt64(o.Object, "status", "rollout", "selected")
	state.Selected = int32(selected)
	return name, state
}

// Hosts knows which host is to have which configs, and which hosts are as they should be. Use New. It is safe for concurrent use.
type Hosts struct {
	live    Live          // nil: nothing is known but what is stored
	changed chan struct{} // holds one

	mu    sync.Mutex // guards all below
	hosts map[string]*host
	turn  int // counts how often Sources were told
}

// host is one of them.
type host struct {
	layers   map[string]string // revisions by config
	assigned int64             // the version of what it is to have; 0 for nothing
	since    int64             // the version from which on that says the same of configs
	spec     *v1alpha1.AssignmentSpec
	node     v1alpha1.Node // its UID, and what is stored of its status that says whether it is as declared
	applied  int64         // the version that it has enforced, and that is as declared, as of a turn; 0 for none
	turn     int
}

// New knows no host yet. live may be nil.
func New(live Live) *Hosts {
	return &Hosts{turn: 1, live: live, changed: make(chan struct{}, 1), hosts: map[string]*host{}}
}

// Watch keeps it up to date in all until ctx is done. Without a way to the hosts there are none.
func (f *Hosts) Watch(ctx context.Context, objects Objects, all *sync.WaitGroup) {
	for kind, feed := range map[string]cache.ReflectorStore{v1alpha1.KindAssignment: hostFeed{f, f.assigned, f.unassigned}, v1alpha1.KindNode: hostFeed{f, f.heard, f.gone}} {
		lw := objects.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(kind), false)
		if lw == nil {
			continue
		}
		expected := any(&v1alpha1.Node{})
		if kind == v1alpha1.KindAssignment {
			expected = &v1alpha1.Assignment{}
		}
		all.Go(func() {
			cache.NewReflectorWithOptions(lw, expected, feed, cache.ReflectorOptions{Name: "sources " + kind}).RunWithContext(ctx)
		})
	}
}

// Tell calls nudge when hosts have changed, not too often, until ctx is done.
func (f *Hosts) Tell(ctx context.Context, nudge func()) {
	if f.live != nil {
		defer f.live.Tell(f.changed)()
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-f.changed:
			f.mu.Lock()
			f.turn++
			f.mu.Unlock()
			nudge()
			pause := time.NewTimer(Pause)
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			pause.Stop()
		}
	}
}

// Count counts the hosts that configs of a commit are for, by config, each once; nil for no config.
func (f *Hosts) Count(configs map[string]Config, commit string) *v1alpha1.SourceHosts {
	if len(configs) == 0 {
		return nil
	}
	n := &v1alpha1.SourceHosts{Commit: commit}
	f.mu.Lock()
	for _, h := range f.hosts {
		has, all := false, h.assigned != 0
		for config, revision := range h.layers {
			if want, ours := configs[config]; ours {
				has, all = true, all && revision == want.Revision
			}
		}
		if has {
			n.Selected++
		}
		if applied := f.applied(h); has && all && h.since <= applied && applied <= h.assigned {
			n.Converged++
		}
	}
	f.mu.Unlock()
	for _, c := range configs {
		n.Selected = max(n.Selected, c.Selected) // those that have to wait for their turn have no layer of it yet
		if c.Revision == "" {
			n.Commit = "" // nobody knows yet for which
		}
	}
	return n
}

func (f *Hosts) of(name string) *host {
	h := f.hosts[name]
	if h == nil {
		h = &host{}
		f.hosts[name] = h
	}
	return h
}

func (f *Hosts) assigned(o any) {
	a, h := o.(*v1alpha1.Assignment), f.of(nameOf(o))
	// That of the signed state is the resource version of the Assignment.
	h.assigned, _ = strconv.ParseInt(a.ResourceVersion, 10, 64)
	if h.spec == nil || !h.spec.SameConfigs(&a.Spec) {
		h.since = h.assigned
	}
	h.spec = &a.Spec
	h.layers = make(map[string]string, len(a.Spec.Layers))
	for i := range a.Spec.Layers {
		if a.Spec.Layers[i].OfWorkload() {
			continue
		}
		h.layers[a.Spec.Layers[i].Config] = a.Spec.Layers[i].Revision
	}
}

func (f *Hosts) unassigned(name string) {
	h := f.of(name)
	h.layers, h.assigned, h.since, h.spec = nil, 0, 0, nil
}

func (f *Hosts) heard(o any) {
	n := o.(*v1alpha1.Node)
	kept := &f.of(n.Name).node
	f.of(n.Name).turn = 0
	kept.UID = n.UID
	kept.Status = v1alpha1.NodeStatus{Conditions: n.Status.Conditions, AppliedHead: n.Status.AppliedHead, Verdict: n.Status.Verdict}
}

// applied is the version of the state that a host has enforced, and that is as declared; 0 for none. A verdict alone is never stored.
// It is found out once for all Sources that are told in one turn.
func (f *Hosts) applied(h *host) int64 {
	if h.turn == f.turn {
		return h.applied
	}
	n := h.node
	if f.live != nil {
		f.live.Decorate(&n)
	}
	h.turn, h.applied = f.turn, 0
	if isConverged(&n) {
		h.applied = n.Status.AppliedHead.Version
	}
	return h.applied
}

func (f *Hosts) gone(name string) { delete(f.hosts, name) } // its Assignment goes with it

// isConverged tells whether a host is heard, has enforced a state, and all of that is as declared.
func isConverged(n *v1alpha1.Node) bool {
	s := &n.Status
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) && s.AppliedHead != nil && s.Verdict != nil &&
		s.Verdict.Type == v1alpha1.VerdictApplied && s.Verdict.Version == s.AppliedHead.Version
}

// hostFeed is the store of a reflector, which hands on what it is told.
type hostFeed struct {
	of   *Hosts
	set  func(any)
	drop func(string)
}

var _ cache.ReflectorStore = hostFeed{}

// Add is told of a new object.
func (h hostFeed) Add(o any) error { return h.Update(o) }

// Update is told of a changed object.
func (h hostFeed) Update(o any) error {
	h.do(func() { h.set(o) })
	return nil
}

// Delete is told of an object that is gone.
func (h hostFeed) Delete(o any) error {
	h.do(func() { h.drop(nameOf(o)) })
	return nil
}

// Replace is told of all objects that there are.
func (h hostFeed) Replace(list []any, _ string) error {
	there := make(map[string]bool, len(list))
	h.do(func() {
		for _, o := range list {
			there[nameOf(o)] = true
			h.set(o)
		}
		for name := range h.of.hosts {
			if !there[name] {
				h.drop(name)
			}
		}
	})
	return nil
}

// Resync has nothing to do.
func (hostFeed) Resync() error { return nil }

func (h hostFeed) do(change func()) {
	h.of.mu.Lock()
	change()
	h.of.mu.Unlock()
	select {
	case h.of.changed <- struct{}{}:
	default:
	}
}

func nameOf(o any) string {
	switch o := o.(type) {
	case *v1alpha1.Assignment:
		return o.Name
	case *v1alpha1.Node:
		return o.Name
	}
	return ""
}
