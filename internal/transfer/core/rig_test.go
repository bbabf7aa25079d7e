package core

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// delivery is something on its way.
type delivery struct {
	at    time.Time
	order int // of sending: equal times are kept in order
	run   func()
}

type deliveries []delivery

func (d deliveries) Len() int { return len(d) }
func (d deliveries) Less(i, j int) bool {
	return d[i].at.Before(d[j].at) || d[i].at.Equal(d[j].at) && d[i].order < d[j].order
}
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deliveries) Push(x any)   { *d = append(*d, x.(delivery)) }
func (d *deliveries) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// world is one host, its servers, and what lies between.
type world struct {
	t      testing.TB
	random *rand.Rand
	now    time.Time
	queue  deliveries
	sent   int

	server   *server
	believed *trust.Chain // by the host
	liar     *server      // the second source; nil: there is one
	aside    bool         // what comes is of nobody who was asked
	disk     *disk
	machine  *Machine
	open     uint64 // request
	syncs    bool   // that is
	run      int    // of the host: what was sent to another run does not come

	trouble
	seen
}

// trouble is what goes wrong.
type trouble struct {
	slow    time.Duration
	mute    bool  // nobody answers questions for trust documents
	cuts    []int // after how many parts the next answers break
	spoiled func([]wire.SyncPart) []wire.SyncPart
	refuses func(s State) wire.Verdict
	cannot  func() error // why the host cannot take a state now; nil: it can
}

// seen is what has happened.
type seen struct {
	active    catalog.Mark                         // handed over and taken; the host enforces it across crashes
	told      map[catalog.Digest]catalog.Statement // by operators, by root
	trials    []string                             // layers whose statement was handed over as what is new
	activated []uint64                             // versions, in order
	taken     State
	failedAt  time.Time // the last failed request of this run
	requests  int
	cursors   []catalog.Digest
	wrongs    int // requests since a pause
	alarms    int
	evidence  [][]byte // of the last alarm
	tells     int
	doubts    map[Doubt]int
	trustAsks int
}

func newWorld(t testing.TB, seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, random: random, now: start.Add(time.Hour), server: newServer(t, random), disk: newDisk(t)}
	w.believed = w.server.by.chain
	w.refuses = func(State) wire.Verdict { return wire.Verdict{Type: wire.Applied} }
	w.doubts, w.told = map[Doubt]int{}, map[catalog.Digest]catalog.Statement{}
	return w
}

func (w *world) chance(p float64) bool { return w.random.Float64() < p }

func (w *world) later(most time.Duration, run func()) {
	w.sent++
	heap.Push(&w.queue, delivery{at: w.now.Add(time.Duration(w.random.Int64N(int64(most) + 1))), order: w.sent, run: run})
}

// boot starts the host.
func (w *world) boot() {
	w.run++
	sources := 1
	if w.liar != nil {
		sources = 2
	}
	w.failedAt = time.Time{}
	kept := w.disk.kept
	if w.active.Version > 0 && (w.active.Version != kept.Mark.Version || w.active.Epoch != kept.Mark.Epoch) {
		kept.Ground = w.taken.Signed
	}
	w.machine = New(Options{Node: w.server.by.node(), Chain: w.believed, Kept: kept, Held: w.disk, Sources: sources, Random: w.random})
	w.feed(Began{})
}

// feed is what the client does.
func (w *world) feed(e Event) {
	for e != nil && w.machine != nil {
		effects := w.machine.Step(w.now, e)
		e = nil
		for i, effect := range effects {
			answer := w.do(effect)
			if answer == nil {
				continue
			}
			if s, stored := answer.(Stored); i < len(effects)-1 && (!stored || s.Err == nil) {
				w.t.Fatalf("effect %T is answered and is not the last: %T follows", effect, effects[i+1])
			}
			e = answer
			break
		}
	}
}

func (w *world) do(e Effect) Event {
	if answer, stores := w.disk.do(e); stores {
		return answer
	}
	switch e := e.(type) {
	case Activate:
		return w.activate(e.State)
	case Sync:
		w.syncs = true
		w.ask(e.ID, e.Request.Head, func() { w.sync(e) })
	case Nodes:
		w.syncs = false
		w.ask(e.ID, e.Request.Head, func() { w.nodes(e) })
	case Cancel:
		w.open = 0
	case Alarm:
		w.alarms++
		w.evidence = e.Evidence
	case AskTrust:
		w.trustAsks++
		if !w.mute {
			w.later(time.Second, func() {
				if w.machine != nil {
					w.believed = w.server.by.chain
					w.feed(Trusted{Chain: w.believed})
				}
			})
		}
	case Disbelieve:
		if e.Err == nil {
			w.t.Fatalf("%s, and not why", e.Doubt)
		}
		w.doubts[e.Doubt]++
	case Tell:
		w.tells++
	default:
		w.t.Fatalf("nobody does %T", e)
	}
	return nil
}

