package gc

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// stored is an object as the server of the simulation has it.
type stored struct {
	Object
	foreign bool // has a finalizer of somebody else
	closed  bool // its deletion in the foreground has begun, whatever became of it
	version int
}

// notice is what a watch says.
type notice struct {
	object Object
	gone   bool
}

// world is a server with watches, and one driver of a graph that is late, sometimes fails, and carries out old decisions.
type world struct {
	t        interface{ Fatalf(string, ...any) }
	rng      *rand.Rand
	objects  map[UID]*stored
	watches  map[GroupKind][]notice // in order per kind; kinds overtake one another
	graph    *Graph
	queue    map[UID]bool
	inFlight []Decision
	flaky    bool
	made     int
	deletes  int

	ownersMax int
}

var (
	kindA  = GroupKind{"tako.dev", "A"}
	kindB  = GroupKind{"", "B"}
	kindC  = GroupKind{"tako.dev", "Cluster"} // not in a namespace
	ghosts = GroupKind{"gone.example", "Ghost"}
)

func newWorld(t interface{ Fatalf(string, ...any) }, rng *rand.Rand) *world {
	return &world{t: t, rng: rng, objects: map[UID]*stored{}, watches: map[GroupKind][]notice{}, graph: NewGraph(), queue: map[UID]bool{}}
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func pick[T any](w *world, list []T) T { return list[w.rng.IntN(len(list))] }

func (w *world) uids() []UID { return slices.Sorted(maps.Keys(w.objects)) }

// create makes an object without owners.
func (w *world) create() UID {
	w.made++
	o := &stored{Object: Object{Identity: Identity{UID: UID(fmt.Sprintf("u%03d", w.made)), Kind: pick(w, []GroupKind{kindA, kindB, kindC}), Name: fmt.Sprintf("n%d", w.made)}}}
	if o.Kind != kindC {
		o.Namespace = pick(w, []string{"x", "x", "y"})
	}
	w.objects[o.UID] = o
	w.changed(o)
	return o.UID
}

// reference refers to an object as it should be referred to.
func (w *world) reference(uid UID) Reference {
	o := w.objects[uid]
	return Reference{UID: uid, APIVersion: "v1", Kind: o.Kind, Name: o.Name, Blocks: w.oneIn(2)}
}

// own gives an object new owners, all sorts of them.
func (w *world) own(uid UID) {
	o := w.objects[uid]
	o.Owners = nil
	for range 1 + w.rng.IntN(w.ownersMax) {
		ref := w.reference(pick(w, w.uids()))
		switch {
		case slices.ContainsFunc(o.Owners, func(r Reference) bool { return r.UID == ref.UID }):
			continue
		case w.oneIn(20):
			ref.Name += "-misspelled"
		case w.oneIn(20):
			ref = Reference{UID: UID(fmt.Sprintf("ghost%d", w.rng.IntN(5))), Kind: ghosts, Name: "ghost"}
		}
		o.Owners = append(o.Owners, ref)
	}
	w.changed(o)
}

// changed gives an object a new version and tells the watch.
func (w *world) changed(o *stored) {
	o.version++
	o.Version = fmt.Sprint(o.version)
	seen := o.Object
	seen.Owners = slices.Clone(o.Owners)
	w.watches[o.Kind] = append(w.watches[o.Kind], notice{object: seen})
	if o.Deleting && !o.Foreground && !o.Orphan && !o.foreign {
		delete(w.objects, o.UID)
		w.watches[o.Kind] = append(w.watches[o.Kind], notice{object: seen, gone: true})
	}
}

// remove is what a server does with a DELETE.
func (w *world) remove(uid UID, how Propagation) {
	o := w.objects[uid]
	o.Deleting = true
	o.Foreground, o.Orphan = how == Foreground, how == Orphan
	o.closed = o.closed || how == Foreground
	w.changed(o)
}

// judge says what a reference is worth in truth.
func (w *world) judge(o *stored, ref Reference) standing {
	owner := w.objects[ref.UID]
	switch {
	case o.Namespace == "" && (ref.Kind == kindA || ref.Kind == kindB):
		return mistaken
	case owner == nil:
		return absent
	case mistake(&o.Object, ref, &owner.Object) != "":
		return mistaken
	case owner.waiting():
		return closing
	}
	return solid
}

// read is a live read.
func (w *world) read(l Lookup) Verdict {
	owner := w.objects[l.UID]
	switch {
	case l.Namespace == "" && (l.Kind == kindA || l.Kind == kindB):
		return Elsewhere
	case owner == nil || owner.Kind != l.Kind || owner.Name != l.Name:
		return Absent
	case owner.Namespace != "" && owner.Namespace != l.Namespace:
		return Elsewhere
	}
	return Lives
}

// step does one thing that is due; false when nothing is.
func (w *world) step() bool {
	var ways []func()
	for _, kind := range []GroupKind{kindA, kindB, kindC} {
		if len(w.watches[kind]) > 0 {
			ways = append(ways, func() { w.deliver(kind) })
		}
	}
	if len(w.queue) > 0 {
		ways = append(ways, func() {
			uid := pick(w, slices.Sorted(maps.Keys(w.queue)))
			delete(w.queue, uid)
			w.inFlight = append(w.inFlight, w.graph.Decide(uid)...)
		})
	}
	if len(w.inFlight) > 0 {
		ways = append(ways, func() {
			i := w.rng.IntN(len(w.inFlight))
			d := w.inFlight[i]
			w.inFlight = slices.Delete(w.inFlight, i, i+1)
			w.carryOut(d)
		})
	}
	if len(ways) == 0 {
		return false
	}
	pick(w, ways)()
	return true
}

func (w *world) deliver(kind GroupKind) {
	n := w.watches[kind][0]
	w.watches[kind] = w.watches[kind][1:]
	if n.gone {
		w.touch(w.graph.Forget(n.object.UID))
	} else {
		w.touch(w.graph.Observe(n.object))
	}
}

func (w *world) touch(uids []UID) {
	for _, uid := range uids {
		w.queue[uid] = true
	}
}

func (w *world) carryOut(d Decision) {
	broken := w.flaky && w.oneIn(10)
	switch d.Do {
	case Verify:
		if broken {
			w.touch(w.graph.Answer(d.Lookup, Unreadable))
		} else {
			w.touch(w.graph.Answer(d.Lookup, w.read(d.Lookup)))
		}
		return
	case Report:
		return
	}
	o := w.objects[d.Object.UID]
	if o == nil || o.Version != d.Version {
		return // refused by the precondition; the watch will say why
	}
	if broken {
		w.queue[o.UID] = true
		return
	}
	switch d.Do {
	case Delete:
		w.checkDelete(o)
		w.remove(o.UID, d.Propagation)
		return
	case RemoveFinalizer:
		o.Foreground = o.Foreground && d.Finalizer != FinalizerForeground
		o.Orphan = o.Orphan && d.Finalizer != FinalizerOrphan
	case DropOwners:
		w.checkDrop(o, d.Owners)
		o.Owners = slices.DeleteFunc(slices.Clone(o.Owners), func(r Reference) bool { return slices.Contains(d.Owners, r.UID) })
	case Unblock:
		o.Owners = slices.Clone(o.Owners)
		for i := range o.Owners {
			o.Owners[i].Blocks = false
		}
	}
	w.changed(o)
}

// checkDelete is invariant 1, against the truth at the moment of the deletion.
func (w *world) checkDelete(o *stored) {
	w.deletes++
	owned := false
	for _, ref := range o.Owners {
		if ref.UID == o.UID {
			continue
		}
		owned = true
		// An owner that was being deleted in the foreground may since have been told to go without waiting: it goes all the same.
		if w.judge(o, ref) == solid && !w.objects[ref.UID].closed {
			w.t.Fatalf("%s is deleted, but its owner %s lives", o.Identity, ref.UID)
		}
	}
	if !owned {
		w.t.Fatalf("%s is deleted and has no owner", o.Identity)
	}
}

// checkDrop wants no reference dropped to an owner that lives and is not on its way out.
func (w *world) checkDrop(o *stored, gone []UID) {
	for _, ref := range o.Owners {
		if owner := w.objects[ref.UID]; slices.Contains(gone, ref.UID) && w.judge(o, ref) == solid && !owner.Deleting {
			w.t.Fatalf("%s loses its owner %s, which lives", o.Identity, ref.UID)
		}
	}
}

// settle lets everything happen that is due, with the repeated questions that time brings.
func (w *world) settle() {
	for range 3 {
		for steps := 0; w.step(); steps++ {
			if steps > 100_000 {
				w.t.Fatalf("does not become quiet: queue %v, in flight %v", w.queue, w.inFlight)
			}
		}
		w.flaky = false
		w.touch(w.graph.Recheck())
	}
	for w.step() {
	}
}
