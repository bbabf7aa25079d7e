package core

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/run"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 60

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// process is one attempt in the runtime of the world.
type process struct {
	status  run.Status
	deaf    bool       // it does not end by the stop signal
	dies    run.Moment // by itself
	well    bool       // with exit code 0
	up      run.Moment // it answers yes from then on
	sick    run.Moment // and no again from then on
	stopped bool
}

func (p *process) alive() bool { return p.status.Phase != run.Ended }

// later is something that is on its way to the agent.
type later struct {
	at run.Moment
	e  Event
}

// agent is what is killed, and its disk.
type agent struct {
	up      bool // it is there
	state   State
	disk    []byte
	older   [][]byte // what the disk had before
	faulty  bool     // the disk may come back as an older one
	coming  []later
	lives   int
	actions int
}

// world is one task, its runtime, and an agent that is killed again and again.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	config Config
	now    Now
	boots  int

	procs   map[uint32]*process
	removed uint32 // the newest attempt that was removed

	agent

	stop     bool // wanted
	leased   run.Moment
	stopSent map[uint32]run.Moment
	floor    time.Duration // the least pause before the next start
	free     run.Moment    // no start before it
	healed   bool          // nothing goes wrong any more
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{t: t, rng: rng, procs: map[uint32]*process{}, stopSent: map[uint32]run.Moment{}}
	w.now = Now{Boot: "boot-0", At: run.Moment(time.Hour)}
	w.config = Config{
		Policy:  []workload.RestartPolicy{workload.RestartAlways, workload.RestartAlways, workload.RestartOnFailure, workload.RestartNever}[rng.IntN(4)],
		Backoff: time.Second, BackoffMax: time.Minute, ResetAfter: 3 * time.Minute, StopSignal: 15, Grace: w.seconds(40),
	}
	for k := range w.config.Probes {
		if rng.IntN(2) == 0 {
			w.config.Probes[k] = &Probe{Delay: w.seconds(5), Period: time.Second + w.seconds(10), Timeout: time.Second, Yes: 1 + rng.IntN(3), No: 1 + rng.IntN(4)}
		}
	}
	w.faulty = rng.IntN(3) == 0
	return w
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }
func (w *world) seconds(n int) time.Duration {
	return time.Duration(w.rng.IntN(n*1000)) * time.Millisecond
}
func (w *world) in(d time.Duration) run.Moment {
	return w.now.At.Add(d)
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("at %v of %s, %+v: %s", time.Duration(w.now.At), w.now.Boot, w.state, fmt.Sprintf(format, args...))
}

// tell sends an event to the agent, perhaps late, perhaps twice.
func (w *world) tell(e Event, late time.Duration) {
	for range 1 + w.rng.IntN(2) {
		w.coming = append(w.coming, later{w.in(time.Duration(w.rng.Int64N(int64(late) + 1))), e})
	}
}

// die ends a process, and makes sure that the next one keeps its distance.
func (w *world) die(p *process, e run.Ending) {
	p.status.Phase, e.At = run.Ended, w.now.At
	p.status.Ending = e
	w.tell(Changed{p.status}, 2*time.Second)
	switch {
	case w.config.Leased: // perhaps because of that, which is no fault of its own
		return
	case e.At.Sub(p.status.Started) >= w.config.ResetAfter || w.floor == 0:
		w.floor = w.config.Backoff
	default:
		w.floor = min(2*w.floor, w.config.BackoffMax)
	}
	w.free = w.in(w.floor)
}

// carry does one effect, as a runtime would.
func (w *world) carry(e Effect) {
	p := w.procs[e.Attempt]
	switch e.Action {
	case StartIt:
		w.starts(e.Attempt)
	case StopIt:
		if p != nil && p.alive() && !p.stopped {
			p.stopped = true
			if !p.deaf {
				p.dies = min(p.dies, w.in(w.seconds(10)))
			}
		}
	case KillIt:
		if p != nil && p.alive() {
			if at, asked := w.stopSent[e.Attempt]; !w.faulty && (!asked || w.now.At < at.Add(w.config.Grace)) {
				w.fatalf("attempt %d is killed before its grace is over", e.Attempt)
			}
			w.die(p, run.Ending{Cause: run.Signaled, Signal: 9})
		}
	case RemoveIt:
		if p != nil && p.alive() {
			w.fatalf("attempt %d is removed and runs", e.Attempt)
		}
		delete(w.procs, e.Attempt)
		w.removed = max(w.removed, e.Attempt)
	case Ask:
		if p == nil || !p.alive() {
			return
		}
		if e.Probe == Liveness && !w.state.StartUp {
			w.fatalf("liveness is asked before it has started up")
		}
		yes := w.now.At >= p.up && (w.now.At < p.sick || e.Probe == Startup)
		if w.healed || !w.oneIn(15) {
			late := 1500 * time.Millisecond // and so perhaps too late
			if w.healed {
				late /= 3
			}
			w.tell(Answered{e.Probe, e.Attempt, e.Number, yes}, late)
		}
	}
}

