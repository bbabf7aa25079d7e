package workloads

import (
	"maps"
	"slices"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/run"
)

const (
	// faultEvery is the mean pause between two things that go wrong, and actEvery between two that people do.
	faultEvery = 3 * time.Second
	actEvery   = 8 * time.Second
	// downMax is how long a host is down or cut off: longer than any of them is waited for.
	downMax = 6 * time.Minute
	// steadyTime is how long after all is well a rollout may have failed still: a node that came and went is not trusted for five minutes.
	steadyTime = 12 * time.Minute
	// rare is how often what concerns the whole fleet happens, of the times that it is drawn: who leads for a minute only gives nobody up.
	rare = 0.25
	// electMax is how long nobody leads after the leader has died.
	electMax = 20 * time.Second
)

// fault is something that may go wrong.
type fault struct {
	name string
	do   func(*world)
}

var faults = []fault{
	{"power lost", func(w *world) {
		h := one(w, w.hosts)
		h.power()
		w.after(w.between(5*time.Second, downMax), h.boot)
	}},
	{"reboot", func(w *world) {
		h := one(w, w.hosts)
		h.power()
		w.after(w.between(time.Second, 30*time.Second), h.boot)
	}},
	{"cut off", func(w *world) {
		h := one(w, w.hosts)
		h.unlink()
		w.after(w.between(time.Second, downMax), h.link)
	}},
	{"cut off, and booted", func(w *world) {
		h := one(w, w.hosts)
		h.unlink()
		w.after(w.within(downMax), h.power)
		w.after(w.between(downMax, 2*downMax), h.boot)
		w.after(w.between(downMax, 2*downMax), h.link)
	}},
	{"many cut off", func(w *world) {
		if !w.chance(rare) {
			return
		}
		share := 0.1 + 0.6*w.random.Float64()
		for _, h := range w.hosts {
			if w.chance(share) {
				h.unlink()
				w.after(w.within(3*time.Minute), h.link)
			}
		}
	}},
	{"split", func(w *world) { // of the network, and the leader is on the wrong side of it for some
		if !w.chance(rare) {
			return
		}
		share := 0.1 + 0.3*w.random.Float64()
		for _, h := range w.hosts {
			if w.chance(share) {
				h.unlink()
				w.after(w.between(downMax/2, downMax), h.link)
			}
		}
		w.after(w.within(time.Minute), func() {
			if !w.healed {
				w.elect()
			}
		})
	}},
	{"flaps", func(w *world) {
		h := one(w, w.hosts)
		var at time.Duration
		for range 2 + w.random.IntN(8) {
			w.after(at, func() {
				if !w.healed {
					h.unlink()
				}
			})
			at += w.within(time.Minute)
			w.after(at, h.link)
			at += w.within(time.Minute)
		}
	}},
	{"agent dies", func(w *world) { one(w, w.hosts).crash() }},
	{"agent stands still", func(w *world) { one(w, w.hosts).freeze(w.within(freezeMax)) }},
	{"records lost", func(w *world) { // and what runs goes on
		h := one(w, w.hosts)
		if !w.chance(rare) || !h.up {
			return
		}
		h.dies()
		h.cut()
		h.lose()
		h.awake(w.within(time.Minute))
	}},
	{"disk lost", func(w *world) {
		h := one(w, w.hosts)
		if !w.chance(rare) {
			return
		}
		if h.power(); !h.up {
			h.lose()
			clear(h.procs)
			w.after(w.between(5*time.Second, downMax), h.boot)
		}
	}},
	{"machine replaced", func(w *world) {
		h := one(w, w.hosts)
		if w.chance(rare) {
			h.replace()
			w.after(w.within(downMax), h.boot)
		}
	}},
	{"relay is cut off", func(w *world) {
		r := one(w, w.relays)
		r.unlink()
		w.after(w.within(relayCutMax), r.link)
	}},
	{"agent hangs", func(w *world) {
		h := one(w, w.hosts)
		h.freeze(w.within(hangMax))
		if w.chance(0.5) {
			w.after(w.within(time.Minute), func() {
				if !w.healed {
					h.unlink()
				}
			})
			w.after(w.within(hangMax), h.link)
		}
	}},
	{"leader changes", func(w *world) {
		if w.chance(rare) {
			w.elect()
		}
	}},
	{"leader changes as a run is due", func(w *world) {
		if w.chance(rare) {
			w.dueSoon()
		}
	}},
	{"leader dies between writes", func(w *world) {
		for _, s := range w.servers {
			if s.leads() && w.chance(rare) {
				s.budget = 1 + w.random.IntN(20)
			}
		}
	}},
	{"store is busy", func(w *world) {
		most := 30 * time.Second
		if w.chance(rare / 2) {
			most = 5 * time.Minute // its disk is full
		}
		w.store.busy = true
		w.after(w.within(most), func() { w.store.busy = false })
	}},
	{"watch is late", func(w *world) {
		s := one(w, w.servers)
		s.lag[one(w, kinds)] = w.within(lagMax)
	}},
	{"process dies", func(w *world) {
		h := one(w, w.hosts)
		for _, id := range slices.SortedFunc(maps.Keys(h.procs), run.ID.Compare) {
			if p := h.procs[id]; p.status.Phase == run.Running && w.chance(0.5) {
				p.end(run.Ending{Cause: run.Signaled, Signal: 11})
				return
			}
		}
	}},
}

