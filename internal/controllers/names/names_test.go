package names

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// rig is a server that leads, and hosts that are not there.
type rig struct {
	testing.TB
	now   time.Time
	key   *trust.SigningKey
	store *edition.Store
	n     *Names
	w     *world
	seen  map[types.UID]presence.Seen
}

func (r *rig) Of(uid types.UID) (presence.Seen, bool) {
	s, known := r.seen[uid]
	return s, known
}

// Since says of every node that it may have changed.
func (*rig) Since(uint64) (names []string, all bool, now uint64) { return nil, true, 0 }

func (r *rig) Tell(chan struct{}) func() { return func() {} }

func (r *rig) ListerWatcher(schema.GroupVersionKind, bool) cache.ListerWatcher { return nil }

func newRig(t testing.TB) *rig {
	r := &rig{TB: t, now: start, key: trust.NewSigningKey(), seen: map[types.UID]presence.Seen{}}
	r.store = r.another()
	return r
}

func (r *rig) another() *edition.Store {
	return edition.New(edition.Options{Cluster: "a-cluster", Keys: func(time.Time) catalog.Keys { return catalog.Keys{r.key.Public()} }})
}

// lead has a server begin to lead that has heard nobody, with what there is.
func (r *rig) lead(term uint64, objects ...any) {
	r.Helper()
	if _, err := New(Options{Objects: r, Presence: r, Store: r.store, Key: r.key, Epoch: func() uint64 { return 1 }, Term: nil}); err == nil {
		r.Fatal("it is made without a term")
	}
	n, err := New(Options{Objects: r, Presence: r, Store: r.store, Key: r.key, Epoch: func() uint64 { return 1 }, Term: noTerm})
	if err != nil {
		r.Fatal(err)
	}
	r.n, r.w, r.seen = n, newWorld(r.now, term), map[types.UID]presence.Seen{}
	r.put(objects...)
}

func noTerm(context.Context) (uint64, error) { return 0, nil }

// put tells of objects.
func (r *rig) put(objects ...any) {
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *v1alpha1.Node:
			err = r.n.nodes.Add(o)
		case *v1alpha1.Workload:
			err = r.n.workloads.Add(o)
		case *v1alpha1.Revision:
			err = r.n.revisions.Add(o)
		case *v1alpha1.Instance:
			err = r.n.instances.Add(o)
		}
		if err != nil {
			r.Fatal(err)
		}
	}
}

// round is one, after a while; it returns the keys of all rows, sorted.
func (r *rig) round() []string {
	r.now = r.now.Add(time.Second)
	r.n.round(r.w, r.now)
	return slices.Sorted(slices.Values(r.store.Keys()))
}

func (r *rig) want(what string, keys ...string) {
	r.Helper()
	if is := r.round(); !slices.Equal(is, slices.Sorted(slices.Values(keys))) {
		r.Errorf("%s: there is %v, want %v", what, is, keys)
	}
}

func aNode(name string) *v1alpha1.Node {
	return &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Spec: v1alpha1.NodeSpec{Environment: "prod"}, Status: v1alpha1.NodeStatus{Identity: &v1alpha1.NodeIdentity{}}}
}

func template() declared.Template {
	return declared.Template{Tasks: []declared.Task{{Name: "web", Ports: []declared.Port{{Name: "http", Text: map[string]string{"path": "/"}}, {Name: "stats", Protocol: declared.UDP}}}}}
}

func aWorkload() *v1alpha1.Workload {
	return &v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}, Spec: declared.Spec{Template: template()}}
}

func aRevision() *v1alpha1.Revision {
	t := template()
	return &v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web-1"}, Spec: v1alpha1.RevisionSpec{Template: &t, Source: &v1alpha1.RevisionSource{Kind: v1alpha1.KindWorkload, Name: "web"}}}
}

func anInstance(name, on string) *v1alpha1.Instance {
	return &v1alpha1.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.InstanceSpec{Workload: "web", Revision: "web-1", Slot: 3, Node: on, NodeUID: types.UID("uid-" + on)}}
}

// reports has a host be heard, with these instances ready.
func (r *rig) reports(host string, p node.Presence, ready ...string) {
	report := &wire.Report{Offers: &wire.Offers{Address: "10.0.0.1"}}
	for _, name := range []string{"web-0", "web-1"} {
		report.Instances = append(report.Instances, wire.Instance{UID: "uid-" + name, Ready: slices.Contains(ready, name), Ports: []wire.InstancePort{{Name: "http", Number: 20001}, {Name: "stats", Number: 20002}}})
	}
	r.seen[types.UID("uid-"+host)] = presence.Seen{Presence: p, Believed: true, Report: report}
}

var declaredRows = []string{"n/n1", "w/prod/web", "z/prod"}

func with(keys ...string) []string { return append(slices.Clone(declaredRows), keys...) }

