package source

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// TestTwoSourcesClaimOneObject: it stays with the first; the second is told whose it is, and writes nothing again and again. When the first
// lets go, the second has it.
func TestTwoSourcesClaimOneObject(t *testing.T) {
	f := newFleet(t)
	one, two := newRepository(t, f.repositories, "one"), newRepository(t, f.repositories, "two")
	first := one.commit("first", map[string]string{"a.yaml": text("shared", "of one"), "b.yaml": text("one", "1")})
	second := two.commit("second", map[string]string{"a.yaml": text("shared", "of two"), "b.yaml": text("two", "1")})
	f.allow("one", "cluster-admin")
	f.allow("two", "cluster-admin")
	f.declare("one", spec(one, "main"))
	f.applies("one", first)
	version := f.object("configmap/shared", "prod").GetResourceVersion()
	f.declare("two", spec(two, "main"))
	for range 3 {
		f.look("two", spec(two, "main"))
		f.refuses("two", "a.yaml:3", "ops/one")
	}
	src := f.source("two")
	if src.Status.Applied != nil {
		t.Errorf("the second has applied %+v", src.Status.Applied)
	}
	f.is("shared", "of one")
	if now := f.object("configmap/shared", "prod").GetResourceVersion(); now != version {
		t.Errorf("the object was written: %s, now %s", version, now)
	}
	if f.object("configmap/two", "prod") != nil {
		t.Error("a part of the second was applied")
	}
	if s := f.source("one"); !ready(&s) {
		t.Errorf("the first suffers: %+v", s.Status.Conditions)
	}

	one.git("rm", "--quiet", "a.yaml")
	let := one.commit("let go", nil)
	f.look("one", spec(one, "main"))
	f.applies("one", let)
	f.look("two", spec(two, "main"))
	f.applies("two", second)
	f.is("shared", "of two")
	f.is("one", "1")
}

// TestKilledInTheMiddle: a server that is killed while it applies 300 objects, again and again, comes to what the commit says: all of it,
// each once, and what was there before is gone.
func TestKilledInTheMiddle(t *testing.T) {
	const objects = 300
	f := newFleet(t)
	r := newRepository(t, f.repositories, "many")
	f.allow("many", "cluster-admin")
	f.declare("many", spec(r, "main"))
	count := func(round int) int {
		out, err := f.Try("get", "configmaps", "-n", "prod", "-o", "name")
		if err != nil {
			return 0
		}
		return strings.Count(out, fmt.Sprintf("configmap/round-%d-", round))
	}
	middle := 0 // kills that were in the middle
	for round := range 4 {
		var all strings.Builder
		for i := range objects {
			all.WriteString("---\n" + text(fmt.Sprintf("round-%d-%d", round, i), fmt.Sprint(round)))
		}
		commit := r.commit(fmt.Sprint("round ", round), map[string]string{"all.yaml": all.String(), "stays.yaml": text("stays", "1")})
		f.look("many", spec(r, "main"))
		f.until("many", "some of it is applied", func(*v1alpha1.Source) bool { return count(round) > 20 })
		f.Server.Kill()
		f.Server.Start(t)
		got := count(round)
		t.Logf("round %d: %d of %d objects after the kill", round, got, objects)
		if got < objects {
			middle++
		}
		s := f.applies("many", commit)
		if got := count(round); got != objects || s.Status.Objects != objects+1 {
			t.Errorf("round %d: %d objects are there, and it says %d", round, got, s.Status.Objects)
		}
		if round > 0 {
			if left := count(round - 1); left > 0 {
				t.Errorf("round %d: %d objects are left of the one before", round, left)
			}
		}
	}
	if middle == 0 {
		t.Error("no kill was in the middle: this test no longer sees one")
	}
}
