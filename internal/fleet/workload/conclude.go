package workload

import (
	"fmt"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// superseded is why one of two copies is stopped.
const superseded = reason.CopySuperseded

// conclude says how the workload stands when everything is carried out that was decided.
func (w *work) conclude() {
	w.s.Wanted = w.wanted
	w.s.Homes = w.located()
	w.s.Counts = w.counts()
	if w.s.Counts.Available >= w.wanted {
		w.s.Backoff = Backoff{}
	}
	phase, why, because := w.phase()
	w.s.Why = why
	w.s.Culprits = nil
	for _, m := range because {
		if len(w.s.Culprits) < pace.CulpritsMax {
			w.s.Culprits = append(w.s.Culprits, w.culprit(m))
		}
	}
	for _, m := range w.members {
		if _, held := w.held[m]; held && m.standing == live && len(w.s.Leaving) < pace.CulpritsMax {
			w.s.Leaving = append(w.s.Leaving, w.heldUp(m))
		}
	}
	w.s.Since = w.now
	if w.phaseIs(phase) {
		w.s.Since = w.Was.Since
	}
	w.s.Phase = phase
}

func (w *work) counts() Counts {
	c := Counts{Live: len(w.made), Pending: len(w.made)}
	for _, made := range w.made {
		if made.Revision == w.r.Goal {
			c.Updated++
		}
		if w.Spec.Mode == declared.PerNode {
			c.Pending--
		}
	}
	for _, m := range w.members {
		switch m.standing {
		case leaving:
			c.Terminating++
		case abandoned:
			c.Abandoned++
		case live:
			c.add(m, w.updated(m))
		}
	}
	return c
}

func (c *Counts) add(m *member, updated bool) {
	one := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	one(&c.Live, true)
	one(&c.Updated, updated)
	one(&c.Pending, m.Node == "")
	one(&c.Ready, m.Phase == Running && !m.ReadySince.IsZero())
	one(&c.Available, m.available)
	one(&c.Unheard, m.presence == node.Unheard)
	one(&c.Unreachable, m.away() && m.presence != node.Unheard)
}

// phase names the phase, why it is that, and the instances that are to be told with it.
func (w *work) phase() (pace.Phase, string, []*member) {
	r := w.r
	switch {
	case w.Deleting:
		return Stopping, "", w.of(isLeaving)
	case w.d.Make != nil || w.s.Collisions != w.Was.Collisions:
		return orElse(w.Was.Phase, pace.Waiting), orElse(w.Was.Why, "its revision is being made"), nil
	case w.wanted == 0 && w.s.Counts.Live+w.s.Counts.Terminating == 0:
		return pace.Empty, "", nil
	case w.Spec.Mode == declared.RunToCompletion:
		return pace.Rolling, "", nil
	case r.Over && r.Goal != r.Target:
		return pace.RolledBack, w.failureOf(r.Target), nil
	case r.Over:
		return pace.Complete, "", nil
	case w.Spec.Rollout.Pause:
		return pace.Paused, "spec.rollout.pause is set", nil
	case r.Halt != nil:
		return pace.Halted, r.Halt.Why + w.whyNotBack(), w.bad()
	case w.deaf() && w.Was.Phase != "" && w.Was.Rollout.Target == r.Target:
		return w.Was.Phase, w.Was.Why, nil
	case w.deaf():
		return pace.Waiting, "nodes have not had the time yet to be heard by this server", nil
	case !r.Ended.IsZero() && w.shut != "" && !w.now.Before(r.Ended.Add(w.monitor)):
		return pace.Monitoring, w.shut, nil
	case !r.Ended.IsZero():
		return pace.Monitoring, fmt.Sprintf("failures count until %s", r.Ended.Add(w.monitor).UTC().Format(time.RFC3339)), nil
	}
	if why, because := w.waiting(); why != "" {
		return pace.Waiting, why, because
	}
	if r.Goal != r.Target {
		return pace.RollingBack, w.failureOf(r.Target), w.bad()
	}
	return pace.Rolling, "", w.bad()
}

// waiting is what has to come from outside before the rollout goes on. Empty: nothing.
func (w *work) waiting() (string, []*member) {
	r := w.r
	away := w.of(w.isKeptAway)
	switch {
	case len(w.stalled) > 0:
		return w.Brake, w.stalled
	case !r.Held.IsZero() && w.shut != "" && w.strategy() == declared.BlueGreen:
		return fmt.Sprintf("%s is available beside what is there; %s", r.Goal, w.shut), nil
	case !r.Held.IsZero() && w.strategy() == declared.BlueGreen:
		return fmt.Sprintf("%s is available beside what is there, and waits for approval", r.Goal), nil
	case !r.Held.IsZero() && w.shut != "" && !w.now.Before(r.Held.Add(span(w.Spec.Rollout.Steps[r.Step].Pause, 0))):
		return fmt.Sprintf("step %d of %d: %s", r.Step+1, len(w.Spec.Rollout.Steps), w.shut), nil
	case !r.Held.IsZero() && !w.now.Before(r.Held.Add(span(w.Spec.Rollout.Steps[r.Step].Pause, 0))):
		return fmt.Sprintf("step %d of %d waits for approval of %s", r.Step+1, len(w.Spec.Rollout.Steps), r.Goal), nil
	case !r.Held.IsZero():
		return fmt.Sprintf("step %d of %d is looked at", r.Step+1, len(w.Spec.Rollout.Steps)), nil
	case w.lost() && w.count(w.waits) > 0:
		return "all that is missing waits for the nodes that have its data, or is on nodes that are not heard", away
	case w.lost():
		return "all that is missing is on nodes that are not heard", away
	}
	return w.hemmed(""), nil
}

func (w *work) whyNotBack() string {
	switch {
	case w.Spec.Rollout.OnFailure == declare.Halt:
		return "; spec.rollout.onFailure is Halt"
	case w.r.Goal != w.r.Target:
		return "; that was to take the place of " + w.r.Target + ", and what was rolled back to is not rolled back"
	case w.s.Stable.Of == "":
		return "; no revision was stable before that could take its place"
	case w.revision(w.s.Stable.Of) == nil:
		return "; " + w.s.Stable.Of + ", which was stable, is not there any more"
	}
	return "; it was the last that was stable itself"
}

func (w *work) failureOf(revision string) string {
	for i := len(w.s.Failed) - 1; i >= 0; i-- {
		if f := w.s.Failed[i]; f.Revision == revision {
			return f.Why
		}
	}
	return ""
}

// bad are the instances that are to be told: those that have failed first, then those that are not available.
func (w *work) bad() []*member {
	all := w.of(func(m *member) bool { return m.standing < abandoned && m.Failure.counts() })
	return append(all, w.of(func(m *member) bool { return isFresh(m) && !w.done(m) && !m.Failure.counts() })...)
}

func (w *work) culprit(m *member) Culprit {
	c := Culprit{Instance: m.Name, Node: m.Node}
	switch {
	case m.Failure != nil:
		c.Code, c.Why, c.Since = m.Failure.Code, m.Failure.Message, m.Failure.Since
	case w.waits(m):
		c.Why = "it waits for " + m.Bound + ", which has its data"
	case m.away():
		c.Why = "its node is " + m.presence.String()
	case isFresh(m) && !w.updated(m):
		c.Why = "its host has not taken in " + w.r.Goal + " yet"
	case m.Phase == Running && m.ReadySince.IsZero():
		c.Why = "running, not ready"
	case m.Phase == Running:
		c.Why, c.Since = "ready, not for long enough", m.ReadySince
	default:
		c.Why = m.Phase.String()
	}
	return c
}