// TestReady: an instance has a name from when it is ready until it is not, or is asked to end, or its host is gone.
func TestReady(t *testing.T) {
	r := newRig(t)
	r.lead(5, aNode("n1"), aWorkload(), aRevision(), anInstance("web-0", "n1"), anInstance("web-1", "n1"))
	r.want("nobody was heard")
	if r.store.Mark().Number != 0 {
		t.Fatal("something is said while nobody was heard")
	}
	r.reports("n1", node.Here)
	r.want("nothing is ready", declaredRows...)
	r.reports("n1", node.Here, "web-0", "web-1")
	r.want("two are ready", with("i/prod/web-0", "i/prod/web-1")...)
	row, _ := r.store.Get("i/prod/web-0")
	i := row.Instance()
	if i.Workload != "web" || i.Index != 3 || i.Node != "n1" || i.Revision != "web-1" || !slices.Equal(i.Addresses, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) || len(i.Endpoints) != 2 ||
		i.Endpoints[0].Number != 20001 || !maps.Equal(i.Endpoints[0].Text, map[string]string{"path": "/"}) || i.Endpoints[1].Protocol != declared.UDP {
		t.Errorf("the row says %+v", i)
	}
	before := r.store.Mark()
	r.want("nothing new", with("i/prod/web-0", "i/prod/web-1")...)
	if r.store.Mark() != before {
		t.Error("there is another edition though nothing is new")
	}
	r.reports("n1", node.Silent, "web-0", "web-1")
	r.want("its agent is silent", with("i/prod/web-0", "i/prod/web-1")...)
	r.reports("n1", node.Here, "web-1")
	r.want("one is not ready", with("i/prod/web-1")...)
	stopped := anInstance("web-1", "n1")
	stopped.Spec.Stop = &v1alpha1.InstanceStop{Code: "TK0902"}
	r.put(stopped)
	r.want("it is asked to end", declaredRows...)
	r.put(anInstance("web-1", "n1"))
	r.want("and is not", with("i/prod/web-1")...)
	r.reports("n1", node.Gone, "web-1")
	r.want("its host is gone", declaredRows...)
	r.reports("n1", node.Here, "web-1")
	again := aNode("n1")
	again.UID = "another"
	r.put(again)
	r.want("another host has its name", declaredRows...)
}

// TestAnotherLeader: what was said stays until the hosts that it is about were heard, and is told by later editions than before.
func TestAnotherLeader(t *testing.T) {
	r := newRig(t)
	all := []any{aNode("n1"), aNode("n2"), aWorkload(), aRevision(), anInstance("web-0", "n1"), anInstance("web-1", "n2")}
	r.lead(5, all...)
	r.reports("n1", node.Here, "web-0")
	r.reports("n2", node.Here, "web-1")
	ready := with("n/n2", "i/prod/web-0", "i/prod/web-1")
	r.want("two are ready", ready...)
	before := r.store.Mark()
	r.now = r.now.Add(-time.Hour) // its clock is behind
	r.lead(6, all[:3]...)
	r.put(aRevision(), anInstance("web-0", "n1"), anInstance("web-1", "n2"))
	r.want("the next one has heard nobody", ready...)
	r.reports("n1", node.Here)
	r.want("one was heard", with("n/n2", "i/prod/web-1")...)
	if r.store.Mark().Compare(before) <= 0 {
		t.Errorf("%+v comes after %+v", r.store.Mark(), before)
	}
	r.reports("n2", node.Gone)
	r.want("one is gone", with("n/n2")...)
	// Without the last edition nothing is said until all were heard, or could have been.
	r.store = r.another()
	r.lead(7, all...)
	r.reports("n1", node.Here, "web-0")
	if r.round(); r.store.Mark().Number != 0 {
		t.Error("it is said that the instances of n2 are gone, which was not heard")
	}
	r.now = r.now.Add(node.UnheardMax)
	r.want("it has had its time", with("n/n2", "i/prod/web-0")...)
	err := errors.Join(r.n.workloads.Delete(aWorkload()), r.n.instances.Delete(anInstance("web-0", "n1")), r.n.nodes.Delete(aNode("n1")), r.n.nodes.Delete(aNode("n2")))
	if err != nil {
		t.Fatal(err)
	}
	r.want("all was deleted")
}

// TestLaterElsewhere: a leader whose own edition is older than what the one before has told others says again what it still holds true, once.
func TestLaterElsewhere(t *testing.T) {
	all := []any{aNode("n1"), aNode("n2"), aWorkload(), aRevision(), anInstance("web-0", "n1"), anInstance("web-1", "n2")}
	for _, c := range []struct {
		what  string
		term  uint64 // the same, where nothing was stored before the server was there again
		heard bool   // n2 was
		after time.Duration
	}{{"all were heard", 6, true, 0}, {"in the same term", 5, true, 0}, {"one is silent", 6, false, confirmMax}} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t)
			r.lead(5, all...)
			r.reports("n1", node.Here)
			r.reports("n2", node.Here, "web-1")
			r.want("one is ready", with("n/n2", "i/prod/web-1")...)
			var written bytes.Buffer
			if err := r.store.Write(&written); err != nil {
				t.Fatal(err)
			}
			r.reports("n1", node.Here, "web-0")
			r.want("both are", with("n/n2", "i/prod/web-0", "i/prod/web-1")...)
			elsewhere := r.store.Mark()
			r.store = r.another()
			if _, err := r.store.Read(&written, r.now); err != nil {
				t.Fatal(err)
			}
			r.lead(c.term, all...)
			r.reports("n1", node.Here)
			if c.heard {
				r.reports("n2", node.Here, "web-1")
			} else if r.round(); r.store.Mark().Term != 5 {
				t.Error("what hosts were told last is taken back before they had the time to be heard")
			}
			r.now = r.now.Add(c.after)
			r.want("the one has lost it meanwhile", with("n/n2", "i/prod/web-1")...)
			is := r.store.Mark()
			if is.Compare(elsewhere) <= 0 {
				t.Errorf("others have edition %+v, which says that web-0 is ready, and get nothing newer than %+v", elsewhere, is)
			}
			if r.round(); r.store.Mark() != is {
				t.Error("it is said twice")
			}
		})
	}
}
