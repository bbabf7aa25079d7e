package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/scheduler/fit"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
	simSeeds = 20
	simSteps = 300
)

func TestSimulation(t *testing.T) {
	if text := os.Getenv("TAKO_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		simulate(t, seed)
		return
	}
	seeds := uint64(simSeeds)
	if n, err := strconv.ParseUint(os.Getenv("TAKO_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		if simulate(t, seed); t.Failed() {
			return
		}
	}
}

// simulate runs one seed: chaos, and then healing.
func simulate(t *testing.T, seed uint64) {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), disk: map[string][]byte{}, procs: map[run.ID]*proc{}, wanted: map[string]*Wanted{},
		told: map[string]wire.Instance{}, ports: map[string]map[string]int32{}, tainted: map[string]bool{}, over: map[string]bool{}, begun: map[string]string{}}
	w.now = Now{Boot: "boot-0", At: run.Moment(time.Hour), Wall: time.Unix(1_700_000_000, 0)}
	w.start()
	for range simSteps {
		w.chaos()
		if t.Failed() {
			return
		}
	}
	w.heal()
}

// proc is an attempt of the runtime that everything here has.
type proc struct {
	status  run.Status
	dies    run.Moment
	deaf    bool
	stopped bool
	up      run.Moment // it answers from then on
}

// world is a host: its disk, its runtime, its agent.
type world struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	now  Now

	disk    map[string][]byte
	procs   map[run.ID]*proc
	wanted  map[string]*Wanted
	made    int
	boots   int
	healing bool
	heard   run.Moment

	machine *Machine
	coming  []func() Event // what the agent is told soon; lost with it

	told    map[string]wire.Instance
	ports   map[string]map[string]int32
	tainted map[string]bool // its record was damaged, or its host restarted: what was told may begin anew
	over    map[string]bool
	begun   map[string]string // in which boot what has a lease was begun first
}

const simRuntime = workload.Process

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d at %v of %s: %s", w.seed, time.Duration(w.now.At), w.now.Boot, fmt.Sprintf(format, args...))
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }
func (w *world) within(seconds int) time.Duration {
	return time.Duration(w.rng.IntN(seconds*1000)) * time.Millisecond
}

var simNode = Node{Fit: fit.Node{Name: "n", Capacity: fit.Amounts{CPU: 4000, Memory: 8 << 30, Disk: 100 << 30},
	Devices: map[string][]string{"gpu": {"g0", "g1"}}, Runtimes: []workload.Runtime{simRuntime, fit.WithNetwork(simRuntime)}}, Runtimes: []workload.Runtime{simRuntime}}

// start is the agent's: it reads what is on the disk, and learns of the rest by and by.
func (w *world) start() {
	w.machine, w.coming = New(), nil
	w.step(simNode)
	var records []Record
	for _, uid := range slices.Sorted(maps.Keys(w.disk)) {
		r, err := DecodeRecord(uid, w.disk[uid])
		if err != nil {
			w.tainted[uid] = true
			delete(w.disk, uid)
			continue
		}
		records = append(records, r)
	}
	w.step(Restored{records})
	w.coming = append(w.coming, w.desired, w.list)
	if w.oneIn(2) {
		slices.Reverse(w.coming)
	}
}

func (w *world) desired() Event {
	var list []Wanted
	for _, uid := range slices.Sorted(maps.Keys(w.wanted)) {
		list = append(list, *w.wanted[uid])
	}
	return Desired{list}
}

func (w *world) list() Event {
	f := Found{Runtime: simRuntime}
	for _, id := range slices.SortedFunc(maps.Keys(w.procs), run.ID.Compare) {
		f.Attempts = append(f.Attempts, w.procs[id].status)
	}
	return f
}

