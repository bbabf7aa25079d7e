package gc

import (
	"fmt"
	"slices"
	"testing"
)

func made(uid UID, namespace string, owners ...Reference) Object {
	return Object{Identity: Identity{UID: uid, Kind: kindA, Namespace: namespace, Name: string(uid)}, Version: "1", Owners: owners}
}

func to(uid UID) Reference {
	return Reference{UID: uid, APIVersion: "tako.dev/v1", Kind: kindA, Name: string(uid), Blocks: true}
}

// actions is what is decided about an object, in words.
func actions(g *Graph, uid UID) []string {
	list := []string{}
	for _, d := range g.Decide(uid) {
		s := d.Do.String()
		if d.Do == Delete {
			s += " " + string(d.Propagation)
		}
		if d.Finalizer != "" {
			s += " " + d.Finalizer
		}
		list = append(list, s+fmt.Sprint(d.Owners))
	}
	return list
}

func expectActions(t *testing.T, g *Graph, uid UID, want ...string) {
	t.Helper()
	if got := actions(g, uid); !slices.Equal(got, want) {
		t.Errorf("about %s: %q, want %q", uid, got, want)
	}
}

func TestAbsentOwnerIsVerifiedFirst(t *testing.T) {
	g := NewGraph()
	g.Observe(made("child", "x", to("owner")))
	decisions := g.Decide("child")
	want := Lookup{UID: "owner", APIVersion: "tako.dev/v1", Kind: kindA, Namespace: "x", Name: "owner"}
	if len(decisions) != 1 || decisions[0].Do != Verify || decisions[0].Lookup != want {
		t.Fatalf("decided %+v", decisions)
	}
	expectActions(t, g, "child") // the answer is on its way
	for _, verdict := range []Verdict{Lives, Unreadable, Elsewhere} {
		g.Answer(want, verdict)
		for _, a := range g.Decide("child") {
			if a.Do != Report {
				t.Errorf("an owner that is %s leads to %v", verdict, a)
			}
		}
		if got := g.Recheck(); !slices.Equal(got, []UID{"child"}) {
			t.Errorf("after %s, checked again is %v", verdict, got)
		}
		expectActions(t, g, "child", "verify[]")
	}
	g.Answer(want, Absent)
	expectActions(t, g, "child", "delete Background[]")
	if got := g.Recheck(); len(got) > 0 {
		t.Errorf("what is gone for ever is checked again: %v", got)
	}
}

func TestMistakesAreToldOnceAndKeep(t *testing.T) {
	cluster := made("top", "", to("owner"))
	misspelled := to("owner")
	misspelled.Name = "onwer"
	for name, child := range map[string]Object{
		"another namespace": made("child", "y", to("owner")),
		"of the cluster":    cluster,
		"another name":      made("child", "x", misspelled),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGraph()
			owner := made("owner", "x")
			owner.Deleting, owner.Foreground = true, true
			g.Observe(owner)
			g.Observe(child)
			decisions := g.Decide(child.UID)
			if len(decisions) != 1 || decisions[0].Do != Report || decisions[0].Why == "" {
				t.Fatalf("decided %+v, want one report", decisions)
			}
			expectActions(t, g, child.UID)
			// Who refers to an owner by mistake cannot hold it up.
			expectActions(t, g, "owner", "removeFinalizer foregroundDeletion[]")
			child.Owners = append(slices.Clone(child.Owners), to("owner2"))
			g.Observe(child)
			expectActions(t, g, child.UID, "verify[]", "report[]")
		})
	}
}

// An owner waits for its dependents, and they for theirs, as long as nobody waits for himself.
func TestForegroundGoesFromTheLeaves(t *testing.T) {
	g := NewGraph()
	chain := []Object{made("a", "x"), made("b", "x", to("a")), made("c", "x", to("b"))}
	for i := range chain {
		chain[i].Deleting, chain[i].Foreground = true, true
		g.Observe(chain[i])
	}
	expectActions(t, g, "a")
	expectActions(t, g, "b")
	expectActions(t, g, "c", "removeFinalizer foregroundDeletion[]")
	if got := g.Forget("c"); !slices.Equal(got, []UID{"b"}) {
		t.Errorf("without c, %v is decided about", got)
	}
	expectActions(t, g, "b", "removeFinalizer foregroundDeletion[]")

	// The same as a circle.
	chain[0].Owners = []Reference{to("c")}
	for _, o := range chain {
		g.Observe(o)
	}
	expectActions(t, g, "b", "unblock[]")
}

func TestForegroundDeletesDependentsWithoutDependentsAtOnce(t *testing.T) {
	g := NewGraph()
	owner, child, grandchild := made("owner", "x"), made("child", "x", to("owner")), made("grandchild", "x", to("child"))
	owner.Deleting, owner.Foreground = true, true
	for _, o := range []Object{owner, child, grandchild} {
		g.Observe(o)
	}
	expectActions(t, g, "child", "delete Foreground[]")
	expectActions(t, g, "grandchild")
	g.Forget("grandchild")
	expectActions(t, g, "child", "delete Background[]")
}

// An owner that is being deleted and is held by a finalizer of somebody else lives until that is gone.
func TestOwnerThatIsHeldKeeps(t *testing.T) {
	g := NewGraph()
	owner := made("owner", "x")
	owner.Deleting = true
	g.Observe(owner)
	g.Observe(made("child", "x", to("owner")))
	expectActions(t, g, "child")
}

func TestAnotherOwnerKeeps(t *testing.T) {
	g := NewGraph()
	closing, orphaning := made("closing", "x"), made("orphaning", "x")
	closing.Deleting, closing.Foreground = true, true
	orphaning.Deleting, orphaning.Orphan = true, true
	for _, o := range []Object{closing, orphaning, made("alive", "x"), made("kept", "x", to("closing"), to("alive")), made("left", "x", to("orphaning"))} {
		g.Observe(o)
	}
	expectActions(t, g, "kept", "dropOwners[closing]")
	expectActions(t, g, "left", "dropOwners[orphaning]")
	expectActions(t, g, "orphaning")
	g.Observe(made("left", "x"))
	expectActions(t, g, "orphaning", "removeFinalizer orphan[]")
}

// TestOwnersOnce: objects that come one after the other and have the same owners have them in memory once.
func TestOwnersOnce(t *testing.T) {
	g := NewGraph()
	for _, o := range []Object{made("a", "x", to("owner")), made("b", "x", to("owner")), made("c", "x", to("other")), made("d", "x"), made("a", "x", to("owner"))} {
		g.Observe(o)
	}
	owners := func(uid UID) []Reference { return g.nodes[uid].object.Owners }
	if &owners("a")[0] != &owners("b")[0] {
		t.Error("two of one owner have a list each")
	}
	if !slices.Equal(owners("c"), []Reference{to("other")}) || len(owners("d")) != 0 {
		t.Errorf("others have %v and %v", owners("c"), owners("d"))
	}
}
