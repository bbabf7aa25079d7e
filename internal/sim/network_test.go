package sim

import (
	"time"

	"tako.dev/tako/internal/reason"
)

// callMax is how long an answer is waited for: what the client waits for one that stands still.
const callMax = 30 * time.Second

// The errors of a call without an answer.
var (
	errSilent  = &reason.Error{Code: reason.ServerUnreachable, Doing: "wait for an answer"}
	errRefused = &reason.Error{Code: reason.ServerUnreachable, Doing: "connect"}
	errReset   = &reason.Error{Code: reason.ServerUnreachable, Doing: "read an answer"}
)

// end is a machine on the network. What is sent to one run of it does not come to the next.
type end struct {
	name string
	run  int
	up   bool
}

// way is one direction between two machines.
type way struct{ from, to string }

// network is what lies between machines.
type network struct {
	cut  map[way]bool
	slow map[string]time.Duration // by machine: how much longer all that it sends may take
}

func newNetwork() network { return network{cut: map[way]bool{}, slow: map[string]time.Duration{}} }

// send brings something from one machine to another: once, not at all, or twice, and after any time, so that what was sent later may come
// before.
func (w *world) send(from, to *end, deliver func()) {
	if w.net.cut[way{from.name, to.name}] {
		return
	}
	copies := 1
	switch {
	case w.chance(w.faults / 4):
		copies = 0
	case w.chance(w.faults / 4):
		copies = 2
	}
	run := to.run
	for range copies {
		delay := time.Millisecond + w.within(30*time.Millisecond) + w.within(w.net.slow[from.name])
		if w.chance(w.faults / 4) {
			delay += w.within(20 * time.Second)
		}
		w.after(delay, func() {
			if to.up && to.run == run {
				deliver()
			}
		})
	}
}

// answers is how one that was asked answers. It may be called more than once: messages come twice.
type answers[T any] func(answer T, err error)

// call asks another machine. done is called once, unless the caller has ended before: with an answer, or with the error that there is none.
func call[T any](w *world, from, to *end, ask func(answers[T]), done answers[T]) {
	run, over := from.run, false
	finish := func(answer T, err error) {
		if over || !from.up || from.run != run {
			return
		}
		over = true
		done(answer, err)
	}
	var none T
	w.after(callMax, func() { finish(none, errSilent) })
	if !to.up && !w.net.cut[way{from.name, to.name}] && w.chance(0.7) {
		w.after(w.within(20*time.Millisecond), func() { finish(none, errRefused) })
		return
	}
	w.send(from, to, func() {
		ask(func(answer T, err error) {
			w.send(to, from, func() { finish(answer, err) })
		})
	})
}