// activate checks what must always hold of a state that is handed over.
func (w *world) activate(s State) Event {
	if w.cannot != nil {
		if err := w.cannot(); err != nil {
			return Judged{Err: err}
		}
	}
	truth, signed := w.server.lists[s.Mark.Root]
	if !signed {
		w.t.Fatalf("version %d, root %s was never signed", s.Mark.Version, s.Mark.Root)
	}
	if s.Mark.Epoch < w.active.Epoch || s.Mark.Epoch == w.active.Epoch && s.Mark.Version < w.active.Version {
		w.t.Fatalf("the active state goes back from version %d to %d", w.active.Version, s.Mark.Version)
	}
	if k := w.disk.kept.Mark; k.Version < s.Mark.Version {
		w.t.Fatalf("version %d is handed over, and the mark is at %d", s.Mark.Version, k.Version)
	}
	if len(s.List) != len(truth.layers) {
		w.t.Fatalf("version %d is handed over with %d layers of %d", s.Mark.Version, len(s.List), len(truth.layers))
	}
	for _, l := range s.List {
		held, found := w.disk.layers[l.Root]
		want, _ := truth.layer(l.ID)
		if l.Root != want.trie.Root() {
			want = w.ordered(s, l)
		}
		if !found || held.trie.Root() != want.trie.Root() {
			w.t.Fatalf("version %d is handed over without all of layer %s", s.Mark.Version, l.ID)
		}
		for r := range want.trie.From(catalog.Digest{}) {
			if string(held.bodies[r.Digest]) != string(want.bodies[r.Digest]) || held.bodies[r.Digest] == nil {
				w.t.Fatalf("version %d is handed over without a body of layer %s", s.Mark.Version, l.ID)
			}
		}
	}
	if encoded, err := s.List.Encode(); err != nil || catalog.ListRoot(encoded) != s.Root || w.disk.texts[s.Root] == nil {
		w.t.Fatalf("version %d is handed over with a list that is not held under %s: %v", s.Mark.Version, s.Root, err)
	}
	if s.Trying != "" {
		w.trials = append(w.trials, s.Trying)
	}
	v := w.refuses(s)
	if !refuses(v.Type) {
		w.active, w.taken = s.Mark, s
		w.activated = append(w.activated, s.Mark.Version)
	}
	w.wrongs = 0
	return Judged{Verdict: v}
}

// ordered is the layer that a statement has put in the place of what the head names. It has to be an operator's, accepted durably, about this layer, of this
// epoch, and not absorbed.
func (w *world) ordered(s State, l catalog.Layer) layer {
	st, told := w.told[l.Root]
	o, _ := w.server.order(l.ID, l.Root)
	switch {
	case !told || st.Layer != l.ID || st.Cluster != w.server.by.cluster:
		w.t.Fatalf("layer %s is handed over at %s, which neither the head nor a statement names", l.ID, l.Root)
	case st.Epoch != s.Mark.Epoch:
		w.t.Fatalf("a statement of epoch %d is applied to a head of epoch %d", st.Epoch, s.Mark.Epoch)
	case absorbed(&s.Head, l.ID, st.Number):
		w.t.Fatalf("statement %d about %s is applied to a head that has absorbed it", st.Number, l.ID)
	}
	at := slices.IndexFunc(w.disk.kept.Statements, func(x Statement) bool { return x.Layer == l.ID && x.Number >= st.Number })
	if at < 0 {
		w.t.Fatalf("statement %d about %s is enforced, and it is not durable that it was accepted", st.Number, l.ID)
	}
	if k := &w.disk.kept.Statements[at]; s.Trying == l.ID && (!k.Open || k.State.Root != s.Root || k.Number != st.Number) {
		w.t.Fatalf("statement %d about %s is tried, and that is not durable: %+v", st.Number, l.ID, k)
	}
	return o
}

