package workloads

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/node"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/scheduler"
)

// world is what the loop knows. Only its goroutine touches it.
type world struct {
	began time.Time
	now   time.Time // of the round
	land
	placing
	scaled
	workloads map[types.NamespacedName]*workload
	byUID     map[types.UID]*workload
	instances map[types.NamespacedName]*instance
	uids      map[types.UID]*instance
	owners    map[types.NamespacedName]types.NamespacedName // of revisions
	dirty     map[*workload]bool
	turn      string             // name of the workload that was decided about last, where there were too many; empty: it begins with the first
	stale     map[*workload]bool // their statuses are to be written soon
	telling   telling
	wakes     map[*workload]time.Time
	fresh     map[*instance]bool // of which something else is to be shown
	// redeclared says that the leases which are declared may be others.
	redeclared bool
}

// land is the nodes, and what is on them.
type land struct {
	hosts     map[string]*host      // by name
	unasked   map[string]bool       // of which the presence is to be asked, whatever it says has changed
	asked     uint64                // how many changes the presence had when it was asked last
	sights    map[string]fleet.Node // the same, as decisions see them, and absent
	on        map[string]map[*instance]bool
	counted   bool              // hosts have come, gone or changed since they were counted
	brakes    map[string]string // by environment; of the whole fleet under ""
	deaf      bool              // not all nodes had the time to be heard
	unsettled map[string]bool   // nodes of which it is to be told how far they are drained
	settleAt  time.Time         // when that is tried again; zero: it was told
}

// placing is what the scheduler has, and what it is asked for.
type placing struct {
	snapshot *scheduler.Snapshot
	queue    *scheduler.Queue
	groups   map[string]*group
	again    map[*workload]bool            // gangs of which some are created once more where their room is kept
	room     map[string]map[*instance]bool // who makes room, by for whom
	number   uint64                        // of pending ones, so that each has a name of its own
}

// absent stands for all nodes that are not there any more: a Node that was deleted, or made anew.
const absent = "(deleted)"

// seedOfTies decides among nodes that are equally good. Any number does; the same on every server keeps decisions the same.
const seedOfTies = 1

func newWorld(now time.Time) *world {
	return &world{
		began: now,
		land: land{
			hosts: map[string]*host{}, unasked: map[string]bool{}, sights: map[string]fleet.Node{absent: {Presence: node.Gone, Lost: true}}, on: map[string]map[*instance]bool{}, brakes: map[string]string{}, deaf: true,
			unsettled: map[string]bool{},
		},
		scaled:    scaled{measured: map[*workload]bool{}},
		placing:   placing{snapshot: scheduler.New(seedOfTies), queue: scheduler.NewQueue(), groups: map[string]*group{}, again: map[*workload]bool{}, room: map[string]map[*instance]bool{}},
		workloads: map[types.NamespacedName]*workload{}, byUID: map[types.UID]*workload{}, instances: map[types.NamespacedName]*instance{}, uids: map[types.UID]*instance{},
		owners: map[types.NamespacedName]types.NamespacedName{}, dirty: map[*workload]bool{}, stale: map[*workload]bool{}, wakes: map[*workload]time.Time{}, fresh: map[*instance]bool{},
	}
}

// workload is one with what belongs to it. It is there as soon as anything of its name is.
type workload struct {
	key       types.NamespacedName
	o         *v1alpha1.Workload // as it is stored: shared, and never changed here; nil: there is none of the name
	was       fleet.Status       // how it stood at the last decision, from o
	revisions map[string]*v1alpha1.Revision
	instances map[string]*instance // by name; those of an earlier workload of the name too
	alike     map[types.UID]string // revisions: one text for those that run the same
	pending   map[int]*pending     // by slot
	since     time.Time            // when the first of them came
	classes   map[string]bool      // revisions that the scheduler knows of it
	groups    map[string]bool      // by name
	held      time.Time            // when some of the pending ones are tried again; zero: none has to wait
	runs      map[*workload]bool   // of a schedule
	parent    *workload            // of a run
	replaced  map[int64]bool       // runs that a later one replaces, by their times
	requests  map[string]requested // by revision, as far as it was worked out
	known     known
	letter
}

// pending is an instance that is wanted and has no node.
type pending struct {
	fleet.Create
	uid   string
	until time.Time // before, it is not tried again: it could not be written
	kept  string    // the node where its room is kept until then: the rest of its gang is there; "": it is placed anew
}

// entry is the workload of a name.
func (w *world) entry(key types.NamespacedName) *workload {
	of := w.workloads[key]
	if of == nil {
		of = &workload{
			key: key, revisions: map[string]*v1alpha1.Revision{}, alike: map[types.UID]string{}, instances: map[string]*instance{}, pending: map[int]*pending{}, classes: map[string]bool{}, groups: map[string]bool{},
			runs: map[*workload]bool{},
		}
		w.workloads[key] = of
	}
	return of
}

func (w *world) touch(of *workload) { w.dirty[of] = true }

// wake has a workload decided about at a moment; zero: not by itself.
func (w *world) wake(of *workload, at time.Time) {
	if delete(w.wakes, of); !at.IsZero() {
		w.wakes[of] = at
	}
}

// leave lets the entry of a workload go of which nothing is left.
func (w *world) leave(of *workload) {
	if of.o != nil || len(of.instances)+len(of.revisions)+len(of.runs) > 0 {
		return
	}
	delete(w.workloads, of.key)
	delete(w.dirty, of)
	delete(w.stale, of)
	delete(w.wakes, of)
}

// keyWithUID is the name of an object with what tells it from an earlier one.
func keyWithUID(o metav1.Object) string { return keyOf(o).String() + "/" + string(o.GetUID()) }

