package rollout

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// lateAfter is how long a node may be on the way before that counts as failed: 10 minutes, as the progress deadline of a Deployment
// of Kubernetes. It is long enough for packages over a slow line, and a node that comes later is welcome.
const lateAfter = 10 * time.Minute

// Decide returns which nodes get something else now, and how the rollout stands.
func Decide(v View, now time.Time) Decision {
	r := newRollout(&v, now)
	if failed := r.judge(); failed != (Failure{}) {
		v.Was.Failed = failed
		r = newRollout(&v, now)
	}
	r.prove()
	var d Decision
	d.Status = r.status()
	if !now.Before(v.Quiet) {
		d.Moves = r.moves(d.Status.Phase)
	}
	d.WakeAt = r.wakeAt()
	return d
}

// state is what a node is to the rollout.
type state uint8

const (
	left    state = iota // has something else or nothing, and nothing is under way there
	done                 // has converged on the target
	moving               // is on the way, to the target or elsewhere
	failed               // has the target, and something is wrong
	broken               // has something else, and something is wrong with that
	silent               // is not there; may have the target
	unheard              // is not there yet
)

// stop is a node in the rollout.
type stop struct {
	*Node
	state state
	late  bool
	place pace.Place
}

func (s *stop) fresh() bool { return s.Assigned == Target{} }

func (s *stop) refuses(t Target) bool { return slices.Contains(s.Refused, t) }

type rollout struct {
	*View
	now    time.Time
	goal   Target  // what nodes are to have: the target, or, where that has failed and is rolled back, what is proven
	failed Failure // of the target; zero: it has not
	stops  []*stop // in order
	proven pace.Proven[Target]
	alarm  pace.Alarm
	look
}

func newRollout(v *View, now time.Time) *rollout {
	r := &rollout{View: v, now: now, goal: v.Target, proven: pace.Proven[Target]{Of: v.Was.Proven, At: v.Was.ProvenAt}, alarm: pace.Alarm{Now: now}}
	if f := v.Was.Failed; f.Of == v.Target && f.Generation == v.Generation {
		r.failed = f
	}
	if r.failed != (Failure{}) && r.canGoBack() {
		r.goal = r.proven.Of
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		s := &stop{Node: n}
		s.late = !s.fresh() && !n.Since.IsZero() && !now.Before(r.lateAt(n))
		s.state = r.stateOf(s)
		r.stops = append(r.stops, s)
	}
	r.order()
	r.examine()
	return r
}

// back: the target has failed, and what is proven takes its place.
func (r *rollout) back() bool { return r.goal != r.Target }

// canGoBack: there is something that has worked, and can be had, and people want it back.
func (r *rollout) canGoBack() bool {
	return r.Spec.OnFailureOrDefault() == declare.RollBack && r.proven.Of.Revision != "" && r.proven.Of != r.Target && !r.Gone
}

// order puts the nodes in the order in which they go on. On the way back there are no waves.
func (r *rollout) order() {
	for _, s := range r.stops {
		s.place = pace.PlaceOf(r.Config, s.Name, 0)
	}
	slices.SortFunc(r.stops, func(a, b *stop) int { return a.place.Compare(b.place) })
	if r.back() || len(r.Spec.Waves) == 0 {
		return
	}
	members := make([]pace.Member, len(r.stops))
	for i, s := range r.stops {
		members[i] = pace.Member{Labels: s.Labels, Rank: 2}
		switch {
		case s.Assigned == r.goal:
			members[i].Rank = 0
		case s.Presence == Heard && !s.refuses(r.goal):
			members[i].Rank = 1
		}
	}
	for i, wave := range pace.Deal(r.Spec.Waves, members) {
		r.stops[i].place.Wave = wave
	}
	slices.SortFunc(r.stops, func(a, b *stop) int { return a.place.Compare(b.place) })
}

// lateAt is when a node that is on the way is late. A new leader knows no reports, so it begins to count when all had the time to be heard.
func (r *rollout) lateAt(n *Node) time.Time { return pace.Deadline(lateAfter, n.Since, r.Quiet) }

