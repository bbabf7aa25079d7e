package workload

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// stage is a world in which nothing happens by chance: five nodes with room for all, one workload.
func stage(t *testing.T, wanted int, rollout declared.Rollout) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(1, 2)), now: start, templates: map[string]int{}, qualities: map[int]quality{}, seen: map[string]int{}, calm: true, staged: true}
	w.view = View{Name: "web", UID: "w1", Generation: 1, Wanted: wanted, Quiet: start}
	w.view.Spec.Rollout = rollout
	w.view.Spec.OnUnreachable = &declared.OnUnreachable{After: "1m"}
	for i := range 5 {
		w.machines = append(w.machines, &machine{name: fmt.Sprint("n", i), linked: true, heard: true, room: 100})
	}
	w.template = 10
	w.view.Was.Collisions = 1 // hashes differ
	return w
}

// running is a stage on which the first template has come to its end.
func running(t *testing.T, wanted int, rollout declared.Rollout) *world {
	w := stage(t, wanted, rollout)
	w.until("it runs", complete)
	return w
}

// act decides and carries it out.
func (w *world) act() Decision {
	d := Decide(w.snapshot(), w.now)
	w.carry(&d, 1<<30)
	return d
}

// round lets everybody work for five seconds, and acts.
func (w *world) round() Decision {
	for _, c := range append([]*copyOf(nil), w.copies...) {
		w.work(c)
	}
	w.tick(5 * time.Second)
	return w.act()
}

// until goes on until something is so.
func (w *world) until(what string, so func(*Decision) bool) Decision {
	w.t.Helper()
	var d Decision
	for range 600 {
		if d = w.round(); so(&d) {
			return d
		}
	}
	w.t.Fatalf("never: %s; last %+v", what, d)
	return d
}

// during goes on for some time, and looks after each round.
func (w *world) during(span time.Duration, look func(*Decision)) Decision {
	var d Decision
	for end := w.now.Add(span); w.now.Before(end); {
		d = w.round()
		look(&d)
	}
	return d
}

// declare declares another template.
func (w *world) declare(template int, q quality) {
	w.template = template
	w.qualities[template] = q
	w.view.Generation++
}

func (w *world) scale(to int) {
	w.view.Wanted = to
	w.view.Generation++
}

// having counts instances of a template that have not ended and count.
func (w *world) having(template int) int {
	n := 0
	for _, c := range w.copies {
		if w.templates[c.Revision] == template && c.Phase < Terminating && !c.Abandoned {
			n++
		}
	}
	return n
}

// ready counts those of them that are ready.
func (w *world) ready(template int) int {
	n := 0
	for _, c := range w.copies {
		if w.templates[c.Revision] == template && c.Phase == Running && !c.Abandoned && !c.ReadySince.IsZero() {
			n++
		}
	}
	return n
}

// first is an instance of a template.
func (w *world) first(template int) *copyOf {
	for _, c := range w.copies {
		if w.templates[c.Revision] == template && c.Phase < Terminating && !c.Abandoned {
			return c
		}
	}
	w.t.Fatalf("nothing has template %d", template)
	return nil
}

func (w *world) cut(name string) {
	m := w.machine(name)
	m.linked, m.cut = false, w.now
}

// complete: what is declared has come to its end.
func complete(d *Decision) bool {
	return d.Status.Phase == pace.Complete && d.Status.ObservedGeneration == d.Generation
}

func rolling(surge, unavailable declare.IntOrPercent) declared.Rollout {
	return declared.Rollout{MaxSurge: surge, MaxUnavailable: unavailable}
}

func canary(steps ...declared.CanaryStep) declared.Rollout {
	return declared.Rollout{Strategy: declared.Canary, Steps: steps, MaxSurge: "1", MaxUnavailable: "0"}
}