func (w *world) starts(attempt uint32) {
	if w.procs[attempt] != nil {
		w.tell(Changed{w.procs[attempt].status}, time.Second)
		return
	}
	for n, p := range w.procs {
		if p.alive() {
			w.fatalf("attempt %d is started while %d runs", attempt, n)
		}
	}
	switch {
	case w.stop && w.state.Stopped:
		w.fatalf("attempt %d is started, and it was stopped for good", attempt)
	case !w.faulty && w.now.At < w.free:
		w.fatalf("attempt %d is started %v too early", attempt, w.free.Sub(w.now.At))
	case w.leased != 0 && w.now.At >= w.leased:
		w.fatalf("attempt %d is started without a lease", attempt)
	case !w.faulty && attempt <= w.removed:
		w.fatalf("attempt %d is started after it was removed", attempt)
	}
	p := &process{status: run.Status{ID: run.ID{Instance: "i", Task: "t", Attempt: attempt}, Phase: run.Running, Boot: w.now.Boot, PID: 7, Started: w.now.At}}
	p.deaf, p.well, p.up, p.dies, p.sick = w.oneIn(3), w.oneIn(3), w.in(w.seconds(20)), w.in(w.seconds(40)), 1<<62
	if w.oneIn(3) {
		p.dies = w.in(w.seconds(900))
	}
	if w.oneIn(3) {
		p.sick = w.in(w.seconds(120))
	}
	w.procs[attempt] = p
	if w.oneIn(10) && !w.healed {
		p.status.PID, p.status.Started = 0, 0
		w.die(p, run.Ending{Cause: run.NotExecuted, Words: "no such file"})
		return
	}
	w.tell(Changed{p.status}, time.Second)
}

// step gives the agent an event, and kills it somewhere on the way.
func (w *world) step(e Event) {
	before := w.state
	next, effects := Step(&w.config, before, e, w.now)
	again, same := Step(&w.config, before, e, w.now)
	if !reflect.DeepEqual(next, again) || !slices.Equal(effects, same) {
		w.fatalf("the same step came to something else")
	}
	w.state = next
	w.check(&before)
	if next.Phase == Stopping && (before.Phase != Stopping || before.Attempt != next.Attempt) {
		if _, asked := w.stopSent[next.Attempt]; !asked {
			w.stopSent[next.Attempt] = w.now.At
		}
	}
	if !reflect.DeepEqual(before.Kept(), next.Kept()) {
		if w.crash(60) {
			return
		}
		w.older = append(w.older, w.disk)
		w.disk, _ = next.Encode()
	}
	for _, e := range effects {
		if w.crash(60) {
			return
		}
		w.actions++
		w.carry(e)
	}
	if w.crash(400) {
		return
	}
	if at, ok := WakeAt(&w.config, &w.state, w.now.At); ok && at <= w.now.At && w.state.Phase == before.Phase && e == nil && len(effects) == 0 {
		w.fatalf("it is to be stepped again at once, for ever")
	}
}

func (w *world) crash(oneIn int) bool {
	if w.healed || !w.oneIn(oneIn) {
		return false
	}
	w.up, w.coming = false, nil
	return true
}

// begin starts the agent: with what the disk has, or with an older copy of it, or with nothing.
func (w *world) begin() {
	w.up = true
	w.lives++
	disk := w.disk
	if w.faulty && !w.healed && len(w.older) > 0 {
		switch w.rng.IntN(4) {
		case 0:
			disk = w.older[w.rng.IntN(len(w.older))]
		case 1:
			disk = nil
		}
	}
	rolledBack := !slices.Equal(disk, w.disk)
	w.state = State{}
	if disk != nil {
		s, err := Decode(disk)
		if err != nil {
			w.fatalf("decode: %v", err)
		}
		w.state = s
	}
	ready, attempt, ran := w.state.Ready, w.state.Attempt, w.state.Phase == Running
	w.step(Found{w.list()})
	if p := w.procs[attempt]; w.up && ran && !rolledBack && p != nil && p.alive() && p.status.Boot == w.now.Boot && w.state.Phase == Running && w.state.Ready != ready {
		w.fatalf("readiness was %v before the agent was restarted", ready)
	}
	// What people want is not of the disk alone: whoever drives this says it again.
	if w.stop && w.up {
		w.step(Stop{})
	}
	if w.leased != 0 && w.up {
		w.step(Leased{w.leased})
	}
}

func (w *world) list() (all []run.Status) {
	for _, p := range w.procs {
		all = append(all, p.status)
	}
	return all
}

