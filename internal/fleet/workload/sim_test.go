package workload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 100

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

func (w *world) fatal(d *Decision, format string, args ...any) {
	w.t.Helper()
	for _, line := range w.trace[max(len(w.trace)-12, 0):] {
		w.t.Log(line)
	}
	for _, c := range w.copies {
		w.t.Logf("%s %s %s on %s %s ready %v away %v abandoned %v replaces %s leave %v failure %v", c.Name, c.UID, c.Revision, c.Node, c.Phase, !c.ReadySince.IsZero(),
			c.Node != "" && w.presence(w.machine(c.Node)) != node.Here, c.Abandoned, c.Replaces, c.Leave != nil, c.Failure != nil)
	}
	w.t.Fatalf("%s\n%+v\n%s %+v %+v %+v", fmt.Sprintf(format, args...), *d, w.view.Spec.Mode, w.view.Spec.Rollout, w.view.Spec.DisruptionBudget, w.view.Spec.OnUnreachable)
}

// decide decides, checks that and carries it out; now and then not all of it, or by a second leader whose status is refused.
func (w *world) decide() Decision {
	v := w.snapshot()
	d := Decide(v, w.now)
	if other := Decide(w.snapshot(), w.now); !reflect.DeepEqual(d, other) {
		w.fatal(&d, "in another order it is\n%+v", other)
	}
	w.trace = append(w.trace, fmt.Sprintf("%s wanted %d goal %s stable %s phase %s (%s) %+v: create %v stop %v abandon %v reclaim %v drop %v update %v", w.now.Format("15:04:05"), v.Wanted, d.Status.Rollout.Goal,
		d.Status.Stable.Of, d.Status.Phase, d.Status.Why, d.Status.Counts, d.Create, d.Stop, d.Abandon, d.Reclaim, d.Drop, d.Update))
	w.check(&v, &d)
	if w.oneIn(20) && !w.calm {
		w.carry(&d, w.rng.IntN(3))
		return d
	}
	w.carry(&d, 1<<30)
	w.checkStored(&d)
	again := Decide(w.snapshot(), w.now)
	if again.Make == nil && d.Make == nil && d.Status.Collisions == v.Was.Collisions && again.acts() {
		w.fatal(&d, "deciding again on what it has come to decides %+v", again)
	}
	return d
}

func (d *Decision) acts() bool {
	return len(d.Create)+len(d.Update)+len(d.Stop)+len(d.Abandon)+len(d.Reclaim)+len(d.Drop)+len(d.Forget) > 0 || d.Make != nil || d.Renumber != nil
}

// count is how many instances of a view are like that, and not abandoned and not over.
func count(v *View, is func(*Instance) bool) int {
	n := 0
	for i := range v.Instances {
		if in := &v.Instances[i]; !in.Abandoned && !in.Phase.Ended() && is(in) {
			n++
		}
	}
	return n
}

// check is the invariants on what was decided, in words other than those of the decision.
func (w *world) check(v *View, d *Decision) {
	spec := &v.Spec
	stopped, given := map[string]reason.Code{}, map[string]bool{}
	for _, s := range d.Stop {
		stopped[s.UID] = s.Why
		w.seen["stop "+s.Why.String()]++
	}
	for _, m := range slices.Concat(d.Abandon, d.Drop) {
		given[m.UID] = true
	}
	w.seen["abandon"] += len(d.Abandon)
	w.seen["reclaim"] += len(d.Reclaim)
	wanted := v.Wanted
	if spec.Mode == declared.PerNode {
		wanted = len(v.Eligible)
	}
	if d.Generation != v.Generation || d.Status.ObservedGeneration > v.Generation { // I11
		w.fatal(d, "it was decided on generation %d", v.Generation)
	}
	for _, m := range d.Drop {
		if c := w.copy(m.UID); c.runs && v.Spec.Mode != declared.PerNode {
			w.fatal(d, "%s is dropped, and runs", c.Name)
		}
	}
	if wanted == 0 && len(d.Create) > 0 { // I3
		w.fatal(d, "nothing is wanted")
	}
	w.checkRoom(v, d, wanted, given)
	w.checkAvailable(v, d, wanted, stopped)
	goal := d.Status.Rollout.Goal
	fresh := count(v, func(in *Instance) bool {
		return in.Revision == goal && in.Phase < Terminating && stopped[in.UID] == 0 && !given[in.UID]
	})
	made := 0
	for _, c := range d.Create {
		if c.Revision == goal {
			made++
		}
	}
	w.seen["update"] += len(d.Update)
	updated := 0
	for _, u := range d.Update {
		c := w.copy(u.UID)
		if from, to := w.templates[c.Revision], w.templates[u.Revision]; from/w.alike != to/w.alike || stopped[u.UID] != 0 || c.Phase >= Terminating || u.Revision != goal {
			w.fatal(d, "%s has template %d and gets %d", c.Name, from, to)
		}
		if !c.Abandoned {
			updated++
		}
	}
	made += updated
	if spec.Rollout.Pause && made > 0 && !d.Status.Rollout.Over && goal != v.Was.Stable.Of { // I7
		w.fatal(d, "it is paused, and has made %d of %s", made, goal)
	}
	canary := spec.Rollout.Strategy == declared.Canary && d.Status.Rollout.Step < len(spec.Rollout.Steps) && v.Was.Stable.Of != "" && goal == d.Status.Rollout.Target &&
		goal != v.Was.Stable.Of && !d.Status.Rollout.Over && slices.ContainsFunc(v.Revisions, func(r Revision) bool { return r.Name == v.Was.Stable.Of })
	if canary && made > 0 { // I8
		leave := count(v, func(in *Instance) bool { return in.Leave != nil })
		step := pace.Share(spec.Rollout.Steps[d.Status.Rollout.Step].Replicas, wanted, pace.Up)
		if fresh+made > step+leave {
			w.fatal(d, "%d canaries, the step wants %d", fresh+made, step)
		}
		w.seen["canary"]++
	}
	w.checkGates(v, d)
	w.seen[string(d.Status.Phase)]++
}

