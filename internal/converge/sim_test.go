package converge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 50

// TestSimulation lets engines live through random worlds and checks the invariants of the package comment after every step.
func TestSimulation(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		s, set := os.LookupEnv(name)
		if !set {
			return otherwise
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	first, last := uint64(1), number("TAKO_SEEDS", simSeeds)
	if one := number("TAKO_SEED", 0); one != 0 {
		first, last = one, one
	}
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { simulate(t, seed) }) {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
}

func simulate(t *testing.T, seed uint64) {
	s := newSim(t, rand.New(rand.NewPCG(seed, 0)))
	s.restart()
	for range 5 {
		for range 200 {
			s.disturb()
		}
		s.calmDown()
	}
}

// flight is an operation in flight, and what it will have found or done.
type flight struct {
	op      Op
	keys    []Key
	began   int // moment
	early   bool
	shut    []bool // for a refresh: it only asks
	took    bool
	results []Result
	targets [][]Key // for an apply: whom it must notify
	digests []Digest
}

// pulse is a window that is open for a while again and again.
type pulse struct{ every, open time.Duration }

func (p pulse) Open(now time.Time) (bool, time.Time) {
	into := time.Duration(now.UnixNano()) % p.every
	return into < p.open, now.Add(p.every - into)
}

// sim is a world, its driver and what must be true of both.
type sim struct {
	t      *testing.T
	rng    *rand.Rand
	e      *Engine
	opts   Options
	wall   time.Time     // what the clock shows
	mono   time.Duration // the time that has passed in truth
	due    time.Duration // on mono: when a Tick is asked for; 0 is never
	opens  time.Time     // on wall: when one is asked for, too
	free   bool          // windows do not count until nothing is due
	freed  map[Key]bool  // they do not for these
	moment int           // numbers what happens
	calm   bool

	actual  map[Key]Digest
	hidden  map[Key]bool // has drifted in a way that only a deep check finds
	missed  map[Key]bool // has drifted, and no event told
	told    map[ID]Report
	flights []*flight
	book    book
	check   audit
}

// book is what the driver has made durable.
type book struct {
	pending   map[uint64]Pending
	budgets   map[Key]Budget
	converged map[Key]Digest
}

// audit is what the invariants need to remember.
type audit struct {
	owed      map[Key]int // the moment of the last change that the target must be told of
	changes   map[Key]int // how many there were
	refreshes map[Key]int // how many succeeded
	upsets    int         // swaps and restarts: each may cost a target one refresh more
	noLook    map[Key]time.Duration
	noAct     map[Key]time.Duration
}

func newSim(t *testing.T, rng *rand.Rand) *sim {
	s := &sim{t: t, rng: rng, wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), actual: map[Key]Digest{}, hidden: map[Key]bool{}, missed: map[Key]bool{}, freed: map[Key]bool{}}
	s.book = book{pending: map[uint64]Pending{}, budgets: map[Key]Budget{}, converged: map[Key]Digest{}}
	s.check = audit{owed: map[Key]int{}, changes: map[Key]int{}, refreshes: map[Key]int{}}
	s.freeze()
	for i := range 3 {
		l := Lane{Name: fmt.Sprint(i), Parallel: 1 + rng.IntN(3), Batch: 1 + rng.IntN(3), Gather: rng.IntN(3) == 0}
		if rng.IntN(3) == 0 {
			l.Burst, l.Every = 1+rng.IntN(3), time.Duration(1+rng.IntN(20))*time.Second
		}
		s.opts.Lanes = append(s.opts.Lanes, l)
	}
	return s
}

// freeze forgets who must not be looked at or acted upon: the engine is allowed to start afresh.
func (s *sim) freeze() {
	s.check.noLook, s.check.noAct = map[Key]time.Duration{}, map[Key]time.Duration{}
}

func (s *sim) chance(percent int) bool { return s.rng.IntN(100) < percent }

// pulses are the windows that there are: of seconds, of minutes, and one that is seldom and short.
var pulses = []pulse{{10 * time.Second, 5 * time.Second}, {10 * time.Minute, time.Minute}, {time.Hour, 2 * time.Second}}