// check looks at the invariants of a step.
func (w *world) check(before *State) {
	s := &w.state
	if err := s.valid(); err != nil {
		w.fatalf("%v", err)
	}
	b, err := s.Encode()
	if err != nil || len(b) > bytesMax {
		w.fatalf("%d bytes, %v", len(b), err)
	}
	if back, err := Decode(b); err != nil || !reflect.DeepEqual(back, s.Kept()) {
		w.fatalf("came back as %+v (%v)", back, err)
	}
	switch {
	case s.Attempt < before.Attempt:
		w.fatalf("attempts went back from %d", before.Attempt)
	case before.Phase == Finished && s.Attempt == before.Attempt && s.Phase != Finished:
		w.fatalf("what was finished is %v", s.Phase)
	case s.Why == Wanted && before.Why != Wanted && w.now.At < s.StopAt:
		w.fatalf("it is asked to end before its delay is over")
	case s.Why == NotAlive && before.Phase == Running && !before.StartUp:
		w.fatalf("liveness ended it before it had started up")
	case before.Stopped && !s.Stopped:
		w.fatalf("a stop was taken back")
	}
}

// runtime lets processes die of themselves.
func (w *world) runtime() {
	for _, n := range slices.Sorted(func(yield func(uint32) bool) {
		for n := range w.procs {
			if !yield(n) {
				return
			}
		}
	}) {
		p := w.procs[n]
		if p.alive() && w.now.At >= p.dies {
			e := run.Ending{Cause: run.Exited, Code: 1}
			if p.well {
				e.Code = 0
			}
			w.die(p, e)
		}
	}
}

func (w *world) reboot() {
	w.boots++
	w.now = Now{Boot: fmt.Sprintf("boot-%d", w.boots), At: run.Moment(w.seconds(60))}
	w.up, w.coming, w.floor, w.free, w.stopSent = false, nil, 0, 0, map[uint32]run.Moment{}
	if w.leased != 0 {
		w.leased = w.in(w.seconds(120))
	}
	for _, p := range w.procs {
		if p.alive() {
			p.status.Phase, p.status.Ending = run.Ended, run.Ending{Cause: run.Lost, Words: "the host was restarted"}
		}
	}
}

// tick is one quarter of a second.
func (w *world) tick() {
	w.now.At = w.in(250 * time.Millisecond)
	w.runtime()
	if !w.healed && w.oneIn(4000) {
		w.reboot()
	}
	if !w.up {
		if w.healed || w.oneIn(20) {
			w.begin()
		}
		return
	}
	if w.leased != 0 && w.oneIn(100) {
		w.leased = max(w.leased, w.in(w.seconds(60)))
		w.step(Leased{w.leased})
	}
	for i := 0; i < len(w.coming) && w.up; i++ {
		if c := w.coming[i]; c.at <= w.now.At {
			w.coming = slices.Delete(w.coming, i, i+1)
			i = -1
			w.step(c.e)
		}
	}
	if at, ok := WakeAt(&w.config, &w.state, w.now.At); w.up && ok && at <= w.now.At {
		w.step(nil)
	}
}

func TestSeeds(t *testing.T) {
	first, last := uint64(1), max(number("TAKO_SEEDS", simSeeds), simSeeds)
	if one := number("TAKO_SEED", 0); one != 0 {
		first, last = one, one
	}
	lives, actions, attempts := 0, 0, 0
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := simulate(t, rand.New(rand.NewPCG(seed, 82)))
			lives, actions, attempts = lives+w.lives, actions+w.actions, attempts+int(w.state.Attempt)
		}) {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
	t.Logf("%d agents, %d effects, %d attempts", lives, actions, attempts)
}

// simulate is a quarter of an hour or more of one task; then all is well, and it is either up and ready or over.
func simulate(t *testing.T, rng *rand.Rand) *world {
	w := newWorld(t, rng)
	if w.oneIn(4) {
		w.config.Leased, w.leased = true, w.in(time.Minute)
	}
	for range 2000 + rng.IntN(10000) {
		w.tick()
		if w.oneIn(20000) && w.up {
			w.stop = true
			if w.state.Phase == Running && w.oneIn(2) {
				w.state.StopAt = w.in(w.seconds(40))
			}
			w.step(Stop{})
		}
	}
	w.healed = true
	if w.leased != 0 {
		w.leased = 1 << 62
	}
	if w.oneIn(2) || w.stop {
		w.stop = true
		if w.up {
			w.step(Stop{})
		}
	}
	if w.leased != 0 && w.up {
		w.step(Leased{w.leased})
	}
	for range 4 * 300 {
		w.tick()
		if !w.stop { // from now on the task is well, too
			for _, p := range w.procs {
				p.dies, p.up, p.sick = 1<<62, 0, 1<<62
				if p.stopped {
					p.dies = w.now.At
				}
			}
		}
	}
	w.settled()
	return w
}

func (w *world) settled() {
	alive := 0
	for _, p := range w.procs {
		if p.alive() {
			alive++
		}
	}
	switch {
	case w.stop && (alive > 0 || w.state.Phase != Finished):
		w.fatalf("%d run long after it was stopped", alive)
	case w.stop || w.state.Phase == Finished:
	case alive != 1 || w.state.Phase != Running:
		w.fatalf("%d run, and all is well", alive)
	case !w.state.Ready && w.config.Probes[Startup] == nil:
		w.fatalf("it is not ready, and all is well")
	}
	if len(w.procs) > 3 {
		w.fatalf("%d attempts are left in the runtime", len(w.procs))
	}
}
