package core

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 50

// number reads a number from the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

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
	faults  float64 // how likely each is
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

func (w *world) crash() {
	w.machine, w.open = nil, 0
	w.disk.crash(w.random)
	w.later(5*time.Second, w.boot)
}

// feed is what the client does.
func (w *world) feed(e Event) {
	for e != nil && w.machine != nil {
		effects := w.machine.Step(w.now, e)
		e = nil
		for i, effect := range effects {
			if w.chance(w.faults / 20) {
				w.crash()
				return
			}
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
		if w.chance(w.faults / 20) {
			w.crash()
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
	if err != nil || w.chance(w.faults) {
		w.broken(e.ID)
		return
	}
	cut := len(parts)
	if w.chance(w.faults) {
		cut = w.random.IntN(len(parts))
	}
	if len(w.cuts) > 0 {
		cut, w.cuts = min(w.cuts[0], len(parts)), w.cuts[1:]
	}
	// The parts of one answer come in order; what a broken line doubles comes again later.
	at := w.now
	for _, p := range parts[:cut] {
		w.now = w.now.Add(time.Duration(w.random.Int64N(int64(20 * time.Millisecond))))
		w.reach(e.ID, 0, PartCame{ID: e.ID, Part: p, Aside: w.aside}, p.Last)
		if w.chance(w.faults) {
			w.reach(e.ID, time.Second, PartCame{ID: e.ID, Part: p}, false)
		}
	}
	if cut < len(parts) || cut > 0 && !parts[cut-1].Last { // one that floods goes on where it was broken off
		w.broken(e.ID)
	}
	w.now = at
}

func (w *world) nodes(e Nodes) {
	reply, err := w.source(e.Source).nodes(e.Request)
	if err != nil || w.chance(w.faults) {
		w.broken(e.ID)
		return
	}
	if w.chance(w.faults) && len(reply.Items) > 0 {
		reply.Items[0] = nil
	}
	w.reach(e.ID, 50*time.Millisecond, NodesCame{ID: e.ID, Reply: reply}, true)
	if w.chance(w.faults) {
		w.reach(e.ID, time.Second, NodesCame{ID: e.ID, Reply: reply}, true)
	}
}

// say sends a head to the host, as a watch does.
func (w *world) say(head []byte) {
	for range 1 + w.times() {
		if w.chance(w.faults) {
			continue
		}
		w.later(200*time.Millisecond, func() {
			if w.machine != nil {
				w.feed(HeadCame{Signed: head})
			}
		})
	}
}

func (w *world) times() int {
	if w.chance(w.faults) {
		return w.random.IntN(5)
	}
	return 0
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

// edit is the next state of some layers.
func (w *world) edit(layers []layer) []layer {
	out := append([]layer(nil), layers...)
	if len(out) < 3 && w.chance(0.2) {
		return append(out, filled(fmt.Sprint("NodeConfig/x/", len(w.server.history)), w.random.IntN(150), "new"))
	}
	if len(out) > 1 && w.chance(0.1) {
		return out[1:]
	}
	i := w.random.IntN(len(out))
	for range 1 + w.random.IntN(30) {
		body := fmt.Sprint("body ", w.random.Uint32())
		if w.chance(0.3) {
			body = ""
		}
		out[i] = out[i].with(fmt.Sprint("claim", w.random.IntN(200)), body)
	}
	return out
}

// TestSim lets a host live through a bad hour, and wants it to have the newest state some minutes after the network has healed.
func TestSim(t *testing.T) {
	if seed := number("TAKO_SEED", 0); seed > 0 {
		simulate(t, seed)
		return
	}
	for seed := uint64(1); seed <= number("TAKO_SEEDS", simSeeds); seed++ {
		t.Run(fmt.Sprint("TAKO_SEED=", seed), func(t *testing.T) { simulate(t, seed) })
	}
}

func simulate(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	w.faults = w.random.Float64() * 0.3
	if w.chance(0.5) {
		w.liar = newServer(t, w.random)
		w.liar.lying, w.liar.floods = true, w.chance(0.5)
	}
	poison, most := map[uint64]bool{}, uint64(0)
	w.refuses = func(s State) wire.Verdict {
		if poison[s.Mark.Version] && s.Trying == "" || s.Trying != "" && w.told[s.rootOf(s.Trying)].Number%5 == 0 {
			return wire.Verdict{Type: wire.Rejected, Code: reason.PriorityConflict}
		}
		return wire.Verdict{Type: wire.Pending}
	}
	layers := []layer{filled("NodeConfig/x/base", w.random.IntN(300), "first")}
	w.server.publish(layers...)
	w.boot()
	for range 10 + w.random.IntN(30) {
		switch layers = w.edit(layers); {
		case w.chance(0.2) && len(w.server.history) > 1:
			layers = w.server.history[len(w.server.history)-2].layers // back to what was there before
		case w.chance(0.1):
			w.server.forget()
		}
		p := w.server.publish(layers...)
		poison[p.version] = w.chance(0.1)
		most = max(most, p.bytes)
		if w.chance(0.1) {
			p.bytes = 0 // and nobody is worse off
		}
		w.orders()
		w.liarKnows()
		w.say(w.server.head(p, w.now))
		w.mischief()
		w.pass(time.Duration(w.random.Int64N(int64(20 * time.Second))))
	}
	poison = nil // nothing is wrong with the last one
	w.server.publish(w.edit(layers)...)
	w.liarKnows()
	w.heal()
	if w.disk.most > most+bytesSlack {
		t.Errorf("%d bytes were staged, of states that have %d", w.disk.most, most)
	}
}

// liarKnows gives the lying source all that there is to know.
func (w *world) liarKnows() {
	if w.liar != nil {
		w.liar.lists, w.liar.known, w.liar.history, w.liar.orders = w.server.lists, w.server.known, w.server.history, w.server.orders
	}
}

// mischief sends heads that are not to be believed, and spoils the disk.
func (w *world) mischief() {
	old := w.server.history[w.random.IntN(len(w.server.history))]
	h := w.server.headOf(&old, w.now)
	if w.chance(w.faults) {
		w.say(w.server.sign(h))
	}
	if w.chance(w.faults) {
		h.Node = "web-2"
		w.say(w.server.sign(h))
	}
	if w.chance(w.faults) {
		forged := w.server.head(w.server.newest(), w.now)
		forged[w.random.IntN(len(forged))] ^= 0x40
		w.say(forged)
	}
	if w.chance(w.faults/4) && w.machine != nil && len(w.disk.layers) > 0 {
		roots := slices.SortedFunc(maps.Keys(w.disk.layers), func(a, b catalog.Digest) int { return bytes.Compare(a[:], b[:]) })
		for _, root := range roots { // found to be damaged by whoever reads it
			if w.chance(0.5) {
				delete(w.disk.layers, root)
			}
		}
		w.feed(Reread{})
	}
}

// heal ends all faults, and waits for the newest state.
func (w *world) heal() {
	w.faults = 0
	last := w.server.newest()
	for range 12 {
		w.say(w.server.head(last, w.now))
		w.pass(time.Minute)
	}
	if w.active.Root != last.root || w.active.Version != last.version {
		w.t.Fatalf("after healing the host has version %d, and the newest is %d: %+v", w.active.Version, last.version, w.machine.Status())
	}
	before := w.requests
	for range 10 {
		w.say(w.server.head(last, w.now))
		w.pass(time.Minute)
	}
	if w.requests != before {
		w.t.Errorf("%d requests are made for what the host has", w.requests-before)
	}
	if s := w.machine.Status(); s.Open || s.Have.Version != last.version {
		w.t.Errorf("it reports %+v", s)
	}
}