// versionOf is the version of an object, which grows.
func versionOf(o metav1.Object) uint64 {
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// older: what a watch tells late of what was written here.
func older(told, known metav1.Object) bool {
	return told.GetUID() == known.GetUID() && versionOf(told) <= versionOf(known)
}

// absorb takes in what the watches and the presence have told.
func (c *Workloads) absorb(w *world, now time.Time) {
	w.now = now
	for _, told := range ordered(c.nodes.Take()) {
		w.absorbHost(told.key, told.value, now)
	}
	for _, told := range ordered(c.workloads.Take()) {
		w.absorbWorkload(told)
	}
	for _, told := range ordered(c.revisions.Take()) {
		w.absorbRevision(told)
	}
	for _, told := range ordered(c.instances.Take()) {
		w.absorbInstance(told)
	}
	c.hear(w, now)
	w.count(now)
	for of, at := range w.wakes {
		if !at.After(now) {
			w.touch(of)
		}
	}
}

// told is what was told of one object; nil: it has gone.
type told[T any] struct {
	key   string
	value *T
}

// ordered is news by key, so that the same news make the same decisions, and first what has gone, whose names others may have by now.
func ordered[T any](news map[string]*T) []told[T] {
	all := make([]told[T], 0, len(news))
	for key, value := range news {
		all = append(all, told[T]{key, value})
	}
	slices.SortFunc(all, func(a, b told[T]) int {
		if (a.value == nil) != (b.value == nil) {
			if a.value == nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.key, b.key)
	})
	return all
}

// identity reads a key of an inbox.
func (t told[T]) identity() (types.NamespacedName, types.UID) {
	parts := strings.Split(t.key, "/")
	return types.NamespacedName{Namespace: parts[0], Name: parts[1]}, types.UID(parts[2])
}

func (w *world) absorbWorkload(told told[v1alpha1.Workload]) {
	key, uid := told.identity()
	if told.value != nil {
		w.takeWorkload(told.value)
		return
	}
	if of := w.workloads[key]; of != nil && of.o != nil && of.o.UID == uid {
		w.forget(of)
		w.leave(of)
	}
}

// takeWorkload takes in a workload, from a watch or as the store has answered a write.
func (w *world) takeWorkload(o *v1alpha1.Workload) {
	of := w.entry(keyOf(o))
	switch {
	case of.o != nil && older(o, of.o):
		return
	case of.o != nil && o.UID != of.o.UID:
		w.forget(of)
	}
	w.renew(of, o)
	w.touch(of)
}

// renew takes in another version of a workload, from a watch or as the store has answered a write.
func (w *world) renew(of *workload, o *v1alpha1.Workload) {
	old := of.o
	of.o, of.was = o, statuses.Decode(&o.Status)
	w.byUID[o.UID] = of
	if old == nil {
		w.adopt(of)
	}
	if of.parent != nil && (old == nil || over(old) != over(o)) {
		w.touch(of.parent) // a later run may wait for it
	}
	if old == nil || old.Generation != o.Generation {
		w.redeclared = true
		w.describe(of)
	}
}

// adopt finds the schedule of a run.
func (w *world) adopt(of *workload) {
	ref := metav1.GetControllerOf(of.o)
	if ref == nil || ref.Kind != v1alpha1.KindWorkload {
		return
	}
	of.parent = w.entry(types.NamespacedName{Namespace: of.key.Namespace, Name: ref.Name})
	of.parent.runs[of] = true
}

// over: nothing of a run goes on.
func over(run *v1alpha1.Workload) bool { return run.Status.Job != nil && run.Status.Job.Over != nil }

// forget lets a workload go that was deleted. Its instances are what the garbage collector finds; until then they hold what they have.
func (w *world) forget(of *workload) {
	for slot := range of.pending {
		w.unwant(of, slot)
	}
	w.regroup(of)
	for revision := range of.classes {
		w.snapshot.RemoveWorkload(keyWithUID(of.o), revision)
	}
	if of.parent != nil {
		delete(of.parent.runs, of)
		w.touch(of.parent)
		w.leave(of.parent)
	}
	w.redeclared = true
	delete(w.byUID, of.o.UID)
	delete(w.dirty, of)
	delete(w.stale, of)
	delete(w.wakes, of)
	delete(w.measured, of)
	of.o, of.was, of.parent, of.replaced, of.known, of.letter = nil, fleet.Status{}, nil, nil, known{}, letter{}
	clear(of.classes)
}

func (w *world) absorbRevision(told told[v1alpha1.Revision]) {
	key, uid := told.identity()
	if told.value != nil {
		w.takeRevision(told.value)
		return
	}
	if owner, known := w.owners[key]; known && w.entry(owner).revisions[key.Name].UID == uid {
		w.loseRevision(key)
	}
}

// loseRevision lets a revision go.
func (w *world) loseRevision(key types.NamespacedName) {
	of := w.entry(w.owners[key])
	if r := of.revisions[key.Name]; r != nil {
		delete(of.alike, r.UID)
	}
	delete(of.revisions, key.Name)
	delete(of.requests, key.Name)
	delete(w.owners, key)
	w.touch(of)
	w.leave(of)
}

// takeRevision takes in a revision, from a watch or as the store has answered a write.
func (w *world) takeRevision(r *v1alpha1.Revision) {
	key, owner := keyOf(r), types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.Source.Name}
	if was, known := w.owners[key]; known && was != owner {
		w.loseRevision(key)
	}
	of := w.entry(owner)
	if was := of.revisions[key.Name]; was != nil && older(r, was) {
		return
	}
	w.owners[key], of.revisions[key.Name] = owner, r
	w.touch(of)
	w.describe(of) // instances of it may have come before it
}

// earlier of two times; the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