// mischief is that something goes wrong.
func (w *world) mischief() {
	f := one(w, faults)
	w.did(f.name)
	f.do(w)
}

// begin starts all machines, and everything that happens to them.
func (w *world) begin() {
	one(w, w.servers).begin()
	for _, h := range w.hosts {
		w.after(w.within(5*time.Second), h.boot)
	}
	w.after(10*time.Second, w.found)
	w.again(faultEvery, w.mischief)
	w.again(actEvery, w.act)
	w.watchdog()
}

// watchdog has another server lead where none does, and collects what belongs to nothing.
func (w *world) watchdog() {
	w.after(w.within(electMax), func() {
		if !slices.ContainsFunc(w.servers, func(s *server) bool { return s.leads() && !s.killed }) {
			w.did("elected")
			one(w, w.servers).begin()
		}
		w.store.collect()
		w.watchdog()
	})
}

// elect has another server lead. The one before finds that out by and by, and until then there are two.
func (w *world) elect() {
	var next []*server
	var old []*server
	for _, s := range w.servers {
		if s.leads() {
			old = append(old, s)
		} else {
			next = append(next, s)
		}
	}
	if len(old) != 1 {
		return
	}
	to := one(w, next)
	to.begin()
	if w.chance(0.5) {
		w.did("two lead")
		w.truth.twice = w.now.Add(deposedMax + lagMax)
		run := old[0].run
		old[0].deposed = true
		w.after(w.within(deposedMax), func() {
			if old[0].run == run {
				old[0].end()
			}
		})
		return
	}
	old[0].end()
}

// heal ends all that goes wrong.
func (w *world) heal() {
	w.say("the world heals")
	w.healed, w.faults, w.store.busy = true, 0, false
	for _, s := range w.servers {
		for _, kind := range kinds {
			s.lag[kind] = w.within(100 * time.Millisecond)
		}
		s.budget = 0
	}
	for _, h := range w.hosts {
		h.boot()
		h.link()
	}
	for _, r := range w.relays {
		r.link()
	}
	w.mend()
	w.calm = w.now.Add(steadyTime)
	for _, name := range schedules {
		w.suspend(name, false)
		w.after(suspendAfter, func() { w.suspend(name, true) })
	}
	for at := healedAfter; at <= suspendAfter; at += 7 * time.Second {
		w.after(at, w.checkSchedules)
	}
	w.after(steadyTime, w.mend) // what has failed by then is not tried again by itself
}

// away reports whether somebody wants instances away from a node.
func away(n *v1alpha1.Node) bool { return n.Spec.Drain != nil || len(n.Spec.Taints) > 0 }
