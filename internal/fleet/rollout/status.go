package rollout

import (
	"fmt"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// status says how the rollout stands.
func (r *rollout) status() Status {
	s := Status{
		Target: r.Target, Goal: r.goal, Proven: r.proven.Of, ProvenAt: r.proven.At, Counts: r.counts(), Since: r.now, Failed: r.failed,
	}
	if r.looked() && !r.cleared {
		s.Waves, s.Passed, s.First, s.Held = r.plan, r.passed, r.first, r.held
	}
	var because []*stop
	s.Phase, s.Why, because = r.phase(s.Counts)
	for _, stop := range because {
		if len(s.Culprits) < CulpritsMax {
			s.Culprits = append(s.Culprits, stop.why(r.goal))
		}
	}
	if r.Was.Phase == s.Phase && r.Was.Target == s.Target {
		s.Since = r.Was.Since
	}
	return s
}

func (r *rollout) counts() Counts {
	c := Counts{Selected: len(r.stops)}
	for _, s := range r.stops {
		switch {
		case s.state == done:
			c.Done++
		case s.state == moving:
			c.OnTheWay++
		case s.state == failed:
			c.Failed++
		case s.state == silent:
			c.Silent++
		case s.state == unheard:
			c.Unheard++
		case r.refused(s):
			c.Refused++
		default:
			c.Left++
		}
	}
	return c
}

// phase names the phase, why it is that, and the nodes that are to be told with it.
func (r *rollout) phase(c Counts) (Phase, string, []*stop) {
	halting := r.halting()
	switch {
	case c.Selected == 0 || r.Target.Revision == "":
		return Empty, "", nil
	case r.complete() && r.back():
		return RolledBack, r.failed.words(), nil
	case r.complete() && r.proven.Of == r.goal:
		return Complete, "", nil
	case r.Spec.Pause:
		why := "spec.rollout.pause is set"
		if r.PausedBy != "" {
			why += " by " + r.PausedBy
		}
		return Paused, why, nil
	case r.failed != (Failure{}) && !r.back():
		return Halted, r.failed.Why + r.whyNotBack(), halting
	case pace.Reached(len(halting), r.Spec.HaltOnFailedOrDefault()):
		return Halted, r.tooMany(halting), halting
	case r.now.Before(r.Quiet):
		return Waiting, "nodes have not had the time yet to be heard by this server", r.in(unheard)
	case r.complete():
		return Monitoring, r.why, nil
	}
	phase, why, because := r.progress(c)
	switch {
	case r.back() && phase == Rolling:
		return RollingBack, r.failed.words(), because
	case r.back():
		return phase, r.failed.words() + "; " + why, because
	}
	return phase, why, because
}

// progress is how one stands that goes on, or would if something came from outside.
func (r *rollout) progress(c Counts) (Phase, string, []*stop) {
	switch {
	case c.OnTheWay > 0 || c.Left > 0 && r.unavailable() < r.maxUnavailable() && !r.stuck() && r.shut == "":
		return Rolling, "", nil
	case r.why != "":
		return Waiting, r.why, nil
	case r.shut != "":
		return Waiting, r.shut, nil
	case c.Left > 0 && r.stuck():
		return Waiting, fmt.Sprintf("wave %d cannot be finished", r.wave()+1), r.holding()
	case c.Left > 0:
		return Waiting, fmt.Sprintf("nodes that are unavailable: %d; spec.rollout.maxUnavailable allows %d", r.unavailable(), r.maxUnavailable()), r.in(unheard, silent, failed)
	}
	return Waiting, "all but these nodes have converged", r.holding()
}

// words say what has failed, and why.
func (f *Failure) words() string { return f.Of.Revision + " has failed: " + f.Why }

// whyNotBack says why there is no way back that people want.
func (r *rollout) whyNotBack() string {
	switch {
	case r.Spec.OnFailureOrDefault() != declare.RollBack, r.canGoBack():
		return ""
	case r.Gone:
		return "; what was proven last cannot be had any more: a value that it took from elsewhere has changed"
	}
	return "; nothing was proven before, so that there is no way back"
}

// complete: all nodes have converged on the target, or had when it was proven. So a node that fails or is silent long after is told as
// what it is, a node, and the rollout is over once.
func (r *rollout) complete() bool {
	for _, s := range r.stops {
		if s.state != done && !(r.proven.Of == r.goal && r.settled(s)) {
			return false
		}
	}
	return true
}

// stuck: the next nodes are in a wave that has not begun.
func (r *rollout) stuck() bool {
	wave := r.wave()
	for _, s := range r.stops {
		if s.place.Wave <= wave && (s.state == left || s.state == broken) && !r.refused(s) {
			return false
		}
	}
	return true
}

// holding are the nodes of the waves that have begun that do not go on by themselves.
func (r *rollout) holding() []*stop {
	var all []*stop
	wave := r.wave()
	for _, s := range r.stops {
		if s.place.Wave <= wave && (s.state == silent || s.state == unheard || s.state == failed || r.refused(s)) {
			all = append(all, s)
		}
	}
	return all
}

func (r *rollout) in(states ...state) []*stop {
	var all []*stop
	for _, s := range r.stops {
		for _, state := range states {
			if s.state == state {
				all = append(all, s)
			}
		}
	}
	return all
}