// make is another instance that somebody wants.
func (w *world) make() {
	w.made++
	name := fmt.Sprintf("i%d", w.made)
	t := &workload.Template{Runtime: simRuntime, TerminationGrace: "5s", Restart: workload.Restart{BackoffMax: "20s"}}
	if w.oneIn(3) {
		t.ShutdownDelay = "4s"
	}
	if w.oneIn(12) {
		t.Runtime = workload.OCI // which is not here
	}
	if w.oneIn(4) {
		t.Network = workload.OwnNetwork
	}
	for k := range 1 + w.rng.IntN(2) {
		task := workload.Task{Name: fmt.Sprintf("t%d", k), Command: []string{"/bin/x"}}
		task.Resources.Requests.CPU = "400m"
		if w.oneIn(3) {
			task.Ports = append(task.Ports, workload.Port{Name: fmt.Sprintf("p%d", k)})
		}
		if w.oneIn(6) {
			task.Ports = append(task.Ports, workload.Port{Name: fmt.Sprintf("s%d", k), Port: int32(80 + w.rng.IntN(3) + 10*k)})
		}
		if w.oneIn(4) {
			task.Resources.Devices = []workload.Device{{Name: "gpu"}}
		}
		if w.oneIn(2) {
			task.Readiness = &workload.Probe{Period: "2s"}
		}
		t.Tasks = append(t.Tasks, task)
	}
	i := catalog.Instance{UID: fmt.Sprintf("u%03d", w.made), Namespace: "ns", Name: name, Workload: "w", Revision: "w-1", Job: w.oneIn(4)}
	if w.oneIn(4) {
		i.Lease = 30
	}
	w.wanted[i.UID] = &Wanted{Instance: i, Template: t}
}

// chaos does something.
func (w *world) chaos() {
	switch n := w.rng.IntN(100); {
	case n < 45:
		w.pass(w.within(4))
	case n < 75:
		w.deliver()
	case n < 80:
		if len(w.wanted) < 12 {
			w.make()
			w.coming = append(w.coming, w.desired)
		}
	case n < 85:
		if uid, ok := w.pick(); ok {
			switch w.rng.IntN(3) {
			case 0:
				delete(w.wanted, uid)
			case 1:
				one := *w.wanted[uid]
				one.Stop = true
				w.wanted[uid] = &one
			case 2: // the same template with another revision, and other probes
				one := *w.wanted[uid]
				t := one.Template.DeepCopy()
				t.Tasks[0].Readiness = nil
				one.Template, one.Revision = t, one.Revision+"x"
				w.wanted[uid] = &one
			}
			w.coming = append(w.coming, w.desired)
		}
	case n < 90:
		w.start()
	case n < 92:
		w.boot()
	case n < 94:
		w.damage()
	case n < 97:
		w.coming = append(w.coming, w.list) // the runtime was lost sight of
	default:
		w.heard = w.now.At
		w.now.Heard = w.now.At
		if w.machine.Hungry() {
			w.step(nil)
		}
	}
}

func (w *world) pick() (string, bool) {
	all := slices.Sorted(maps.Keys(w.wanted))
	if len(all) == 0 {
		return "", false
	}
	return all[w.rng.IntN(len(all))], true
}

// damage loses a record.
func (w *world) damage() {
	for _, uid := range slices.Sorted(maps.Keys(w.disk)) {
		if w.oneIn(4) {
			w.tainted[uid] = true
			if w.oneIn(2) {
				w.disk[uid] = w.disk[uid][:len(w.disk[uid])/2]
			} else {
				delete(w.disk, uid)
			}
			w.start()
			return
		}
	}
}

// boot starts the host anew.
func (w *world) boot() {
	w.boots++
	w.now.Boot, w.now.At, w.now.Heard = fmt.Sprintf("boot-%d", w.boots), run.Moment(time.Minute), 0
	for _, p := range w.procs {
		if p.status.Phase != run.Ended {
			p.status.Phase, p.status.Ending = run.Ended, run.Ending{Cause: run.Lost, At: w.now.At, Words: "the host was restarted"}
		}
		p.dies, p.up = 0, 0
	}
	w.start()
}

