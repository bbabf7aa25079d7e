package gc

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 300

// seeds runs a simulation for many seeds, or for the one that is asked for.
func seeds(t *testing.T, simulate func(t *testing.T, rng *rand.Rand)) {
	first, last := uint64(1), max(number("TAKO_SEEDS", simSeeds), simSeeds)
	if one := number("TAKO_SEED", 0); one != 0 {
		first, last = one, one
	}
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { simulate(t, rand.New(rand.NewPCG(seed, 1))) }) {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
}

// number reads a number from the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// model is what should become of the objects, computed the slow way from nothing but their owners.
type model struct{ w *world }

// expect returns who is left, with whom as owners, after an object is deleted (empty: after nothing).
func expect(w *world, deleted UID, how Propagation) map[UID][]UID {
	m := model{newWorld(w.t, w.rng)}
	for uid, o := range w.objects {
		c := *o
		c.Owners = slices.Clone(o.Owners)
		m.w.objects[uid] = &c
	}
	if deleted != "" {
		m.vanish(deleted, how)
	}
	for changed := true; changed; {
		changed = false
		for _, uid := range m.w.uids() {
			if m.collect(uid) {
				changed = true
			}
		}
	}
	left := map[UID][]UID{}
	for uid, o := range m.w.objects {
		left[uid] = ownersOf(o)
	}
	return left
}

func (m model) vanish(uid UID, how Propagation) {
	if how == Orphan {
		for _, o := range m.w.objects {
			o.Owners = slices.DeleteFunc(o.Owners, func(r Reference) bool { return r.UID == uid && o.UID != uid && m.w.judge(o, r) != mistaken })
		}
	}
	delete(m.w.objects, uid)
}

func (m model) collect(uid UID) (changed bool) {
	o := m.w.objects[uid]
	if o == nil {
		return false
	}
	kept, gone := 0, []UID{}
	for _, ref := range o.Owners {
		switch {
		case ref.UID == uid:
		case m.w.judge(o, ref) == absent:
			gone = append(gone, ref.UID)
		default:
			kept++
		}
	}
	switch {
	case len(gone) == 0:
		return false
	case kept == 0 && o.Orphan:
		m.vanish(uid, Orphan)
	case kept == 0:
		m.vanish(uid, Background)
	default:
		o.Owners = slices.DeleteFunc(o.Owners, func(r Reference) bool { return slices.Contains(gone, r.UID) })
	}
	return true
}

func ownersOf(o *stored) []UID {
	uids := []UID{}
	for _, ref := range o.Owners {
		uids = append(uids, ref.UID)
	}
	slices.Sort(uids)
	return uids
}

// One thing happens at a time, and then everything settles: what is left is exactly what the model says.
func TestSimulationLeavesExactlyTheRightObjects(t *testing.T) {
	deletes := 0
	seeds(t, func(t *testing.T, rng *rand.Rand) {
		w := newWorld(t, rng)
		// Objects with the finalizer orphan from birth. Then nothing is deleted in the foreground, and nobody has two owners: whether
		// one of them is gone first, or leaves its dependents behind first, would be a race with two right ends.
		orphans := w.oneIn(3)
		w.ownersMax = 3
		if orphans {
			w.ownersMax = 1
		}
		for range 40 {
			w.flaky = w.oneIn(2)
			var want map[UID][]UID
			switch live := w.uids(); {
			case len(live) < 4 || w.oneIn(3):
				uid := w.create()
				w.objects[uid].Orphan = orphans && w.oneIn(4)
				w.changed(w.objects[uid])
				want = expect(w, "", "")
			case w.oneIn(2):
				w.own(pick(w, live))
				want = expect(w, "", "")
			default:
				uid, how := pick(w, live), pick(w, []Propagation{Background, Foreground, Orphan})
				if orphans && how == Foreground {
					how = Background
				}
				want = expect(w, uid, how)
				w.remove(uid, how)
			}
			w.settle()
			left := map[UID][]UID{}
			for uid, o := range w.objects {
				left[uid] = ownersOf(o)
				if o.Deleting {
					t.Fatalf("%s waits for nothing", o.Identity)
				}
			}
			if !maps.EqualFunc(left, want, slices.Equal) {
				t.Fatalf("left is\n%v\nthe model has\n%v", left, want)
			}
		}
		deletes += w.deletes
		w.checkMemory()
	})
	if deletes == 0 && number("TAKO_SEED", 0) == 0 {
		t.Error("the simulations collected nothing")
	}
}

// Everything happens at once, with finalizers of others: nothing whose owner lives is deleted at any moment (checkDelete), and in
// the end nothing is left that should have gone.
func TestSimulationOfManyThingsAtOnce(t *testing.T) {
	seeds(t, func(t *testing.T, rng *rand.Rand) {
		w := newWorld(t, rng)
		w.flaky, w.ownersMax = true, 3
		for range 300 {
			live := w.uids()
			switch {
			case len(live) < 4 || w.oneIn(12):
				o := w.objects[w.create()]
				o.foreign, o.Orphan, o.Foreground = w.oneIn(6), w.oneIn(10), w.oneIn(10)
				w.changed(o)
				if w.oneIn(3) {
					w.own(o.UID)
				}
			case w.oneIn(10):
				w.own(pick(w, live))
			case w.oneIn(10):
				w.remove(pick(w, live), pick(w, []Propagation{Background, Foreground, Orphan}))
			case w.oneIn(10):
				o := w.objects[pick(w, live)]
				o.foreign = false
				w.changed(o)
			default:
				w.step()
			}
		}
		for _, uid := range w.uids() {
			if o := w.objects[uid]; o.foreign {
				o.foreign = false
				w.changed(o)
			}
		}
		w.settle()
		for _, o := range w.objects {
			w.checkLeft(o)
		}
		w.checkMemory()
	})
}

// checkLeft is invariant 4 for one object of a quiet world.
func (w *world) checkLeft(o *stored) {
	if o.Deleting {
		w.t.Fatalf("%s waits for nothing: %+v", o.Identity, o.Object)
	}
	kept, all := 0, 0
	for _, ref := range o.Owners {
		if ref.UID == o.UID {
			continue
		}
		all++
		if w.judge(o, ref) != absent {
			kept++
		}
	}
	if all > kept {
		w.t.Fatalf("%s keeps %d owners that are gone", o.Identity, all-kept)
	}
}

// checkMemory is invariant 5: the graph knows nobody who is not there and is not referred to, and its counts are right.
func (w *world) checkMemory() {
	fresh := NewGraph()
	for _, uid := range w.uids() {
		fresh.Observe(w.objects[uid].Object)
	}
	if fresh.Len() != w.graph.Len() {
		w.t.Fatalf("the graph has %d nodes, a new one %d", w.graph.Len(), fresh.Len())
	}
	for uid, n := range fresh.nodes {
		old := w.graph.nodes[uid]
		if old == nil || old.valid != n.valid || !maps.Equal(old.dependents, n.dependents) {
			w.t.Fatalf("%s: the graph has %+v, a new one %+v", uid, old, n)
		}
	}
}