// checkGates: what was never stable is not at its end before what is measured of it was good.
func (w *world) checkGates(v *View, d *Decision) {
	r := &d.Status.Rollout
	stable := slices.ContainsFunc(v.Revisions, func(r Revision) bool { return r.Name == v.Was.Stable.Of })
	if len(v.Spec.Rollout.Gates) == 0 || !r.Over || v.Was.Rollout.Over || r.Goal != r.Target || r.Goal == v.Was.Stable.Of || !stable || v.Wanted == 0 {
		return
	}
	if m := v.Gates["errors"]; m.Missing != "" || m.Value > 0.05 || m.At.Before(r.Ended) {
		w.fatal(d, "it is at its end, and its gate measures %+v", m)
	}
	w.seen["gated"]++
}

// checkRoom is I1 and W1: what is created, with all that may run and is not abandoned, is within replicas and surge, and one more for
// each that is to leave and may not.
func (w *world) checkRoom(v *View, d *Decision, wanted int, given map[string]bool) {
	total := count(v, func(in *Instance) bool { return !given[in.UID] }) + len(d.Reclaim) + len(d.Create)
	t := termsOf(&v.Spec, wanted)
	most := wanted + t.surge
	if v.Spec.Rollout.Strategy == declared.BlueGreen && !t.exclusive && v.Spec.Mode != declared.PerNode {
		most = max(most, 2*wanted)
	}
	if t.surgeFirst && v.Spec.Mode != declared.PerNode {
		held := count(v, func(in *Instance) bool { return in.Leave != nil && in.Phase < Terminating }) + len(d.Reclaim)
		most += min(held, max(wanted-t.evictFloor, 1))
	}
	if v.Spec.Mode == declared.PerNode {
		for _, c := range d.Create {
			if n := count(v, func(in *Instance) bool { return in.Node == c.Node && !given[in.UID] }); n > 0 || !slices.Contains(v.Eligible, c.Node) {
				w.fatal(d, "%s gets another one, or is not eligible", c.Node)
			}
		}
		return
	}
	if len(d.Create) > 0 && total > most {
		w.fatal(d, "there would be %d instances of %d, at most %d", total, wanted, most)
	}
}

// checkAvailable is I2 and I10: nothing that is available is taken away on purpose where too few would be left.
func (w *world) checkAvailable(v *View, d *Decision, wanted int, stopped map[string]reason.Code) {
	t := termsOf(&v.Spec, wanted)
	taken := map[string]bool{}
	for _, s := range v.Was.Taken {
		taken[s.UID] = true
	}
	available := func(in *Instance) bool {
		ready := in.Phase == Running && !in.ReadySince.IsZero() && w.now.Sub(in.ReadySince) >= t.minReady
		return ready && !taken[in.UID] && in.Node != "" && w.presence(w.machine(in.Node)) == node.Here
	}
	left, rolled, evicted := count(v, func(in *Instance) bool { return available(in) && stopped[in.UID] == 0 }), 0, 0
	for i := range v.Instances {
		in := &v.Instances[i]
		switch why := stopped[in.UID]; {
		case why == 0 || !available(in) || in.Abandoned:
		case why == reason.Replaced:
			rolled++
		case why == reason.NodeDrained || why == reason.Preempted:
			evicted++
		}
		if stopped[in.UID] != 0 && !taken[in.UID] && in.Phase > Pending && w.now.Before(v.Quiet) {
			w.fatal(d, "%s is taken away before all were heard", in.Name)
		}
	}
	for i := range v.Instances { // what counts again
		in := &v.Instances[i]
		if in.Abandoned && available(in) && slices.ContainsFunc(d.Reclaim, func(m Mark) bool { return m.UID == in.UID }) && stopped[in.UID] == 0 {
			left++
		}
	}
	if v.Spec.Mode == declared.PerNode && rolled > 0 && wanted-left > t.unavailable {
		w.fatal(d, "%d of %d nodes have none that is available after %d were replaced", wanted-left, wanted, rolled)
	}
	if v.Spec.Mode != declared.PerNode && rolled > 0 && left < t.floor || evicted > 0 && left+rolled < t.evictFloor { // a rollout may go further by its own terms
		w.fatal(d, "%d are left available of %d after %d were replaced and %d taken away", left, wanted, rolled, evicted)
	}
}