// pass lets time go by, in which processes end and the agent wakes.
func (w *world) pass(d time.Duration) {
	until := w.now.At.Add(d)
	for {
		next := until
		if at, ok := w.machine.WakeAt(); ok && at < next {
			next = max(at, w.now.At)
		}
		w.now.Wall = w.now.Wall.Add(next.Sub(w.now.At))
		if w.oneIn(50) {
			w.now.Wall = w.now.Wall.Add(-10 * time.Minute) // somebody sets the clock
		}
		w.now.At = next
		for _, id := range slices.SortedFunc(maps.Keys(w.procs), run.ID.Compare) {
			p := w.procs[id]
			if p.status.Phase != run.Ended && p.dies <= w.now.At {
				w.die(p, run.Ending{Cause: run.Exited, Code: w.rng.IntN(2)})
			}
		}
		if w.healing {
			w.drain()
		}
		if at, ok := w.machine.WakeAt(); !ok || at > until {
			if w.now.At >= until {
				return
			}
			continue
		}
		w.step(nil)
		if at, ok := w.machine.WakeAt(); ok && at <= w.now.At {
			w.step(nil)
			if again, ok := w.machine.WakeAt(); ok && again <= w.now.At {
				w.fatalf("it wants to be stepped for ever: %v", time.Duration(again))
			}
		}
	}
}

func (w *world) die(p *proc, e run.Ending) {
	e.At = w.now.At
	p.status.Phase, p.status.Ending = run.Ended, e
	s := p.status
	w.coming = append(w.coming, func() Event { return Changed{simRuntime, s} })
}

// deliver tells the agent something that was to come.
func (w *world) deliver() {
	if len(w.coming) > 0 {
		e := w.coming[0]
		w.coming = w.coming[1:]
		w.step(e())
	}
}

func (w *world) drain() {
	for len(w.coming) > 0 {
		w.deliver()
	}
}

// step steps the machine, and carries out what it wants; now and then it is killed on the way.
func (w *world) step(e Event) {
	effects := w.machine.Step(w.now, e)
	w.check()
	for _, f := range effects {
		if !w.healing && w.oneIn(150) {
			w.start()
			return
		}
		if s, ok := f.(Save); ok {
			if _, err := DecodeRecord(s.UID, s.Data); err != nil {
				w.fatalf("a record that cannot be read: %v", err)
			}
			w.disk[s.UID] = s.Data
			continue
		}
		w.carry(f)
	}
	w.check()
	w.checkTold() // what is told is told after it was saved
}

func (w *world) carry(f Effect) {
	switch f := f.(type) {
	case Bind:
		ports := map[string]int32{}
		free := int32(20000 + w.rng.IntN(3)*100)
		for _, p := range f.Ports {
			if ports[p.Name] = p.Number; p.Number == 0 {
				for free++; f.Held[fit.Port{Protocol: p.Protocol, Number: free}] != ""; free++ {
				}
				ports[p.Name] = free
			}
		}
		b := Bound{UID: f.UID, Ports: ports}
		w.coming = append(w.coming, func() Event { return b })
	case Start:
		w.begin(f)
	case Signal:
		if in := w.machine.instances[f.ID.Instance]; in != nil { // what belongs to nothing ends at once
			if s := &in.task(f.ID.Task).state; s.Why == life.Wanted && w.now.At < s.StopAt {
				w.fatalf("%v is asked to end %v before its delay is over", f.ID, s.StopAt.Sub(w.now.At))
			}
		}
		if p := w.procs[f.ID]; p != nil && p.status.Phase != run.Ended && !p.stopped {
			p.stopped = true
			if !p.deaf {
				p.dies = min(p.dies, w.now.At.Add(w.within(3)))
			}
		}
	case Kill:
		if p := w.procs[f.ID]; p != nil && p.status.Phase != run.Ended {
			w.die(p, run.Ending{Cause: run.Signaled, Signal: 9})
		}
	case Remove:
		if p := w.procs[f.ID]; p != nil && p.status.Phase != run.Ended {
			w.fatalf("%v is removed, and runs", f.ID)
		}
		delete(w.procs, f.ID)
	case Ask:
		if p := w.procs[f.ID]; p != nil && p.status.Phase == run.Running {
			a := Answered{ID: f.ID, Probe: f.Probe, Number: f.Number, Yes: w.now.At >= p.up, Words: "503"}
			w.coming = append(w.coming, func() Event { return a })
		}
	case Drop:
		for _, id := range f.Attempts {
			if p := w.procs[id]; p != nil && p.status.Phase != run.Ended {
				w.fatalf("%v is dropped, and runs", id)
			}
			delete(w.procs, id)
		}
		delete(w.disk, f.UID)
		delete(w.ports, f.UID)
	}
}

