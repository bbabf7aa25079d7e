package rollout

import (
	"fmt"

	"tako.dev/tako/internal/fleet/rollout/pace"
)

// status says how the rollout stands.
func (r *rollout) status() Status {
	s := Status{Target: r.Target, Proven: r.proven.Of, ProvenAt: r.proven.At, Counts: r.counts(), Since: r.now}
	var because []*stop
	s.Phase, s.Why, because = r.phase(s.Counts)
	for _, stop := range because {
		if len(s.Culprits) < CulpritsMax {
			s.Culprits = append(s.Culprits, stop.why(r.Target))
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
	case r.complete():
		return Complete, "", nil
	case r.Spec.Pause:
		why := "spec.rollout.pause is set"
		if r.PausedBy != "" {
			why += " by " + r.PausedBy
		}
		return Paused, why, nil
	case pace.Reached(len(halting), r.Spec.HaltOnFailedOrDefault()):
		return Halted, fmt.Sprintf("nodes that have %s and are in a bad way: %d; spec.rollout.haltOnFailed is %d",
			r.Target.Revision, len(halting), r.Spec.HaltOnFailedOrDefault()), halting
	case r.now.Before(r.Quiet):
		return Waiting, "nodes have not had the time yet to be heard by this server", r.in(unheard)
	case c.OnTheWay > 0 || c.Left > 0 && r.unavailable() < r.maxUnavailable() && !r.held():
		return Rolling, "", nil
	case c.Left > 0 && r.held():
		return Waiting, fmt.Sprintf("wave %d cannot be finished", r.wave()+1), r.holding()
	case c.Left > 0:
		return Waiting, fmt.Sprintf("nodes that are unavailable: %d; spec.rollout.maxUnavailable allows %d", r.unavailable(), r.maxUnavailable()), r.in(unheard, silent, failed)
	}
	return Waiting, "all but these nodes have converged", r.holding()
}

// complete: all nodes have converged on the target, or had when it was proven. So a node that fails or is silent long after is told as
// what it is, a node, and the rollout is over once.
func (r *rollout) complete() bool {
	for _, s := range r.stops {
		if s.state != done && !(r.proven.Of == r.Target && r.settled(s)) {
			return false
		}
	}
	return true
}

// held: the next nodes are in a wave that has not begun.
func (r *rollout) held() bool {
	wave := r.wave()
	for _, s := range r.stops {
		if s.place.Wave() <= wave && (s.state == left || s.state == broken) && !r.refused(s) {
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
		if s.place.Wave() <= wave && (s.state == silent || s.state == unheard || s.state == failed || r.refused(s)) {
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