func (r *rollout) stateOf(s *stop) state {
	wrong, right := broken, left
	if s.Assigned == r.goal {
		wrong, right = failed, done
	}
	switch {
	case s.Presence == Unheard:
		return unheard
	case s.Presence == Silent:
		return silent
	case s.fresh():
		return left
	case s.Report.Of == s.Assigned && s.Report.Verdict == Converged:
		return right
	case s.Report.Of == s.Assigned && s.Report.Verdict != Pending:
		return wrong
	case r.settled(s):
		return right // it is busy with what it has, or with something else
	case s.late:
		return wrong
	}
	return moving
}

// settled: what became of its target on this node was known when the target was proven. What goes wrong there afterwards is that
// node's own affair, and does not hold up those that come later.
func (r *rollout) settled(s *stop) bool { return r.proven.Settled(s.Assigned, s.Since) }

// prove notes the goal as proven, when all selected nodes that are heard have converged on it, but for those where it is kept out, and it has been
// looked at for as long as it is to be. Silent nodes get it when they are back; a node that was not heard yet may be one that it broke. Nodes that have got what is proven only
// later, and have converged, are settled from then on like the others.
func (r *rollout) prove() {
	unsettled := func(s *stop) bool { return !r.settled(s) }
	if r.proven.Of == r.goal && r.complete() && slices.ContainsFunc(r.stops, unsettled) {
		r.proven.At = r.now
	}
	if r.cleared && r.proven.Of != r.goal {
		r.proven = pace.Proven[Target]{Of: r.goal, At: r.now}
	}
}

// finished: all selected nodes that are heard have converged, but for those where it is kept out.
func (r *rollout) finished() bool {
	anyDone := false
	for _, s := range r.stops {
		switch {
		case s.state == done:
			anyDone = true
		case s.state == silent && s.Assigned != r.goal:
		case r.refused(s):
		default:
			return false
		}
	}
	return anyDone
}

// refused: the target is kept out on this node, and nothing else is to be said of it.
func (r *rollout) refused(s *stop) bool {
	return (s.state == left || s.state == broken) && s.refuses(r.goal)
}

// halting are the nodes that have the target and are in a bad way.
func (r *rollout) halting() []*stop {
	var all []*stop
	for _, s := range r.stops {
		bad := s.state == failed || s.state == silent && s.Assigned == r.goal
		if bad && !r.settled(s) {
			all = append(all, s)
		}
	}
	return all
}

// maxUnavailable is how many nodes may be unavailable at once. A percentage is rounded down as in Kubernetes, and at least one.
func (r *rollout) maxUnavailable() int {
	return max(pace.Share(r.Spec.MaxUnavailableOrDefault(), len(r.stops), pace.Down), 1)
}

// unavailable counts the nodes that are on the way, silent or not heard yet.
func (r *rollout) unavailable() int {
	n := 0
	for _, s := range r.stops {
		switch {
		case s.state == moving && !r.joining(s), s.state == silent, s.state == unheard, s.state == failed && !r.settled(s):
			n++
		}
	}
	return n
}

// joining: it has got what is proven while something newer is the target, and is counted apart.
func (r *rollout) joining(s *stop) bool {
	return s.Assigned == r.proven.Of && s.Assigned != r.goal
}

// lane is how a node gets something else.
type lane uint8

const (
	none    lane = iota
	paced        // the target, within maxUnavailable
	counted      // the target, and it is one of those that are unavailable already
	rescued      // back to what is proven, because what it has does not work
	joined       // what is proven, because it has nothing
)

// moves lets nodes go on, in order.
func (r *rollout) moves(phase Phase) []Move {
	if r.goal.Revision == "" {
		return nil
	}
	var moves []Move
	budget, joiners := r.maxUnavailable()-r.unavailable(), r.maxUnavailable()
	for _, s := range r.stops {
		if s.state == moving && r.joining(s) {
			joiners--
		}
	}
	wave, frontier := r.wave(), r.frontier()
	for _, at := range r.awaitedFirst() {
		s := r.stops[at]
		lane := r.laneOf(s, phase, s.place.Wave <= wave || s.Awaited, at < frontier)
		to := r.goal
		switch {
		case lane == none, lane == paced && budget <= 0, lane == joined && joiners <= 0:
			continue
		case lane == paced:
			budget--
		case lane == joined:
			joiners--
			to = r.proven.Of
		}
		moves = append(moves, Move{s.Name, to})
	}
	return moves
}

