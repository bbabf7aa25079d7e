package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 100

// number reads a number from the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

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

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// agent is one that is really there.
type agent struct {
	id      string
	starts  uint64
	number  uint64
	conn    uint64 // 0: none
	next    time.Time
	hung    bool
	cut     time.Time // the link is down since; zero: it is up
	unasked time.Time // when the next heartbeat is due
	quiet   time.Time // heartbeats before are not answered
}

// event is something that reaches the leader later.
type event struct {
	at time.Time
	do func()
}

// world is one node, with one agent or two that have its identity.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Time
	agents  []*agent
	life    Life
	view    View
	conns   uint64
	version uint64
	pending []event
	stores  []time.Time
	missed  int // heartbeats that no agent will answer, since the last answer arrived
	last    Decision
	copied  bool // there are two agents, or were
	many    bool // there are so many nodes that agents are asked to be silent
}

func newWorld(t *testing.T, rng *rand.Rand, agents int) *world {
	w := &world{t: t, rng: rng, now: start, version: 1, many: rng.IntN(2) == 0}
	w.view = View{Began: start, Created: start.Add(-time.Hour)}
	for range agents {
		w.agents = append(w.agents, &agent{id: fmt.Sprint(rng.Uint64()), starts: 1})
	}
	return w
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func (w *world) seconds(n int) time.Duration {
	return time.Duration(w.rng.IntN(n*1000)) * time.Millisecond
}

func (w *world) after(d time.Duration, do func()) {
	w.pending = append(w.pending, event{w.now.Add(d), do})
}

// report is on its way for up to five seconds, and may arrive twice. Nothing of it arrives after another leader began.
func (w *world) report(a *agent) {
	a.number++
	r := Report{Session: Session{a.id, a.starts}, Number: a.number, Conn: a.conn,
		Have: catalog.Mark{Epoch: 1, Version: w.version, Expires: w.now.Add(24 * time.Hour).Unix()}}
	began := w.view.Began
	for range 1 + w.rng.IntN(2) {
		w.after(w.seconds(5), func() {
			if began == w.view.Began {
				w.life.Heard(r, w.now)
				w.missed = 0
				if w.many {
					w.spare(a, r.Conn)
				}
			}
		})
	}
}

// spare asks an agent to be silent for a while; it is told that later than it is noted here, or never.
func (w *world) spare(a *agent, conn uint64) {
	least, most := Quiet(9000)
	until := w.now.Add(least + time.Duration(w.rng.Int64N(int64(most-least))))
	w.life.Spared(until)
	if a.conn == conn && !w.oneIn(5) {
		a.quiet = until
	}
}

// hangUp ends the connection of an agent; the leader learns it at once, or when TCP keepalive gives up.
func (w *world) hangUp(a *agent, dead bool) {
	conn := a.conn
	a.conn = 0
	if dead {
		w.after(12*time.Second, func() { w.life.Closed(conn, true, w.now) })
	} else {
		w.life.Closed(conn, false, w.now)
	}
}

// standStill has the relay or server of an agent stand still, and the agent go elsewhere. What was on its way is told later: over the same connection, or
// that is told anew under another number with the last report over it, as one that has just begun, until it is noticed that it is over.
func (w *world) standStill(a *agent) {
	if a.conn == 0 {
		return
	}
	kept := Report{Session: Session{a.id, a.starts}, Number: a.number, Conn: a.conn, Have: catalog.Mark{Epoch: 1, Version: w.version}}
	stuck := kept
	a.number++
	stuck.Number = a.number
	a.conn, a.next = 0, w.now.Add(w.seconds(80))
	began, anew := w.view.Began, w.oneIn(2)
	tell := func(after time.Duration, do func()) {
		w.after(after, func() {
			if began == w.view.Began {
				do()
			}
		})
	}
	tell(w.seconds(150), func() {
		if anew {
			w.life.Closed(stuck.Conn, w.oneIn(2), w.now)
			w.conns++
			kept.Conn, stuck.Conn = w.conns, w.conns
			w.life.Opened(kept.Conn, "", w.now)
			w.life.Heard(kept, w.now)
		}
		tell(w.seconds(5), func() { w.life.Heard(stuck, w.now) })
		tell(5*time.Second+w.seconds(10), func() { w.life.Closed(stuck.Conn, w.oneIn(2), w.now) })
	})
}

// run lets an agent do what is due.
func (w *world) run(a *agent) {
	switch {
	case !a.cut.IsZero() || a.hung && a.conn == 0:
	case a.conn == 0 && !w.now.Before(a.next):
		w.conns++
		a.conn, a.unasked, a.quiet = w.conns, w.now.Add(45*time.Second), time.Time{}
		w.life.Opened(a.conn, "", w.now)
		w.report(a)
	case a.conn != 0 && !w.now.Before(a.unasked):
		a.unasked = w.now.Add(30*time.Second + w.seconds(30))
		w.life.Asked(a.conn, w.now)
		if a.quiet.After(w.now) {
			break
		}
		w.missed++
		if !a.hung {
			w.report(a)
		}
	}
}

// happen is what goes wrong, or is put right.
func (w *world) happen() {
	a := w.agents[w.rng.IntN(len(w.agents))]
	switch w.rng.IntN(9) {
	case 0:
		if a.cut.IsZero() && a.conn != 0 {
			w.hangUp(a, true)
			a.cut = w.now
		}
	case 1, 2:
		a.cut, a.hung = time.Time{}, false
	case 3:
		if a.conn != 0 {
			w.hangUp(a, w.oneIn(2))
		}
		a.id, a.starts, a.number, a.hung = fmt.Sprint(w.rng.Uint64()), a.starts+1, 0, false
	case 4:
		a.hung = true
	case 5:
		w.version++
	case 6:
		if w.oneIn(4) {
			w.lead()
		}
	case 7:
		if a.conn != 0 {
			w.hangUp(a, false)
			a.next = w.now.Add(w.seconds(2))
		}
	case 8:
		w.standStill(a)
	}
}

// lead is another leader: it has heard nobody, and everybody comes back within the longest back-off.
func (w *world) lead() {
	w.life, w.view.Began, w.pending, w.missed = Life{}, w.now, nil, 0
	for _, a := range w.agents {
		a.conn, a.next = 0, w.now.Add(w.seconds(60))
	}
}

// step lets some time pass.
func (w *world) step() {
	w.now = w.now.Add(w.seconds(3))
	due := []event{}
	w.pending = slices.DeleteFunc(w.pending, func(e event) bool {
		if e.at.After(w.now) {
			return false
		}
		due = append(due, e)
		return true
	})
	w.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, e := range due {
		e.do()
	}
	for _, a := range w.agents {
		w.run(a)
	}
	w.decide()
}

func (w *world) decide() {
	was := w.view
	var d Decision
	w.life, d = Decide(w.life, w.view, w.now)
	shown := w.last.Presence
	w.last = d
	switch {
	case d.Presence == Unheard && len(was.Was) > 0 && (d.Store || !reflect.DeepEqual(d.Conditions, was.Was)):
		w.t.Fatalf("unheard, and %+v becomes %+v", was.Was, d.Conditions)
	case compareMarks(d.High, was.High) < 0:
		w.t.Fatalf("the highest mark goes from %+v to %+v", was.High, d.High)
	case d.Presence == Silent && shown != Silent && !w.copied && w.missed < 2:
		w.t.Fatalf("silent with %d heartbeats unanswered", w.missed)
	case !w.copied && (!d.Believed || conditionOf(d.Conditions, Cloned).Status == True):
		w.t.Fatalf("one agent is called cloned: %+v", d)
	}
	if d.Store {
		w.view.Was, w.view.High = d.Conditions, d.High
		if conditionOf(d.Conditions, Ready).Status != conditionOf(was.Was, Ready).Status {
			w.stores = append(w.stores, w.now)
		}
	}
	// Nothing changes by itself before WakeAt.
	before := w.now.Add(time.Hour)
	if !d.WakeAt.IsZero() {
		before = d.WakeAt.Add(-1)
	}
	if _, idle := Decide(w.life, w.view, before); idle.Store || idle.Presence != d.Presence {
		w.t.Fatalf("at %v it is %+v, at %v, without anything having happened, %+v", w.now, d, before, idle)
	}
}

// heal puts everything right, and then it must be ready and quiet.
func (w *world) heal() {
	for _, a := range w.agents {
		a.cut, a.hung = time.Time{}, false
	}
	for range 1000 {
		w.step()
	}
	ready, before := conditionOf(w.last.Conditions, Ready), len(w.stores)
	if ready.Status != True || w.last.Presence != Here || w.last.Cordon {
		w.t.Fatalf("all is well, and it is %+v", w.last)
	}
	if a := w.agents[0]; len(w.agents) == 1 && a.conn != w.life.line.conn {
		w.t.Fatalf("all is well over connection %d, and %d counts", a.conn, w.life.line.conn)
	}
	for range 200 {
		if w.step(); w.last.Store {
			w.t.Fatalf("all is well, and it is stored again: %+v", w.last)
		}
	}
	if len(w.stores) != before {
		w.t.Fatal("Ready changes though all is well")
	}
}

// storesMax is how often Ready may change in ten minutes: eight returns and losses, as hold says, and two for each new leader.
const storesMax = 2*8 + 6

func TestSimulationOfOneAgent(t *testing.T) {
	changes, presences := 0, map[Presence]int{}
	seeds(t, func(t *testing.T, rng *rand.Rand) {
		w := newWorld(t, rng, 1)
		trouble := 3 + rng.IntN(60)
		for range 1500 {
			if w.oneIn(trouble) {
				w.happen()
			}
			w.step()
			presences[w.last.Presence]++
		}
		for i := range w.stores {
			if i >= storesMax && w.stores[i].Sub(w.stores[i-storesMax]) < 10*time.Minute {
				t.Fatalf("Ready changes %d times within ten minutes", storesMax+1)
			}
		}
		changes += len(w.stores)
		w.heal()
	})
	if len(presences) < 4 && number("TAKO_SEED", 0) == 0 {
		t.Errorf("the simulations have seen %v", presences)
	}
	t.Logf("Ready changed %d times; presences %v", changes, presences)
}

func TestSimulationOfACopy(t *testing.T) {
	seeds(t, func(t *testing.T, rng *rand.Rand) {
		w := newWorld(t, rng, 2)
		w.copied = true
		w.agents[1].starts += uint64(rng.IntN(3))
		w.agents[1].next = start.Add(w.seconds(600))
		if w.oneIn(3) { // a copy of the memory: the very same session
			w.agents[1].id, w.agents[1].starts = w.agents[0].id, w.agents[0].starts
		}
		for w.agents[1].conn == 0 {
			w.step()
		}
		both, most := w.now, 3*time.Minute
		if w.many {
			most += 2 * quietMax
		}
		for w.last.Believed {
			if w.step(); w.now.Sub(both) > most {
				t.Fatalf("two agents for %s, and it is %+v", w.now.Sub(both), w.last)
			}
		}
		if ready := conditionOf(w.last.Conditions, Ready); ready.Status != False || !w.last.Cordon {
			t.Fatalf("cloned, and %+v", w.last)
		}
		for range 200 { // it stays so as long as both are there, under another leader too
			if w.oneIn(100) {
				w.lead()
			}
			if w.step(); w.last.Believed {
				t.Fatalf("two agents, and it is %+v", w.last)
			}
		}
		// The copy is switched off.
		w.hangUp(w.agents[1], true)
		w.agents = w.agents[:1]
		w.heal()
	})
}
