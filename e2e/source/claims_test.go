package source

import "testing"

// TestTwoSourcesClaimOneObject: it stays with the first; the second is told whose it is, and writes nothing again and again. When the first
// lets go, the second has it.
func TestTwoSourcesClaimOneObject(t *testing.T) {
	t.Parallel()
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