func (w *world) begin(f Start) {
	if p := w.procs[f.ID]; p != nil {
		s := p.status
		w.coming = append(w.coming, func() Event { return Changed{simRuntime, s} })
		return
	}
	for id, p := range w.procs {
		if id.Instance == f.ID.Instance && id.Task == f.ID.Task && p.status.Phase != run.Ended {
			w.fatalf("%v is started while %v runs", f.ID, id)
		}
	}
	if r, err := DecodeRecord(f.ID.Instance, w.disk[f.ID.Instance]); err != nil || r.Stop || r.Failure != nil {
		w.fatalf("%v is started, and is to end: %+v %v", f.ID, r, err)
	}
	if w.over[f.ID.Instance] && !w.tainted[f.ID.Instance] {
		w.fatalf("%v is started, and its instance is over", f.ID)
	}
	if one := w.wanted[f.ID.Instance]; one != nil && one.Lease > 0 {
		if s := &w.machine.instances[one.UID].tasks[0].state; s.Boot != w.now.Boot || s.Lease <= w.now.At {
			w.fatalf("%v is started without a lease", f.ID)
		}
		if boot := w.begun[one.UID]; boot != "" && boot != w.now.Boot {
			w.fatalf("%v is started again, and its host was: another copy may run by now", f.ID)
		}
		w.begun[one.UID] = w.now.Boot
	}
	if w.oneIn(20) && !w.healing {
		w.coming = append(w.coming, func() Event { return NotStarted{f.ID, f.Number, failed} })
		return
	}
	p := &proc{status: run.Status{ID: f.ID, Phase: run.Running, Boot: w.now.Boot, PID: 1, Started: w.now.At}, deaf: w.oneIn(4), dies: 1 << 62, up: w.now.At.Add(w.within(5))}
	if w.oneIn(3) && !w.healing {
		p.dies = w.now.At.Add(w.within(60))
	}
	w.procs[f.ID] = p
	s := p.status
	w.coming = append(w.coming, func() Event { return Changed{simRuntime, s} })
}

// check tries the invariants.
func (w *world) check() {
	var sum fit.Amounts
	ports, pieces := map[fit.Port]string{}, map[string]string{}
	for uid, i := range w.machine.instances {
		for k := range i.tasks {
			if s := &i.tasks[k].state; s.Phase == life.Running && i.Over {
				w.fatalf("%s is over, and %s runs", uid, i.tasks[k].name)
			}
		}
		if i.Held == nil {
			continue
		}
		sum = sum.Plus(i.Held.Amounts)
		for _, p := range i.Held.Ports {
			if other := ports[p]; other != "" {
				w.fatalf("%s and %s have port %v", uid, other, p)
			}
			ports[p] = uid
		}
		for _, list := range i.Held.Devices {
			for _, piece := range list {
				if other := pieces[piece]; other != "" {
					w.fatalf("%s and %s have %s", uid, other, piece)
				}
				pieces[piece] = uid
			}
		}
		if i.Bound && len(i.Ports) > 0 {
			if had := w.ports[uid]; had != nil && !maps.Equal(had, i.Ports) && !w.tainted[uid] && w.disk[uid] != nil {
				if r, err := DecodeRecord(uid, w.disk[uid]); err == nil && r.Bound {
					w.fatalf("the ports of %s were %v, and are %v", uid, had, i.Ports)
				}
			}
			w.ports[uid] = i.Ports
			for name, number := range i.Ports {
				if !slices.ContainsFunc(i.Held.Ports, func(p fit.Port) bool { return p.Number == number }) {
					w.fatalf("%s has %d of the host for port %s, and does not hold it", uid, number, name)
				}
			}
		}
	}
	if !sum.Within(simNode.Fit.Capacity.Placed()) {
		w.fatalf("more is held than there is: %+v", sum)
	}
}