// graph draws a graph. Keys come from a small pool, so that swaps meet old acquaintances.
func (s *sim) graph() *Graph {
	var vs []Vertex
	for k := range 14 {
		if s.chance(70) {
			v := Vertex{Key: Key(fmt.Sprintf("k%d", k)), Title: fmt.Sprintf("k%d", k), Lane: fmt.Sprint(k % 3), NotApplicable: s.chance(6), Observe: s.chance(15)}
			v.Digest[0] = byte(1 + s.rng.IntN(2))
			if s.chance(30) {
				v.Window, v.Frozen = pulses[s.rng.IntN(len(pulses))], s.chance(50)
			}
			vs = append(vs, v)
		}
	}
	s.rng.Shuffle(len(vs), func(i, j int) { vs[i], vs[j] = vs[j], vs[i] })
	var es []Edge
	for to := range vs {
		for from := range to {
			if s.chance(20) {
				es = append(es, Edge{From: ID(from), To: ID(to), Kind: EdgeKind(s.rng.IntN(5))})
			}
		}
	}
	return s.made(vs, es)
}

func (s *sim) made(vs []Vertex, es []Edge) *Graph {
	g, cycles := NewGraph(vs, es)
	if cycles != nil {
		s.t.Fatalf("a graph without a cycle has %v", cycles)
	}
	return g
}

// another draws the graph that follows the present one: most often only a little of it is new, because then most of what is under way goes on.
func (s *sim) another() *Graph {
	was := s.e.Graph()
	if was.Len() == 0 || s.chance(40) {
		return s.graph()
	}
	vs, gone := slices.Clone(was.Vertices), None
	switch v := &vs[s.rng.IntN(len(vs))]; s.rng.IntN(6) {
	case 0:
		v.Digest[0] = 3 - v.Digest[0]
	case 1:
		v.NotApplicable = !v.NotApplicable
	case 2:
		v.Window, v.Frozen = pulses[s.rng.IntN(len(pulses))], s.chance(50)
	case 3:
		v.Window = nil
	case 4:
		gone = was.ID(v.Key)
	case 5: // the same once more
	}
	kept := make([]Vertex, 0, len(vs))
	now := make([]ID, len(vs))
	for i := range vs {
		if now[i] = None; ID(i) != gone {
			now[i] = ID(len(kept))
			kept = append(kept, vs[i])
		}
	}
	var es []Edge
	for i := range vs {
		for _, e := range was.Before(ID(i)) {
			if e.From != gone && e.To != gone && !s.chance(3) {
				es = append(es, Edge{From: now[e.From], To: now[e.To], Kind: e.Kind})
			}
		}
	}
	return s.made(kept, es)
}

// restart throws away the engine, if there is one, and makes another of what is durable.
func (s *sim) restart() {
	for _, f := range s.flights {
		if s.chance(50) {
			s.takeEffect(f)
		}
	}
	s.flights, s.free = nil, false
	clear(s.freed)
	g := s.graph()
	if s.e != nil && s.chance(70) {
		g = s.e.Graph()
	}
	r := Resume{Converged: maps.Clone(s.book.converged), Budgets: maps.Clone(s.book.budgets)}
	for _, seq := range slices.Sorted(maps.Keys(s.book.pending)) {
		r.Pending = append(r.Pending, s.book.pending[seq])
	}
	var err error
	if s.e, err = New(g, s.opts, s.rng, r); err != nil {
		s.t.Fatal(err)
	}
	s.adopt(g)
	s.step(Tick{})
}

// adopt keeps the books of the world for a new graph.
func (s *sim) adopt(g *Graph) {
	s.check.upsets++
	s.freeze()
	s.told = map[ID]Report{}
	gone := func(k Key) bool { id := g.ID(k); return id == None || g.Vertices[id].NotApplicable }
	maps.DeleteFunc(s.freed, func(k Key, _ bool) bool { return g.ID(k) == None })
	maps.DeleteFunc(s.check.owed, func(k Key, _ int) bool { return gone(k) })
	for _, f := range s.flights {
		for i := range f.targets {
			f.targets[i] = slices.DeleteFunc(f.targets[i], gone)
		}
	}
}