// awaitedFirst is the order in which nodes are looked at, as indexes of stops.
func (r *rollout) awaitedFirst() []int {
	var first, others []int
	for i, s := range r.stops {
		if s.Awaited {
			first = append(first, i)
		} else {
			others = append(others, i)
		}
	}
	return append(first, others...)
}

// laneOf finds the lane of a node. begun: its wave has; passed: a node behind it in the order has the target.
func (r *rollout) laneOf(s *stop, phase Phase, begun, passed bool) lane {
	on := s.state == moving && s.Assigned != r.goal
	if s.state != left && s.state != broken && !on {
		return none
	}
	going, back := phase != Halted && phase != Paused && r.shut == "", r.goal == r.proven.Of
	next := going && !s.refuses(r.goal)
	switch {
	case back && s.state == broken && !s.refuses(r.goal) && phase != Paused:
		return rescued
	case s.fresh() && r.proven.Of.Revision != "" && !r.Gone && !back && !s.refuses(r.proven.Of) && !(next && passed):
		return joined
	case next && begun && on && !r.joining(s):
		return counted
	case next && begun:
		return paced
	case phase == Paused && back && s.fresh() && !s.refuses(r.goal):
		return paced // no rollout that could be paused: the host joins
	}
	return none
}

// wave is the last wave that has begun. One is over when nothing more is to come of its nodes, and at least one has converged: a wave
// in which nobody answers has proved nothing. Those that failed are for haltOnFailed to judge. Nodes of the next one wait until it has been looked at.
func (r *rollout) wave() int {
	begun := pace.Begun(r.waves())
	if r.looked() {
		return min(begun, r.passed)
	}
	return begun
}

// waves counts the nodes of the waves.
func (r *rollout) waves() []pace.Wave {
	if r.back() {
		return nil
	}
	waves := make([]pace.Wave, len(r.Spec.Waves))
	for _, s := range r.stops {
		at := s.place.Wave
		if at == len(waves) {
			continue // the rest, behind all waves
		}
		waves[at].Members++
		switch {
		case s.state == done:
			waves[at].Converged++
		case s.state == silent, s.state == failed, r.refused(s):
		default:
			waves[at].Coming++
		}
	}
	return waves
}

// frontier is behind the last node that has the target: whoever is new and stands before it is next, and gets it at once instead of
// first what is proven.
func (r *rollout) frontier() int {
	for i := len(r.stops); i > 0; i-- {
		if r.stops[i-1].Assigned == r.goal {
			return i
		}
	}
	return 0
}

// wakeAt is when time alone changes something: everybody had the time to be heard, or a node becomes late.
func (r *rollout) wakeAt() time.Time {
	r.alarm.Passed(r.Quiet)
	for _, s := range r.stops {
		if s.state == moving && !s.Since.IsZero() {
			r.alarm.Passed(r.lateAt(s.Node))
		}
	}
	return r.alarm.At
}

// why says what is wrong with a node.
func (s *stop) why(target Target) Culprit {
	c := Culprit{Node: s.Name, Since: s.Report.Since}
	switch {
	case s.Presence == Unheard:
		c.Why, c.Since = "not heard yet", time.Time{}
	case s.Presence == Silent:
		c.Why, c.Since = "silent", time.Time{}
	case s.refuses(target) && s.Assigned != target:
		c.Why, c.Since = "kept out by another config, or for want of room", time.Time{}
	case s.Report.Of == s.Assigned && s.Report.Verdict > Converged:
		c.Code, c.Why = s.Report.Code, s.Report.Verdict.String()
		if s.Report.Message != "" {
			c.Why += ": " + s.Report.Message
		}
	default:
		c.Why, c.Since = fmt.Sprintf("on the way for more than %s", lateAfter), s.Since
	}
	return c
}