// ask checks what must hold of a request, and sends it.
func (w *world) ask(id uint64, head []byte, serve func()) {
	_, h, err := catalog.DecodeHead(head)
	if err != nil {
		w.t.Fatal(err)
	}
	kept := w.disk.kept
	switch {
	case w.open != 0:
		w.t.Fatalf("request %d is made while %d is open", id, w.open)
	case h.Version > kept.Mark.Version:
		w.t.Fatalf("version %d is fetched, and the mark is at %d", h.Version, kept.Mark.Version)
	case refuses(kept.Verdict.Type) && h.Version == kept.Verdict.Version:
		w.t.Fatalf("version %d is fetched, which the host has refused", h.Version)
	case !w.failedAt.IsZero() && w.now.Sub(w.failedAt) < backoffMin:
		w.t.Fatalf("a request is made %s after one that failed", w.now.Sub(w.failedAt))
	}
	w.open = id
	w.requests++
	run := w.run
	w.later(50*time.Millisecond+w.slow, func() {
		if w.run == run && w.machine != nil {
			serve()
		}
	})
}

func (w *world) source(number int) *server {
	if number == 1 {
		return w.liar
	}
	return w.server
}

// reach brings an event to the host of this run, unless something happens to it.
func (w *world) reach(id uint64, after time.Duration, e Event, ends bool) {
	run := w.run
	w.later(after, func() {
		if w.machine == nil || w.run != run {
			return
		}
		if _, failed := e.(Failed); failed && w.open == id {
			w.failedAt = w.now
		}
		if ends && w.open == id {
			w.open = 0
		}
		w.feed(e)
	})
}

func (w *world) broken(id uint64) {
	w.reach(id, 5*time.Second, Failed{ID: id, Err: errors.New("connection reset")}, true)
}

func (w *world) sync(e Sync) {
	w.cursors = append(w.cursors, e.Request.Cursor)
	parts, err := w.source(e.Source).sync(e.Request)
	if w.spoiled != nil {
		parts = w.spoiled(parts)
	}
	if err != nil {
		w.broken(e.ID)
		return
	}
	cut := len(parts)
	if len(w.cuts) > 0 {
		cut, w.cuts = min(w.cuts[0], len(parts)), w.cuts[1:]
	}
	// The parts of one answer come in order.
	at := w.now
	for _, p := range parts[:cut] {
		w.now = w.now.Add(time.Duration(w.random.Int64N(int64(20 * time.Millisecond))))
		w.reach(e.ID, 0, PartCame{ID: e.ID, Part: p, Aside: w.aside}, p.Last)
	}
	if cut < len(parts) || cut > 0 && !parts[cut-1].Last { // one that floods goes on where it was broken off
		w.broken(e.ID)
	}
	w.now = at
}

func (w *world) nodes(e Nodes) {
	reply, err := w.source(e.Source).nodes(e.Request)
	if err != nil {
		w.broken(e.ID)
		return
	}
	w.reach(e.ID, 50*time.Millisecond, NodesCame{ID: e.ID, Reply: reply}, true)
}

// say sends a head to the host, as a watch does.
func (w *world) say(head []byte) {
	w.later(200*time.Millisecond, func() {
		if w.machine != nil {
			w.feed(HeadCame{Signed: head})
		}
	})
}

// until runs the world until a time.
func (w *world) until(end time.Time) {
	for steps := 0; ; steps++ {
		if steps > 1_000_000 {
			w.t.Fatal("it does not come to rest")
		}
		at, tick := end, false
		if len(w.queue) > 0 && w.queue[0].at.Before(at) {
			at = w.queue[0].at
		}
		if w.machine != nil {
			if wake, due := w.machine.Wake(); due && wake.Before(at) {
				at, tick = wake, true
			}
		}
		if at.After(w.now) {
			w.now = at
		}
		switch {
		case tick:
			before := w.requests
			w.feed(Ticked{})
			if w.machine == nil || w.requests > before {
				continue
			}
			if wake, due := w.machine.Wake(); due && !wake.After(w.now) {
				w.t.Fatalf("the machine wants to be woken at %s, and it is %s", wake, w.now)
			}
		case at.Equal(end):
			return
		default:
			heap.Pop(&w.queue).(delivery).run()
		}
	}
}

func (w *world) pass(d time.Duration) { w.until(w.now.Add(d)) }

// liarKnows gives the lying source all that there is to know.
func (w *world) liarKnows() {
	if w.liar != nil {
		w.liar.lists, w.liar.known, w.liar.history, w.liar.orders = w.server.lists, w.server.known, w.server.history, w.server.orders
	}
}