// disturb does one random thing.
func (s *sim) disturb() {
	s.pass(time.Duration(s.rng.ExpFloat64() * float64(400*time.Millisecond)))
	n := s.e.Graph().Len()
	switch p := s.rng.IntN(100); {
	case p < 50 && len(s.flights) > 0:
		if f := s.rng.IntN(len(s.flights)); s.chance(40) || !s.driftBefore(s.flights[f]) {
			s.land(f)
		}
	case p < 55 && !s.opens.IsZero():
		s.passTo(s.opens)
		s.step(Tick{})
	case p < 70 && s.due > 0:
		s.pass(max(s.due-s.mono, 0))
		s.step(Tick{})
	case p < 86 && n > 0:
		s.drift(ID(s.rng.IntN(n)))
	case p < 90:
		s.examine(Examine{Depth: Depth(s.rng.IntN(2))})
	case p < 93:
		s.adoptSwap(s.another())
	case p < 94:
		s.release(n)
	case p < 95:
		s.restart()
	case p < 97:
		// By years, or by minutes, which is another time of every window.
		s.wall = s.wall.Add(time.Duration(s.rng.IntN(3)-1)*5*365*24*time.Hour + time.Duration(s.rng.IntN(7200)-3600)*time.Second)
		s.freeze()
		s.step(Tick{})
	case p < 98 && n > 0:
		s.step(Unheld{IDs: []ID{ID(s.rng.IntN(n)), ID(s.rng.IntN(n))}})
	default:
		s.step(Tick{})
	}
}

// release lets all go on without their windows, or one of n.
func (s *sim) release(n int) {
	if n == 0 || s.chance(50) {
		s.free = true
		s.step(Release{})
		return
	}
	id := ID(s.rng.IntN(n))
	s.freed[s.e.Graph().Vertices[id].Key] = true
	s.step(Release{IDs: []ID{id}})
}

func (s *sim) adoptSwap(g *Graph) {
	s.adopt(g)
	out, err := s.e.Swap(s.wall, g)
	if err != nil {
		s.t.Fatal(err)
	}
	s.carryOut(out)
}

func (s *sim) drift(id ID) {
	k := s.e.Graph().Vertices[id].Key
	if s.chance(30) {
		s.actual[k] = Digest{byte(s.rng.IntN(4))} // or a cure
	} else if s.chance(20) {
		s.hidden[k] = true
	}
	if s.chance(5) {
		s.missed[k] = true
		return
	}
	delete(s.check.noLook, k)
	s.step(Touched{IDs: []ID{id}})
}

// driftBefore lets something drift that notifies what is being refreshed: a restart takes long, and the world goes on.
func (s *sim) driftBefore(f *flight) bool {
	g := s.e.Graph()
	id := g.ID(f.keys[0])
	if id == None || f.op.Verb != Refresh {
		return false
	}
	for _, e := range g.Before(id) {
		if from := g.Vertices[e.From]; e.Kind == Notify && !from.NotApplicable {
			s.actual[from.Key] = Digest{100}
			delete(s.check.noLook, from.Key)
			s.step(Touched{IDs: []ID{e.From}})
			return true
		}
	}
	return false
}

func (s *sim) examine(ev Examine) {
	clear(s.check.noLook)
	clear(s.missed)
	s.step(ev)
}

func (s *sim) pass(d time.Duration) {
	s.wall = s.wall.Add(d)
	s.mono += d
}

// passTo lets time pass until clocks show a time.
func (s *sim) passTo(at time.Time) { s.pass(max(at.Sub(s.wall), 0)) }

func (s *sim) step(ev Event) { s.carryOut(s.e.Step(s.wall, ev)) }

// carryOut is the driver: it makes durable, then starts.
func (s *sim) carryOut(out Effects) {
	s.moment++
	for _, r := range out.Persist {
		s.persist(r)
	}
	for i := range s.e.Graph().Vertices {
		if v := s.e.Graph().Vertices[i]; s.e.Proven(ID(i)) && s.chance(50) {
			s.book.converged[v.Key] = v.Digest
		}
	}
	for _, op := range out.Start {
		s.takeOff(op)
	}
	s.due, s.opens = 0, out.Opens
	if out.Wake > 0 {
		s.due = s.mono + out.Wake
	}
	if s.e.Quiet() {
		s.free = false
		clear(s.freed)
	}
	for _, r := range out.Reports {
		s.told[r.ID] = r
	}
	s.invariants()
}

func (s *sim) persist(r Record) {
	switch r.Kind {
	case NotificationAdded:
		if _, twice := s.book.pending[r.Seq]; twice {
			s.t.Fatalf("notification %d is recorded twice", r.Seq)
		}
		s.book.pending[r.Seq] = Pending{Seq: r.Seq, Target: r.Target, Source: r.Source}
	case NotificationCleared:
		if p, ok := s.book.pending[r.Seq]; !ok || p.Target != r.Target {
			s.t.Fatalf("notification %d of %s is cleared, recorded is %v", r.Seq, r.Target, p)
		}
		delete(s.book.pending, r.Seq)
	case BudgetSpent:
		s.book.budgets[r.Target] = r.Budget
	case BudgetCleared:
		delete(s.book.budgets, r.Target)
	}
}