// checkStored is I4, W1's second half, and that an exclusive instance runs once.
func (w *world) checkStored(d *Decision) {
	slots, stands, runs := map[int]string{}, map[string]int{}, map[int]int{}
	for _, c := range w.copies {
		if other := slots[c.Slot]; other != "" {
			w.fatal(d, "%s and %s have one slot", other, c.UID)
		}
		slots[c.Slot] = c.UID
		if c.Replaces != "" && !c.Phase.Ended() && !c.Abandoned {
			stands[c.Replaces]++
		}
		if c.runs {
			runs[c.Slot]++
		}
	}
	for uid, n := range stands {
		if n > 1 {
			w.fatal(d, "%d instances stand in for %s", n, uid)
		}
	}
	for slot, n := range runs {
		if w.view.Spec.OnUnreachable.Action == declared.FenceUnreachable && n > 1 {
			w.fatal(d, "%d run in slot %d", n, slot)
		}
	}
}

// heal makes the world quiet: then it must become whole, whatever happened before.
func (w *world) heal() {
	w.calm = true
	w.view.Spec.Rollout.Pause, w.view.Brake = false, ""
	w.view.Generation++
	for _, m := range w.machines {
		m.room = 20
		w.undrain(m)
	}
	for _, c := range w.copies {
		c.Leave = nil
	}
	var d Decision
	for quiet, round := 0, 0; round < 900 && quiet < 20; round++ {
		for _, m := range w.machines {
			w.link(m, false)
		}
		for _, c := range slices.Clone(w.copies) {
			w.work(c)
		}
		w.tick(5 * time.Second)
		w.view.Approval = Approval{w.view.Was.Rollout.Goal, 99}
		d = w.decide()
		if quiet++; d.acts() || !slices.Contains([]pace.Phase{pace.Complete, pace.Empty, pace.RolledBack}, d.Status.Phase) || d.Status.Counts.Available < d.Status.Counts.Live {
			quiet = 0
		}
	}
	wanted := w.view.Wanted
	if w.view.Spec.Mode == declared.PerNode {
		wanted = len(w.machines)
	}
	t := termsOf(&w.view.Spec, wanted)
	c, fails := d.Status.Counts, w.qualities[w.templates[d.Status.Rollout.Goal]] >= dead
	over := slices.Contains([]pace.Phase{pace.Complete, pace.Empty, pace.RolledBack}, d.Status.Phase)
	stuck := d.Status.Phase == pace.Halted || fails && span(w.view.Spec.Rollout.ProgressDeadline, time.Minute) == 0 ||
		d.Status.Phase == pace.Waiting && t.surge == 0 && t.floor >= wanted
	if !over && !stuck || over && !fails && (c.Available != wanted || c.Updated != wanted) || c.Live < wanted && !stuck || c.Abandoned+c.Terminating > 0 || d.acts() {
		w.fatal(&d, "it does not become whole: %d are wanted, quality %d", wanted, w.qualities[w.templates[d.Status.Rollout.Goal]])
	}
	w.seen["healed "+string(d.Status.Phase)]++
}

func TestSimulation(t *testing.T) {
	first, last := uint64(1), max(number("TAKO_SEEDS", simSeeds), simSeeds)
	if one := number("TAKO_SEED", 0); one != 0 {
		first, last = one, one
	}
	seen := map[string]int{}
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 1)))
			for range 250 {
				w.step()
				w.decide()
			}
			w.heal()
			for k, n := range w.seen {
				seen[k] += n
			}
		}) {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[k], k)
	}
	for _, k := range []string{"update", "abandon", "reclaim", "canary", "gated", "Halted", "RollingBack", "RolledBack", "Complete", "Paused", "Monitoring", "stop TK0752", "stop TK0753", "stop TK0754", "stop TK0755", "stop TK0757"} {
		if first != last && seen[k] == 0 {
			t.Errorf("in no world there was %q", k)
		}
	}
}
