package sim

import (
	"maps"
	"slices"
	"time"

	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// faultEvery is the mean pause between two things that go wrong, and actEvery between two that people do.
	faultEvery = 1500 * time.Millisecond
	actEvery   = 8 * time.Second
	// downMax is how long a machine is down, and troubleMax how long a trouble lasts.
	downMax    = 90 * time.Second
	troubleMax = 2 * time.Minute
)

// begin starts all machines, and everything that happens to them.
func (w *world) begin() {
	for _, s := range w.servers {
		s.start()
	}
	for _, r := range w.relays {
		r.start()
	}
	w.folk = newPeople(w)
	w.folk.all(func() uint8 { return 0 })
	for _, a := range w.agents {
		w.after(w.within(5*time.Second), a.boot)
	}
	w.again(faultEvery, w.mischief)
	w.again(actEvery, w.folk.act)
}

// again does something now and then, until the world heals.
func (w *world) again(mean time.Duration, do func()) {
	w.after(time.Duration(w.random.ExpFloat64()*float64(mean)), func() {
		if w.healed {
			return
		}
		do()
		w.again(mean, do)
	})
}

// ends something that has gone wrong, after a while at the latest.
func (w *world) ends(do func()) {
	w.after(w.within(troubleMax), func() {
		if !w.healed {
			do()
		}
	})
}

// machines are all that there are.
func (w *world) machines() []*end {
	var all []*end
	for _, s := range w.servers {
		all = append(all, &s.end)
	}
	for _, r := range w.relays {
		all = append(all, &r.end)
	}
	for _, a := range w.agents {
		all = append(all, &a.end)
	}
	return all
}

// fault is something that goes wrong.
type fault struct {
	name string
	do   func(*world)
}

// faults lists all of them; the more often one is named, the more often it comes.
var faults = []fault{
	{"agent killed", (*world).killAgent}, {"agent killed", (*world).killAgent}, {"agent killed", (*world).killAgent},
	{"power cut", (*world).cutAgent}, {"power cut", (*world).cutAgent},
	{"killed in a system call", (*world).lightFuse}, {"killed in a system call", (*world).lightFuse}, {"killed in a system call", (*world).lightFuse},
	{"server down", (*world).downServer}, {"relay down", (*world).downRelay},
	{"partition", (*world).partition}, {"one-way partition", (*world).oneWay}, {"slow line", (*world).slow},
	{"store unreachable", (*world).away}, {"follower stands still", (*world).stuck}, {"compaction", func(w *world) { w.store.compact() }},
	{"backup", func(w *world) { w.store.backup() }}, {"old store", (*world).oldStore},
	{"disk full", (*world).fullDisk}, {"bit flipped", (*world).flipBit}, {"bit flipped", (*world).flipBit},
	{"clock ahead", (*world).clockAhead}, {"clock back", (*world).clockBack},
	{"disk restored", (*world).restoreDisk}, {"host cloned", (*world).cloneHost},
	{"malicious relay", (*world).corrupt}, {"stolen key", (*world).steal},
	{"drift", (*world).drift}, {"drift", (*world).drift}, {"drift", (*world).drift},
}

// mischief lets one thing go wrong.
func (w *world) mischief() {
	f := one(w, faults)
	w.seen.Faults[f.name]++
	w.say("fault: %s", f.name)
	f.do(w)
}

func (w *world) killAgent() { one(w, w.agents).crash(false) }
func (w *world) cutAgent()  { one(w, w.agents).crash(true) }

func (w *world) lightFuse() {
	d := one(w, w.agents).disk
	d.fuse, d.power = 1+w.random.IntN(60), w.chance(0.7)
}

func (w *world) downServer() {
	s := one(w, w.servers)
	if !s.up {
		return
	}
	s.stop()
	w.after(w.within(downMax), func() {
		if !s.up {
			s.start()
		}
	})
}

func (w *world) downRelay() {
	r := one(w, w.relays)
	if !r.up {
		return
	}
	r.stop()
	w.after(w.within(downMax), func() {
		if !r.up {
			r.start()
		}
	})
}

// partition cuts machines off from all others, in both directions.
func (w *world) partition() {
	alone := one(w, w.machines())
	var cut []way
	for _, m := range w.machines() {
		if w.chance(0.7) {
			cut = append(cut, way{alone.name, m.name}, way{m.name, alone.name})
		}
	}
	w.cuts(cut)
}

// oneWay cuts one direction.
func (w *world) oneWay() {
	alone, out := one(w, w.machines()), w.chance(0.5)
	var cut []way
	for _, m := range w.machines() {
		if out {
			cut = append(cut, way{alone.name, m.name})
		} else {
			cut = append(cut, way{m.name, alone.name})
		}
	}
	w.cuts(cut)
}

func (w *world) cuts(cut []way) {
	for _, x := range cut {
		w.net.cut[x] = true
	}
	w.ends(func() {
		for _, x := range cut {
			delete(w.net.cut, x)
		}
	})
}

func (w *world) slow() {
	m := one(w, w.machines())
	w.net.slow[m.name] = w.within(15 * time.Second)
	w.ends(func() { delete(w.net.slow, m.name) })
}

func (w *world) away() {
	s := one(w, w.servers)
	s.away = true
	w.ends(func() { s.away = false })
}

func (w *world) stuck() {
	s := one(w, w.servers)
	s.stuck = true
	w.ends(func() { s.stuck = false })
}