// checkTold tries what is told: it goes forward only.
func (w *world) checkTold() {
	for _, n := range w.machine.Told() {
		was, there := w.told[n.UID]
		back := there && (n.Attempt < was.Attempt || n.Attempt == was.Attempt && n.Phase < was.Phase || was.Phase >= wire.InstanceFailed && n.Phase < was.Phase)
		ending := n.Phase >= wire.InstanceTerminating && was.Phase < wire.InstanceFailed
		if back && !ending && !w.tainted[n.UID] && w.disk[n.UID] != nil {
			if r, err := DecodeRecord(n.UID, w.disk[n.UID]); err == nil && r.Attempt >= was.Attempt {
				w.fatalf("%s was told as %v attempt %d, and is %v attempt %d", n.UID, was.Phase, was.Attempt, n.Phase, n.Attempt)
			}
		}
		if n.Ready && n.Phase != wire.InstanceRunning {
			w.fatalf("%s is ready, and does not run", n.UID)
		}
		if data := w.disk[n.UID]; data != nil {
			if r, err := DecodeRecord(n.UID, data); err == nil && r.Over {
				w.over[n.UID] = true
			}
		}
		w.told[n.UID] = n
	}
}

// heal ends the chaos: everything must come to what is wanted.
func (w *world) heal() {
	w.healing = true
	for _, p := range w.procs {
		p.dies = max(p.dies, w.now.At)
		if p.status.Phase != run.Ended {
			p.dies = 1 << 62
		}
	}
	w.coming = append(w.coming, w.desired, w.list)
	for range 60 {
		w.drain()
		w.now.Heard = w.now.At
		w.step(nil)
		w.pass(5 * time.Second)
	}
	w.drain()
	for uid := range w.disk {
		if w.wanted[uid] == nil {
			w.fatalf("the record of %s stays, and nobody wants it", uid)
		}
	}
	for id, p := range w.procs {
		one := w.wanted[id.Instance]
		if p.status.Phase != run.Ended && (one == nil || one.Stop) {
			w.fatalf("%v runs, and nobody wants it", id)
		}
		if one == nil {
			w.fatalf("%v stays, and nobody wants it", id)
		}
	}
	for _, n := range w.machine.Told() {
		one := w.wanted[n.UID]
		switch {
		case one == nil:
			w.fatalf("%s is told of, and nobody wants it", n.UID)
		case one.Stop && n.Phase < wire.InstanceFailed:
			w.fatalf("%s is to end, and is %v: %+v", n.UID, n.Phase, w.machine.instances[n.UID])
		case !one.Stop && !one.Job && n.Phase != wire.InstanceRunning && n.Phase != wire.InstanceFailed, n.Phase == wire.InstanceRunning && !n.Ready:
			w.fatalf("%s is %v, ready %v: %s", n.UID, n.Phase, n.Ready, n.Message)
		case n.Phase == wire.InstanceFailed && !one.Job && !one.Stop && n.Code == 0:
			w.fatalf("%s has failed, and nobody knows why", n.UID)
		}
	}
}
