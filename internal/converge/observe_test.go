package converge

import (
	"testing"

	"tako.dev/tako/internal/reason"
)

func observed(t testing.TB, desire byte, vertices string, edges ...string) *Graph {
	t.Helper()
	g := draw(t, desire, vertices, edges...)
	for i := range g.Vertices {
		g.Vertices[i].Observe = g.Vertices[i].Key == "b"
	}
	return g
}

func TestDriftIsOnlyTold(t *testing.T) {
	r := newRig(t, observed(t, 1, "b after", "b>after"), Options{}, Resume{})
	r.end("check b", differs)
	r.end("apply b", changed) // what is declared is applied all the same
	r.is("b", "repaired: change")
	r.end("check after", inSync)

	r.touch("b")
	r.end("check b", differs)
	r.is("b", "deferred: told")
	if st := r.e.Status(r.id("b")); st.Err == nil || st.Err.Code != reason.DriftTold || st.Attempts != 0 {
		t.Errorf("%+v: it is told, and no attempt", st)
	}
	r.rests()

	r.touch("b")
	r.end("check b", differs)
	r.rests()
	r.touch("b")
	r.end("check b", inSync)
	r.is("b", "kept")
	r.rests()
}

func TestWhatIsWatchedFollowsTheDeclaration(t *testing.T) {
	r := newRig(t, observed(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.settle()
	r.touch("b")
	r.end("check b", differs)
	r.is("b", "deferred: told")

	r.swap(observed(t, 2, "a b", "a!b"))
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", differs)
	r.end("apply b", changed)
	r.is("b", "repaired: change")
	r.end("refresh b", done)
}

func TestDriftWhileNobodyRanIsOnlyTold(t *testing.T) {
	first := newRig(t, observed(t, 1, "b"), Options{}, Resume{})
	first.settle()
	r := newRig(t, observed(t, 1, "b"), Options{}, first.left("b"))
	r.end("check b", differs)
	r.is("b", "deferred: told")
	r.rests()
}
