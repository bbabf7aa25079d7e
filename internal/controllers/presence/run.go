package presence

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// unknownMax is how long a node may be heard of which no object was seen: a watch of the Nodes is seconds late at most, and who has
// no Node is refused soon.
const unknownMax = time.Minute

// Run decides and stores until ctx is done. It returns nil then.
func (r *Register) Run(ctx context.Context) error {
	if r.options.Metrics != nil {
		for _, m := range r.metrics() {
			if err := r.options.Metrics.Register(m); err != nil {
				return &reason.Error{Code: reason.InternalFault, Doing: "register the metrics of the presence", Cause: err}
			}
			defer r.options.Metrics.Unregister(m)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	nodes := cache.NewReflectorWithOptions(r.options.Objects.ListerWatcher(kindNode, false), &v1alpha1.Node{}, feed{r}, cache.ReflectorOptions{Name: "presence"})
	all.Go(func() { nodes.RunWithContext(ctx) })
	r.loop(ctx, &all)
	return nil
}

// loop decides and stores until ctx is done. What it starts is in all.
func (r *Register) loop(ctx context.Context, all *sync.WaitGroup) {
	var stored chan []result // nil while nothing is being stored
	for {
		events, next := r.decide(time.Now())
		for _, e := range events {
			r.options.Recorder.Tell(e.about, e.kind, e.why, e.words)
		}
		if stored == nil {
			batch, at := r.toStore(time.Now())
			if len(batch) > 0 {
				stored = make(chan []result, 1)
				all.Go(func() { stored <- r.storeAll(ctx, batch) })
			}
			next = earlier(next, at)
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.nudge:
		case <-timer:
		case results := <-stored:
			stored = nil
			r.wasStored(results, time.Now())
		}
	}
}

// earlier of two times; the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// event is something to tell people.
type event struct {
	about            core.ObjectReference
	kind, why, words string
}

// decide decides about all that was noted or is due, and returns what to tell and when to decide again.
func (r *Register) decide(now time.Time) (events []event, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.wakes) > 0 && !r.wakes[0].wake.After(now) {
		e := r.wakes[0]
		r.wakeLocked(e, time.Time{})
		if !e.known {
			r.forgetLocked(e)
			continue
		}
		r.noteLocked(e)
	}
	noted := r.noted
	r.noted = nil
	for _, e := range noted {
		e.isNoted = false
		if r.nodes[e.uid] == e {
			events = append(events, r.decideOneLocked(e, now)...)
		}
	}
	if len(r.wakes) > 0 {
		next = r.wakes[0].wake
	}
	return events, next
}

func (r *Register) decideOneLocked(e *entry, now time.Time) []event {
	was := e.said
	view := node.View{Began: r.began, Created: e.created, High: was.High, Was: was.Conditions, Judged: e.doubts.judged, Suspected: e.doubts.suspect,
		Herd: r.herd.Until(len(r.names))}
	if e.report != nil {
		view.Expired, view.Ahead = e.report.Stale, e.doubts.ahead
	}
	e.life, e.said = node.Decide(e.life, view, now)
	r.journal.note(e.name)
	if e.since.IsZero() || e.said.Presence != was.Presence {
		e.since = now
	}
	if e.said.Presence == node.Gone {
		r.dropLocked(e)
	}
	e.others.is = e.others.is || e.said.Presence != was.Presence || e.said.Believed != was.Believed
	wake := e.said.WakeAt
	if e.others.due(changing(), now, &wake) {
		r.changedLocked(e.name)
	}
	if e.stirring.due(stirring(), now, &wake) {
		r.tellLocked()
	}
	r.wakeLocked(e, wake)
	if e.said.Store {
		e.saving.want(!sameConditions(was.Conditions, e.said.Conditions), len(was.Conditions) == 0, e.uid, len(r.names), now)
		r.saveLocked(e)
	}
	events := append(eventsOf(e, was.Conditions), e.disbeliefLocked()...)
	if len(events) > 0 && e.telling.wait(telling(), now) > 0 {
		return nil // people have been told that it goes up and down
	}
	for range events {
		e.telling.note(telling(), now)
	}
	return events
}

func sameConditions(a, b []node.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b node.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
}

func (r *Register) changedLocked(name string) {
	r.changes[name] = struct{}{}
	signal(r.changed)
	r.tellLocked()
}

func (r *Register) tellLocked() {
	for _, told := range r.told {
		signal(told)
	}
}

// tellsOther reports whether something else follows from a report than from the one before.
func tellsOther(old, report *wire.Report) bool {
	return old.Enforced.Version != report.Enforced.Version || old.Enforced.Epoch != report.Enforced.Epoch || old.Enforced.Root != report.Enforced.Root ||
		old.Verdict != report.Verdict || !slices.Equal(old.Configs, report.Configs) || !slices.Equal(old.Statements, report.Statements)
}

// forgetLocked lets a node go.
func (r *Register) forgetLocked(e *entry) {
	r.dropLocked(e)
	r.wakeLocked(e, time.Time{})
	delete(r.nodes, e.uid)
	e.saving.due = time.Time{}
	r.saveLocked(e)
	r.journal.note(e.name)
	if r.names[e.name] == e {
		delete(r.names, e.name)
		r.changedLocked(e.name)
	}
}

// wakes is a heap of entries by the time to decide about them again.
type wakes []*entry

var _ heap.Interface = (*wakes)(nil)

// Len is how many there are.
func (w wakes) Len() int { return len(w) }

// Less compares two.
func (w wakes) Less(i, j int) bool { return w[i].wake.Before(w[j].wake) }

// Swap exchanges two.
func (w wakes) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

// Push adds one at the end.
func (w *wakes) Push(x any) {
	e := x.(*entry)
	e.place = len(*w)
	*w = append(*w, e)
}

// Pop takes the last one.
func (w *wakes) Pop() any {
	last := len(*w) - 1
	e := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	e.place = -1
	return e
}

// wakeLocked sets when to decide about an entry again; zero: not by itself.
func (r *Register) wakeLocked(e *entry, at time.Time) {
	e.wake = at
	switch {
	case at.IsZero() && e.place >= 0:
		heap.Remove(&r.wakes, e.place)
	case at.IsZero():
	case e.place >= 0:
		heap.Fix(&r.wakes, e.place)
	default:
		heap.Push(&r.wakes, e)
	}
}

// feed puts the Nodes that there are into the register. It is the store of a reflector.
type feed struct{ register *Register }

var _ cache.ReflectorStore = feed{}

// Add notes a new Node.
func (f feed) Add(obj any) error { return f.Update(obj) }

// Update notes a Node.
func (f feed) Update(obj any) error {
	f.register.mu.Lock()
	defer f.register.mu.Unlock()
	f.register.knowLocked(obj.(*v1alpha1.Node))
	return nil
}

// Delete forgets a Node.
func (f feed) Delete(obj any) error {
	f.register.mu.Lock()
	defer f.register.mu.Unlock()
	if e := f.register.nodes[obj.(*v1alpha1.Node).UID]; e != nil {
		f.register.forgetLocked(e)
	}
	return nil
}

// Replace notes all Nodes that there are, and forgets the others.
func (f feed) Replace(list []any, _ string) error {
	f.register.mu.Lock()
	defer f.register.mu.Unlock()
	there := make(map[*entry]bool, len(list))
	for _, obj := range list {
		there[f.register.knowLocked(obj.(*v1alpha1.Node))] = true
	}
	for _, e := range f.register.nodes {
		if e.known && !there[e] {
			f.register.forgetLocked(e)
		}
	}
	return nil
}

// Resync has nothing to do.
func (feed) Resync() error { return nil }

// knowLocked notes the object of a node. What was stored of it counts when it is seen for the first time; from then on this register
// knows better.
func (r *Register) knowLocked(n *v1alpha1.Node) *entry {
	e := r.nodes[n.UID]
	if e == nil {
		e = newEntry(n.UID, n.Name)
		r.nodes[n.UID] = e
	}
	if old := r.names[n.Name]; old != nil && old != e {
		r.forgetLocked(old)
	}
	r.names[n.Name], e.environment = e, n.Spec.Environment
	if e.known {
		return e
	}
	e.known, e.created = true, n.CreationTimestamp.Time
	e.said.Conditions, e.said.High, e.said.Believed = storedConditions(n), storedMark(n), true
	e.others.is = true
	r.noteLocked(e)
	return e
}

func storedConditions(n *v1alpha1.Node) []node.Condition {
	var all []node.Condition
	for _, kind := range []string{node.Ready, node.Stale, node.Cloned, node.RollbackSuspected} {
		for _, c := range n.Status.Conditions {
			if c.Type == kind {
				all = append(all, node.Condition{Type: c.Type, Status: node.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
			}
		}
	}
	return all
}

func storedMark(n *v1alpha1.Node) catalog.Mark {
	head := n.Status.AppliedHead
	if head == nil {
		return catalog.Mark{}
	}
	root, err := parseRoot(head.Root)
	if err != nil || head.Version < 0 || head.Epoch < 0 {
		return catalog.Mark{}
	}
	return catalog.Mark{Epoch: uint64(head.Epoch), Version: uint64(head.Version), Root: root}
}
