package converge

import "tako.dev/tako/internal/reason"

// standsBy reports whether id is wanted only while something has failed, and nothing has.
func (e *Engine) standsBy(id ID) bool { return e.states[id].calls == 0 && e.graph.standby[id] }

// standDown settles a vertex that is not wanted. It is left as it is, by everybody: what differs when it is wanted again has not
// drifted. What it owes its notifiers waits until then.
func (e *Engine) standDown(id ID) {
	s := &e.states[id]
	s.dirty, s.again, s.peek, s.wait = false, false, false, 0
	s.proven, s.follows, s.fight = false, false, fight{}
	if s.attempts > 0 || s.holds > 0 {
		s.attempts = 0
		e.budget(id)
	}
	if s.outcome != reason.NotApplicable || s.since == 0 {
		e.settle(id, reason.NotApplicable, "", nil)
	}
	e.setBusy(id, false)
}

// setFailed tells what is wanted only while id has failed whether it has.
func (e *Engine) setFailed(id ID, failed bool) {
	s := &e.states[id]
	if s.failed == failed {
		return
	}
	s.failed = failed
	step := int32(1)
	if !failed {
		step = -1
	}
	for _, a := range e.graph.after(id) {
		if a.kind != Rescue {
			continue
		}
		after := &e.states[a.to]
		after.calls += step
		if !e.graph.standby[a.to] || after.calls > 1 || failed != (after.calls == 1) {
			continue // whether it is wanted has not changed
		}
		if failed {
			e.soil(a.to, CauseOrder)
		}
		e.work = append(e.work, a.to)
	}
}
