package workloads

import (
	"container/heap"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// Bounds of a run. All times are of the world.
const (
	// nodesDefault is the fleet of `make test`.
	nodesDefault = 50
	// badTime is how long things go wrong: several times what it takes to give a node up, and to put an instance in the place of another one.
	badTime = 16 * time.Minute
	// healTime is until when everything has to be as declared, once nothing goes wrong any more: a node that has come and gone often counts as there after
	// five minutes, a task that has ended often is begun again after as many, and a rollout that gets nowhere is given up after three.
	healTime = 30 * time.Minute
	// restTime is how long nobody may write anything then.
	restTime = 5 * time.Minute
	// stepsMax is ten times what a run takes for each node: who does not come to rest is in a loop.
	stepsMax = 40_000
)

// epochOfWorld is when every world begins.
var epochOfWorld = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

// Options say which world to run.
type Options struct {
	Seed uint64
	// Nodes is how many hosts there are. Default 50.
	Nodes int
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
	Seen    map[string]int // how often each thing has happened
}

// Run runs one world to its end, or to the first invariant that is broken.
func Run(o Options) (r Result) {
	if o.Nodes == 0 {
		o.Nodes = nodesDefault
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
	ctx    context.Context
	random *rand.Rand
	now    time.Time // in truth: no machine knows it
	queue  deliveries
	order  int
	steps  int
	trace  trace
	seen   map[string]int

	store   *store
	servers []*server
	relays  []*relay
	hosts   []*host
	byName  map[string]*host
	byUID   map[string]*host
	truth   truth
	folk    people
	conns   uint64 // opened so far
	caught  any    // what was found to be broken by a write
	weather
}

// weather is what is so for all of a world.
type weather struct {
	crowd  int     // how many hosts the servers have, as far as it matters to how often each is to report
	faults float64 // how likely each thing is that may go wrong of itself; 0 once the world has healed
	healed bool
	calm   time.Time // since when all hosts have been heard for long; zero: they are not yet
}

func newWorld(o Options) *world {
	w := &world{ctx: context.Background(), random: rand.New(rand.NewPCG(o.Seed, 0x776f726b)), now: epochOfWorld, trace: newTrace(o.Trace), seen: map[string]int{}, byName: map[string]*host{}, byUID: map[string]*host{}}
	w.truth, w.crowd = newTruth(), one(w, []int{o.Nodes, o.Nodes, 4000, 10_000})
	w.store = newStore(w)
	for i := range 3 {
		w.servers = append(w.servers, newServer(w, fmt.Sprint("server-", i+1)))
	}
	for i := range o.Nodes {
		w.hosts = append(w.hosts, newHost(w, fmt.Sprintf("n%03d", i+1)))
	}
	for i := range relays {
		w.relays = append(w.relays, newRelay(w, fmt.Sprint("relay-", i+1)))
	}
	return w
}

// live is the life of a world: it begins, goes wrong, heals, and comes to rest.
func (w *world) live() {
	w.faults = 0.005 + 0.02*w.random.Float64()
	w.say("the world begins: %d nodes of %d, faults %.3f", len(w.hosts), w.crowd, w.faults)
	w.begin()
	w.until(w.now.Add(badTime))
	w.heal()
	w.until(w.now.Add(healTime))
	w.settled()
	writes := w.store.writes
	w.until(w.now.Add(restTime))
	if w.store.writes != writes {
		w.broken("I9", "%d writes in a quiet world", w.store.writes-writes)
	}
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
		if w.steps++; w.steps > stepsMax*(len(w.hosts)+nodesDefault) {
			w.broken("I9", "the world does not come to rest")
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

// between draws a time from one bound to another.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + w.within(most-least)
}

// one draws one of some.
func one[T any](w *world, of []T) T { return of[w.random.IntN(len(of))] }

// say adds a line to the trace.
func (w *world) say(format string, args ...any) {
	w.trace.add(w.now.Sub(epochOfWorld), format, args...)
}

// did counts something that has happened.
func (w *world) did(what string) { w.seen[what]++ }

// broken ends the run: an invariant does not hold.
func (w *world) broken(which, format string, args ...any) {
	panic(fmt.Sprintf("%s: %s (after %s)", which, fmt.Sprintf(format, args...), w.now.Sub(epochOfWorld)))
}