// oldStore puts an old copy of the store in its place. A person sees to it after a while.
func (w *world) oldStore() {
	if w.store.replaced > 0 || !w.store.replace() {
		return
	}
	w.say("the store is an old copy, of revision %d", w.store.revision)
	w.ends(w.repairStore)
}

// repairStore is what people do about an old copy of the store: new servers, and another epoch.
func (w *world) repairStore() {
	w.store.replaced = 0
	w.folk.bump()
	for _, s := range w.servers {
		if s.up {
			s.stop()
		}
		s.start()
	}
	for _, node := range w.store.nodes() { // the assignments are what they were then: people see to the newest in the end
		w.folk.assign(node, 0)
	}
}

func (w *world) fullDisk() {
	d := one(w, w.agents).disk
	d.full = true
	w.ends(func() { d.full = false })
}

// flipBit changes a bit on the disk of a host. The active state and the ledger are left alone: they stand there once, and a host that loses
// them says so. Of what stands there twice one copy stays whole: who loses both believes an older head once more, and says so.
func (w *world) flipBit() {
	a := one(w, w.agents)
	d := a.disk
	var there []string
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[name]
		switch {
		case !f.there || len(f.data) == 0 || name == activeFile || name == ledgerFile:
		case (name == headsFile || name == statementsFile) && !bothWhole(f.data):
		default:
			there = append(there, name)
		}
	}
	if len(there) > 0 {
		name := one(w, there)
		w.say("a bit of %s is another one on %s", name, a.name)
		d.flip(name)
	}
}

// clockAhead sets the clock of a host ahead, by minutes or by years.
func (w *world) clockAhead() {
	a := one(w, w.agents)
	step := w.within(10 * time.Minute)
	if w.chance(0.3) {
		step = 2 * 365 * 24 * time.Hour
	}
	a.clock += step
	if a.up {
		a.guarded(func() { a.host.outlive(); a.step(core.Ticked{}) })
	}
	w.ends(func() { a.setClock(0) })
}

// clockBack sets it back. A run is told a time that does not go back, so this is what the next run finds.
func (w *world) clockBack() {
	a := one(w, w.agents)
	step := -w.within(10 * time.Minute)
	if w.chance(0.3) {
		step = -2 * 365 * 24 * time.Hour
	}
	a.setClock(step)
	w.ends(func() { a.setClock(0) })
}

// setClock sets the clock of a host, which starts anew.
func (a *agent) setClock(to time.Duration) {
	if a.clock != to {
		a.crash(false)
		a.clock = to
	}
}

// restoreDisk puts an old copy of a disk back: the host knows nothing of what came later.
func (w *world) restoreDisk() {
	a := one(w, w.agents)
	old, chain, proven := a.disk.clone(), a.chain, a.proven.clone()
	actual := maps.Clone(a.host.actual)
	w.ends(func() {
		a.crash(false)
		a.disk, a.chain, a.proven, a.host.actual = old, chain, proven, actual
		clear(a.host.owed)
	})
}

// cloneHost makes another machine of the disk of a host: two have one identity.
func (w *world) cloneHost() {
	first := one(w, w.agents)
	if w.cloned || first.node != first.name {
		return
	}
	w.cloned = true
	c := newAgent(w, first.name+"-clone", w.random.IntN(5))
	c.node, c.disk, c.chain = first.node, first.disk.clone(), first.chain
	c.host.actual = maps.Clone(first.host.actual)
	c.proven = first.proven.clone()
	w.agents = append(w.agents, c)
	w.after(w.within(time.Second), c.boot)
}

// corrupt makes a relay one of somebody else's.
func (w *world) corrupt() {
	r := one(w, w.relays)
	r.evil = newLiar(w)
	w.ends(func() { r.evil = nil })
}

// steal has somebody with the key of the servers sign an older list of a node under the newest version. Nobody can tell it from the true one but
// by which came first.
func (w *world) steal() {
	a := one(w, w.agents)
	newest := w.store.present[a.node]
	if len(w.store.log) == 0 || newest == nil {
		return
	}
	old := *one(w, w.store.log)
	if old.node != a.node || old.root == newest.root {
		return
	}
	old.version = newest.version
	head := signHead(w.headOf(&old, w.by.epoch(), w.now.Unix()), w.by.heads)
	w.truth.signed[signedRoot{a.node, w.by.epoch(), old.version, old.root}] = true
	if a.up {
		a.frame(a.watch.id, wire.Frame{Head: head})
	}
}

func (w *world) drift() {
	a := one(w, w.agents)
	if a.up {
		a.guarded(a.host.drift)
	}
}

// heal ends everything that goes wrong. People see to what does not end by itself, and give every host something newest.
func (w *world) heal() {
	w.healed, w.faults = true, 0
	w.say("the world heals")
	w.net = newNetwork()
	for _, a := range w.agents {
		a.disk.full, a.disk.fuse = false, 0
		a.setClock(0)
	}
	for _, r := range w.relays {
		r.evil = nil
	}
	for _, s := range w.servers {
		s.away, s.stuck = false, false
	}
	if w.store.replaced > 0 {
		w.repairStore()
	}
	for _, s := range w.servers {
		if !s.up {
			s.start()
		}
	}
	for _, r := range w.relays {
		if !r.up {
			r.start()
		}
	}
	w.folk.all(func() uint8 {
		if w.chance(0.1) {
			return 0
		}
		return 100
	})
}
