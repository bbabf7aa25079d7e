package sim

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"tako.dev/tako/internal/catalog"
)

// Bounds of a run. All times are of the world.
const (
	// agentsDefault is the fleet of `make test`.
	agentsDefault = 50
	// badTime is how long things go wrong: several heartbeats, and longer than any pause that is drawn before a minute.
	badTime = 6 * time.Minute
	// healTime is until when every host has to be where it should be, once nothing goes wrong any more: a source that was blamed is left alone for
	// ten minutes, what came wrong in all ways waits for up to two, a watch that is dead is given up after two and a half heartbeats, and the last
	// back-off may have been a minute.
	healTime = 16 * time.Minute
	// restTime is how long nobody may ask for anything then.
	restTime = 3 * time.Minute
	// stepsMax is many times what a run takes: who does not come to rest is in a loop.
	stepsMax = 20_000_000
)

// epochOfWorld is when every world begins. It lies behind the time at which any program was built, which heads are judged by too.
var epochOfWorld = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

// Options say which world to run.
type Options struct {
	Seed uint64
	// Agents is how many hosts there are. Default 50.
	Agents int
	// Trace takes each line as it is made. Default nobody does.
	Trace io.Writer
}

// Result is what has come of a run.
type Result struct {
	Seed    uint64
	Failure string   // the invariant that was broken, and how; empty: all held
	Stack   string   // where that was found
	Hash    string   // of all lines of the trace: two runs of one seed have the same
	Last    []string // the last lines of the trace
	Steps   int
	Seen    Seen
}

// Seen counts what has happened in a run, so that a test can tell whether anything has.
type Seen struct {
	Faults                                                               map[string]int
	Activated, Refused, Requests, Failed, Crashes, Tells, Alarms, Doubts int
	Trials, Removals, Notifications, Refreshes, Relayed, Kept, Expiries  int
}

// Run runs one world to its end, or to the first invariant that is broken.
func Run(o Options) (r Result) {
	if o.Agents == 0 {
		o.Agents = agentsDefault
	}
	w := newWorld(o)
	defer func() {
		if p := recover(); p != nil {
			r.Stack = string(debug.Stack())
			r.Failure = fmt.Sprint(p) // a broken invariant of this package, or of a core
			w.say("FAILED: %s", r.Failure)
		}
		r.Seed, r.Steps, r.Seen = o.Seed, w.steps, w.seen
		r.Hash, r.Last = w.trace.sum(), w.trace.lines()
	}()
	w.live()
	return r
}

// world is a fleet, and all that is around it.
type world struct {
	random *rand.Rand
	now    time.Time // in truth: no machine knows it
	queue  deliveries
	order  int
	steps  int
	trace  trace
	seen   Seen

	by      authority
	store   *store
	servers []*server
	relays  []*relay
	agents  []*agent
	net     network
	truth   truth
	folk    *people

	faults float64 // how likely each thing is that may go wrong of itself; 0 once the world has healed
	healed bool
	cloned bool // two machines have one identity
}

func newWorld(o Options) *world {
	w := &world{random: rand.New(rand.NewPCG(o.Seed, 0x7a6b6f)), now: epochOfWorld, trace: newTrace(o.Trace)}
	w.seen.Faults = map[string]int{}
	w.net, w.truth = newNetwork(), newTruth()
	w.by = newAuthority(o.Seed, w.now)
	w.store = newStore(w)
	for i := range 3 {
		w.servers = append(w.servers, newServer(w, fmt.Sprint("server-", i+1)))
	}
	for i := range 2 {
		w.relays = append(w.relays, newRelay(w, fmt.Sprint("relay-", i+1)))
	}
	for i := range o.Agents {
		w.agents = append(w.agents, newAgent(w, fmt.Sprint("host-", i+1), i))
	}
	return w
}

// live is the life of a world: it begins, goes wrong, heals, and comes to rest.
func (w *world) live() {
	w.faults = 0.02 + 0.2*w.random.Float64()
	w.say("the world begins: %d agents, faults %.3f", len(w.agents), w.faults)
	w.begin()
	w.until(w.now.Add(badTime))
	w.heal()
	w.until(w.now.Add(healTime))
	w.settled()
	w.until(w.now.Add(restTime))
	w.rested()
}

// delivery is something that is going to happen.
type delivery struct {
	at    time.Time
	order int // of what happens at one moment, what was sent first comes first
	run   func()
}

type deliveries []delivery

func (d deliveries) Len() int { return len(d) }
func (d deliveries) Less(i, j int) bool {
	return d[i].at.Before(d[j].at) || d[i].at.Equal(d[j].at) && d[i].order < d[j].order
}
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }

// Push is part of heap.Interface.
func (d *deliveries) Push(x any) { *d = append(*d, x.(delivery)) }

// Pop is part of heap.Interface.
func (d *deliveries) Pop() any {
	last := (*d)[len(*d)-1]
	(*d)[len(*d)-1] = delivery{}
	*d = (*d)[:len(*d)-1]
	return last
}

// after has something happen later.
func (w *world) after(d time.Duration, run func()) {
	w.order++
	heap.Push(&w.queue, delivery{at: w.now.Add(max(d, 0)), order: w.order, run: run})
}

// until lets the world go on to a time.
func (w *world) until(end time.Time) {
	for len(w.queue) > 0 && w.queue[0].at.Before(end) {
		next := heap.Pop(&w.queue).(delivery)
		w.now = next.at
		if w.steps++; w.steps > stepsMax {
			w.broken("T3", "the world does not come to rest")
		}
		next.run()
	}
	w.now = end
}

// chance draws whether something happens.
func (w *world) chance(p float64) bool { return p > 0 && w.random.Float64() < p }

// within draws a time up to a bound.
func (w *world) within(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most) + 1))
}

// one draws one of some.
func one[T any](w *world, of []T) T { return of[w.random.IntN(len(of))] }

// say adds a line to the trace.
func (w *world) say(format string, args ...any) {
	w.trace.add(w.now.Sub(epochOfWorld), format, args...)
}

// broken ends the run: an invariant does not hold.
func (w *world) broken(which, format string, args ...any) {
	panic(fmt.Sprintf("%s: %s (after %s)", which, fmt.Sprintf(format, args...), w.now.Sub(epochOfWorld)))
}

// short is a digest as people tell it from others.
func short(d catalog.Digest) string { return d.String()[:8] }