// takeOff starts an operation and decides its fate.
func (s *sim) takeOff(op Op) {
	g := s.e.Graph()
	f := &flight{op: op, began: s.moment, early: s.chance(50), results: make([]Result, len(op.IDs))}
	for i, id := range op.IDs {
		k := g.Vertices[id].Key
		f.shut = op.Shut
		s.mayStart(op, id)
		s.withinWindow(op, i)
		f.keys = append(f.keys, k)
		f.digests = append(f.digests, g.Vertices[id].Digest)
		var targets []Key
		if op.Verb == Apply {
			for _, to := range g.Vertices {
				if slices.ContainsFunc(g.Before(g.ID(to.Key)), func(e Edge) bool { return e.Kind == Notify && e.From == id }) && !to.NotApplicable {
					targets = append(targets, to.Key)
				}
			}
		}
		f.targets = append(f.targets, targets)
		if !s.calm && s.chance(25) {
			f.results[i].Err = s.failure()
		}
	}
	s.flights = append(s.flights, f)
	if f.early {
		s.takeEffect(f)
	}
}

func (s *sim) failure() *reason.Error {
	after := time.Duration(s.rng.IntN(2)) * 3 * time.Second
	codes := []reason.Code{reason.DiskFull, reason.ConcurrentEdit, reason.OwnerNeedsRoot, reason.PackageLock, reason.ResourceHeld}
	return &reason.Error{Code: codes[s.rng.IntN(len(codes))], Doing: "try", After: after}
}

// takeEffect is the one moment in which an operation looks at the world or changes it.
func (s *sim) takeEffect(f *flight) {
	if f.took {
		return
	}
	f.took = true
	s.moment++
	for i, k := range f.keys {
		r, right := &f.results[i], s.actual[k] == f.digests[i]
		switch f.op.Verb {
		case Check:
			r.InSync = r.Err == nil && right && (f.op.Depth == Shallow || !s.hidden[k])
			r.Recognised = r.InSync && s.chance(50)
		case Apply:
			switch {
			case r.Err == nil:
				r.Changed = !right || s.hidden[k]
				s.actual[k], s.hidden[k] = f.digests[i], false
			case s.chance(30):
				r.Changed = true
				s.actual[k] = Digest{200} // half-way
			}
			for _, to := range f.targets[i] {
				if r.Changed {
					s.check.owed[to] = s.moment
					s.check.changes[to]++
				}
			}
		case Refresh:
			// Somebody else may have done it.
			if f.shut[i] {
				r.Owed = r.Err == nil && s.chance(80)
				continue
			}
			r.Changed = s.chance(50)
		}
	}
}

// land reports an operation.
func (s *sim) land(n int) {
	f := s.flights[n]
	s.takeEffect(f)
	s.flights = slices.Delete(s.flights, n, n+1)
	for i, k := range f.keys {
		id, r := s.e.Graph().ID(k), f.results[i]
		if f.op.Verb == Refresh && r.Err == nil && !r.Owed {
			s.check.refreshes[k]++
			if s.check.owed[k] < f.began {
				delete(s.check.owed, k)
			}
		}
		if id != None && s.e.states[id].phase != stale {
			s.noteRest(k, id, f, r)
		}
	}
	for i, k := range f.keys {
		if f.op.Verb == Apply && f.results[i].Changed {
			s.poke(s.e.Graph().ID(k), f.targets[i])
		}
	}
	s.step(Done{Token: f.op.Token, Results: f.results})
}

// poke notes that what comes after a change may be looked at.
func (s *sim) poke(id ID, targets []Key) {
	for _, k := range targets {
		delete(s.check.noLook, k)
	}
	if id != None {
		for _, a := range s.e.Graph().after(id) {
			delete(s.check.noLook, s.e.Graph().Vertices[a.to].Key)
		}
	}
}

