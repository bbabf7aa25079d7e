package enroll

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
)

// TestGone: what is gone stays gone, and not for ever in memory.
func TestGone(t *testing.T) {
	x := newIndex()
	n := func(uid string) *v1alpha1.Node {
		return &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID("uid-" + uid)}, Status: v1alpha1.NodeStatus{Identity: &v1alpha1.NodeIdentity{Key: "k"}}}
	}
	all := nodes{x}
	if err := all.Replace([]any{n("1"), n("2")}, ""); err != nil {
		t.Fatal(err)
	}
	if m, gone := x.get("uid-1"); gone || m != (member{"a", "k"}) {
		t.Errorf("%+v, %v", m, gone)
	}
	if err := all.Delete(n("1")); err != nil {
		t.Fatal(err)
	}
	if err := all.Replace([]any{n("1"), n("2")}, ""); err != nil { // a list that is behind
		t.Fatal(err)
	}
	if m, gone := x.get("uid-1"); !gone || m != (member{}) {
		t.Errorf("what is gone: %+v, %v", m, gone)
	}
	for i := range 2 * goneMax {
		x.forget(types.UID(fmt.Sprint("f", i)))
		x.forget(types.UID(fmt.Sprint("f", i)))
	}
	if len(x.gone) != goneMax || len(x.order) != goneMax {
		t.Errorf("%d gone in %d", len(x.gone), len(x.order))
	}
	if err := all.Add("something"); err == nil {
		t.Error("something else was taken for a node")
	}
}

// TestIndexChanges: there are changes when a UID is somebody else's than before, and none when a Node says something else.
func TestIndexChanges(t *testing.T) {
	x := newIndex()
	all := nodes{x}
	n := func(key, facts string) *v1alpha1.Node {
		return &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"}, Status: v1alpha1.NodeStatus{Identity: &v1alpha1.NodeIdentity{Key: key}, Server: facts}}
	}
	for i, step := range []struct {
		do      func() error
		changes bool
	}{
		{func() error { return all.Add(n("k", "")) }, true},
		{func() error { return all.Update(n("k", "another")) }, false},
		{func() error { return all.Update(n("l", "another")) }, true},
		{func() error { return all.Replace([]any{n("l", "")}, "") }, true}, // who is not in it any more
		{func() error { return all.Delete(n("l", "")) }, true},
	} {
		before := x.changes.Load()
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if changed := x.changes.Load() != before; changed != step.changes {
			t.Errorf("step %d: changed %t", i, changed)
		}
	}
}

// A UID is in the index as long as its Node is there, whatever watches tell in which order.
func TestIndexFollows(t *testing.T) {
	uids := []types.UID{"a", "b"}
	x := newIndex()
	identity := &v1alpha1.NodeIdentity{Key: "k"}
	for _, step := range []struct {
		do    func(nodes, *v1alpha1.Node) error
		uid   types.UID
		key   *v1alpha1.NodeIdentity
		known []types.UID
	}{
		{nodes.addAny, "a", nil, nil},
		{nodes.updateAny, "a", identity, uids[:1]},
		{nodes.addAny, "b", identity, uids},
		{nodes.updateAny, "b", nil, uids[:1]},
		{nodes.updateAny, "b", identity, uids},
		{nodes.deleteAny, "a", identity, uids[1:]},
		{nodes.leaveAny, "b", identity, nil},
		{nodes.updateAny, "a", identity, nil},
	} {
		if err := step.do(nodes{x}, &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{UID: step.uid, Name: "n"}, Status: v1alpha1.NodeStatus{Identity: step.key}}); err != nil {
			t.Fatal(err)
		}
		for _, uid := range uids {
			m, _ := x.get(uid)
			if (m == member{"n", "k"}) != slices.Contains(step.known, uid) {
				t.Errorf("after %+v: %s is %+v", step, uid, m)
			}
		}
	}
}

func (n nodes) addAny(o *v1alpha1.Node) error    { return n.Add(o) }
func (n nodes) updateAny(o *v1alpha1.Node) error { return n.Update(o) }
func (n nodes) leaveAny(o *v1alpha1.Node) error {
	o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return n.Update(o)
}
func (n nodes) deleteAny(o *v1alpha1.Node) error { return n.Delete(o) }
