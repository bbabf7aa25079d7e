package workload

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// anyView is a view in which nothing fits together: what is stored may be of an older version, or edited by people.
func anyView(w *world, rng *rand.Rand) View {
	names := []string{"", "r1", "r2", "r3"}
	name := func() string { return pick(w, names...) }
	at := func() time.Time {
		return pick(w, time.Time{}, start, start.Add(time.Duration(rng.IntN(3600))*time.Second), start.Add(-time.Hour))
	}
	w.terms()
	v := View{Name: "web", UID: "w1", Generation: rng.Int64N(9), Spec: w.view.Spec, Deleting: w.oneIn(9), Wanted: rng.IntN(9) - 1, Hash: pick(w, "h1", "h2"), Quiet: at(),
		Nodes: map[string]Node{}, Approval: Approval{name(), rng.IntN(3)}, Brake: pick(w, "", "too many are gone")}
	v.Spec.Mode = pick(w, "", declared.Replicated, declared.PerNode, declared.RunToCompletion)
	v.Spec.Rollout.Pause = w.oneIn(4)
	for _, n := range names[1:] {
		if !w.oneIn(4) {
			v.Revisions = append(v.Revisions, Revision{n, rng.IntN(4), pick(w, "h1", "h2"), w.oneIn(2), pick(w, "", "a", "b"), pick(w, "", declared.MustStick, declared.PreferStick)})
		}
	}
	for i := range 4 {
		n := fmt.Sprint("n", i)
		v.Nodes[n] = Node{Presence: node.Presence(rng.IntN(4)), Gone: at(), Missed: at(), Lost: w.oneIn(8), Closed: w.oneIn(3)}
		if w.oneIn(2) {
			v.Eligible = append(v.Eligible, n)
		}
	}
	for i := range rng.IntN(12) {
		in := Instance{Name: fmt.Sprint("web-", i), UID: fmt.Sprint("i", i), Owner: pick(w, "w1", "w1", "w1", "w0"), Slot: i + rng.IntN(2)*20, Revision: name(), Node: pick(w, "", "n0", "n1", "n2", "n3", "lost"),
			Phase: Phase(rng.IntN(7)), ReadySince: at(), Replaces: pick(w, "", "i1", "i2", fmt.Sprint("i", i)), Abandoned: w.oneIn(4), Losses: rng.IntN(99)}
		if w.oneIn(3) {
			in.Leave = &Leave{reason.NodeDrained, at(), at()}
		}
		if w.oneIn(3) {
			in.Failure = &Failure{Code: reason.RolloutFailed, OfNode: w.oneIn(2)}
		}
		v.Instances = append(v.Instances, in)
	}
	v.Was = Status{Phase: pick(w, "", pace.Complete, pace.Rolling), Wanted: rng.IntN(9), Stable: pace.Proven[string]{Of: name(), At: at()}, Collisions: rng.IntN(2),
		Rollout: Rollout{Target: name(), Goal: name(), Over: w.oneIn(3), Step: rng.IntN(5), Held: at(), Passed: at(), Ended: at(), Clock: at(), Best: Progress{rng.IntN(9), rng.IntN(9)}, Failures: rng.IntN(3), Counted: []string{"i1"}},
		Taken:   []Taken{{"i2", reason.Replaced}}}
	return v
}

// Whatever is stored, a decision is one: bounded, without a slot twice, of what is there, and the same for the same.
func TestAnyView(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	w := newWorld(t, rng)
	for range 20_000 {
		v := anyView(w, rng)
		d := Decide(v, start.Add(30*time.Minute))
		if again := Decide(v, start.Add(30*time.Minute)); !reflect.DeepEqual(d, again) {
			t.Fatalf("%+v decides\n%+v and\n%+v", v, d, again)
		}
		slots, touched := map[int]bool{}, map[string]bool{}
		for _, in := range v.Instances {
			if !slices.ContainsFunc(d.Drop, func(m Mark) bool { return m.UID == in.UID }) {
				slots[in.Slot] = true
			}
		}
		for _, c := range d.Create {
			if slots[c.Slot] || c.Revision == "" || v.Deleting {
				t.Fatalf("it creates %+v: %+v\n of %+v", c, d, v)
			}
			slots[c.Slot] = true
		}
		marks := slices.Concat(d.Drop, d.Abandon) // what counts again may go at once
		for _, s := range d.Stop {
			marks = append(marks, s.Mark)
			if s.Why == 0 {
				t.Fatalf("it stops %+v and does not say why: %+v\nof %+v", s, d, v)
			}
		}
		for _, m := range marks {
			at := slices.IndexFunc(v.Instances, func(in Instance) bool { return in.UID == m.UID && in.Name == m.Name && in.Owner == v.UID })
			if at < 0 || touched[m.UID] {
				t.Fatalf("it does two things to %+v, or it is another's: %+v\nof %+v", m, d, v)
			}
			touched[m.UID] = true
		}
		if len(d.Status.Culprits) > pace.CulpritsMax || len(d.Status.Leaving) > pace.CulpritsMax || d.Status.Phase == "" {
			t.Fatalf("%+v", d.Status)
		}
	}
}