// noteRest notes how long the back-off forbids to look at a vertex unasked, and to act upon it at all.
func (s *sim) noteRest(k Key, id ID, f *flight, r Result) {
	if r.Err == nil {
		if f.op.Verb != Check || r.InSync {
			delete(s.check.noAct, k)
		}
		return
	}
	if retry := r.Err.Entry().Retry; retry != reason.BackOff && retry != reason.Never {
		return
	}
	rest := s.mono + s.e.opts.BackOffMin/2
	if !s.e.states[id].again && !s.e.states[id].peek {
		s.check.noLook[k] = rest
	}
	if f.op.Verb != Check {
		s.check.noAct[k] = rest
	}
}

// withinWindow checks invariant 5 for a vertex of an operation that starts.
func (s *sim) withinWindow(op Op, i int) {
	v := s.e.Graph().Vertices[op.IDs[i]]
	open := true
	if v.Window != nil && !s.free && !s.freed[v.Key] {
		open, _ = v.Window.Open(s.wall)
	}
	switch {
	case op.Verb == Apply && v.Frozen && !open:
		s.t.Fatalf("%s is applied outside of its window %v at %v", v.Key, v.Window, s.wall)
	case op.Verb == Refresh && op.Shut[i] == open:
		s.t.Fatalf("%s is refreshed with shut %v, and its window %v is open: %v", v.Key, op.Shut[i], v.Window, open)
	}
}

// mayStart checks invariants 1, 2 and 4 for an operation that starts.
func (s *sim) mayStart(op Op, id ID) {
	g := s.e.Graph()
	k := g.Vertices[id].Key
	what := fmt.Sprintf("%v of %s starts", op.Verb, k)
	for _, f := range s.flights {
		if slices.Contains(f.keys, k) {
			s.t.Fatalf("%s while a %v of it is in flight", what, f.op.Verb)
		}
	}
	for _, e := range g.Before(id) {
		before := g.Vertices[e.From].Key
		for _, f := range s.flights {
			if slices.Contains(f.keys, before) {
				s.t.Fatalf("%s while a %v of %s, which it comes after, is in flight", what, f.op.Verb, before)
			}
		}
		if s.e.states[e.From].busy {
			s.t.Fatalf("%s before %s has settled", what, before)
		}
		needs := e.Kind.needs() && (op.Verb != Check || !s.e.Proven(id))
		if st := s.e.Status(e.From); needs && !st.Outcome.Converged() {
			s.t.Fatalf("%s while %s, which it requires, is %v", what, before, st.Outcome)
		}
	}
	if !s.wanted(id) {
		s.t.Fatalf("%s although nothing has failed that it is for", what)
	}
	if s.mono < s.check.noLook[k] {
		s.t.Fatalf("%s at %v, its back-off lasts until %v and nothing happened", what, s.mono, s.check.noLook[k])
	}
	if op.Verb != Check && s.mono < s.check.noAct[k] {
		s.t.Fatalf("%s at %v, its back-off lasts until %v", what, s.mono, s.check.noAct[k])
	}
}

// cure puts back what has drifted and is only watched, and tells so; false where there is none.
func (s *sim) cure() bool {
	g := s.e.Graph()
	var cured []ID
	for i, v := range g.Vertices {
		if s.e.Status(ID(i)).Detail != reason.Told {
			continue
		}
		if !v.Observe || s.actual[v.Key] == v.Digest && !s.hidden[v.Key] {
			s.t.Fatalf("%s is said to have drifted and to be only watched: %+v", v.Key, v)
		}
		s.actual[v.Key], s.hidden[v.Key] = v.Digest, false
		delete(s.check.noLook, v.Key)
		cured = append(cured, ID(i))
	}
	if cured == nil {
		return false
	}
	s.step(Touched{IDs: cured})
	return true
}

// wanted reports whether a vertex is for every case, or has a failure that it is for.
func (s *sim) wanted(id ID) bool {
	rescues := 0
	for _, e := range s.e.Graph().Before(id) {
		if e.Kind != Rescue {
			continue
		}
		if rescues++; s.e.Status(e.From).Outcome == reason.Failed {
			return true
		}
	}
	return rescues == 0
}

// invariants checks what must hold after every step.
func (s *sim) invariants() {
	for k := range s.check.owed {
		if !slices.ContainsFunc(slices.Collect(maps.Values(s.book.pending)), func(p Pending) bool { return p.Target == k }) {
			s.t.Fatalf("%s must be refreshed, and nothing durable says so", k)
		}
	}
	for _, l := range s.e.opts.Lanes {
		n := 0
		for _, f := range s.flights {
			if f.op.Lane == l.Name {
				n++
				if len(f.keys) > l.Batch {
					s.t.Fatalf("an operation of lane %s has %d vertices", l.Name, len(f.keys))
				}
			}
		}
		if n > l.Parallel {
			s.t.Fatalf("lane %s has %d operations in flight", l.Name, n)
		}
	}
	for i, v := range s.e.Graph().Vertices {
		if !s.wanted(ID(i)) {
			delete(s.check.noLook, v.Key) // the next call is an event
			delete(s.check.noAct, v.Key)
		}
		st := s.e.Status(ID(i))
		if r, told := s.told[ID(i)]; told && (r.Outcome != st.Outcome || r.Detail != st.Detail) {
			s.t.Fatalf("%s is %v %s, told was %v %s", v.Key, st.Outcome, st.Detail, r.Outcome, r.Detail)
		}
		if (st.Outcome == reason.Blocked) != (st.BlockedBy != None) {
			s.t.Fatalf("%s is %v by %d", s.e.Graph().Vertices[i].Key, st.Outcome, st.BlockedBy)
		}
		if st.BlockedBy != None && s.e.states[i].phase == idle && s.e.Status(st.BlockedBy).Outcome.Converged() && !s.e.states[i].busy {
			s.t.Fatalf("%s is blocked by %s, which is converged", s.e.Graph().Vertices[i].Key, s.e.Graph().Vertices[st.BlockedBy].Key)
		}
	}
}

// calmDown ends all trouble for a while and checks invariants 3 and 6.
func (s *sim) calmDown() {
	s.calm = true
	defer func() { s.calm = false }()
	for len(s.flights) > 0 {
		for _, f := range s.flights {
			for i := range f.results {
				if !f.took {
					f.results[i].Err = nil
				}
			}
		}
		s.land(0)
	}
	began, steps, g := s.mono, 0, s.e.Graph()
	// Nobody need look at what an event told of, and nothing comes back by itself from a failure for good.
	audit := Examine{IDs: []ID{}, Depth: Deep}
	for i, v := range g.Vertices {
		st := s.e.Status(ID(i))
		forGood := st.Outcome == reason.Failed && st.Err.Entry().Retry == reason.Never
		if forGood || s.missed[v.Key] || s.hidden[v.Key] {
			audit.IDs = append(audit.IDs, ID(i))
		}
	}
	s.examine(audit)
	for ; len(s.flights) > 0 || s.due > 0 || !s.opens.IsZero() || s.cure(); steps++ {
		if steps > 1000 || s.mono-began > 12*time.Hour {
			s.t.Fatalf("not quiet after %d steps and %v", steps, s.mono-began)
		}
		if len(s.flights) > 0 {
			s.pass(time.Duration(s.rng.IntN(1000)) * time.Millisecond)
			s.land(s.rng.IntN(len(s.flights)))
			continue
		}
		switch wait := max(s.opens.Sub(s.wall), 0); {
		case s.due > 0 && (s.opens.IsZero() || s.due-s.mono < wait):
			s.pass(max(s.due-s.mono, 0))
			s.step(Tick{})
		case !s.opens.IsZero():
			s.pass(wait)
			s.step(Tick{})
		}
	}
	if !s.e.Quiet() {
		s.t.Error("nothing is in flight or due, and the engine is not quiet")
	}
	for i, v := range g.Vertices {
		st := s.e.Status(ID(i))
		out := v.NotApplicable || !s.wanted(ID(i))
		if out != (st.Outcome == reason.NotApplicable) || !st.Outcome.Converged() {
			s.t.Errorf("%s ends %v: %v", v.Key, st.Outcome, st.Err)
		} else if !out && (s.actual[v.Key] != v.Digest || s.hidden[v.Key]) {
			s.t.Errorf("%s ends %v, and is not as desired", v.Key, st.Outcome)
		}
	}
	for k := range s.check.owed {
		if s.wanted(g.ID(k)) {
			s.t.Errorf("%s was never refreshed for its last change", k)
		}
	}
	for k, n := range s.check.refreshes {
		if allowed := s.check.changes[k] + s.check.upsets; n > allowed {
			s.t.Errorf("%s was refreshed %d times, %d would do", k, n, allowed)
		}
	}
	for _, p := range s.book.pending {
		if s.wanted(g.ID(p.Target)) {
			s.t.Errorf("left over: %v", p)
		}
	}
	for k, b := range s.book.budgets {
		if b.Attempts > 0 {
			s.t.Errorf("left over: %s has spent %+v", k, b)
		}
	}
}
