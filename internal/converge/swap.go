package converge

import (
	"slices"
	"time"

	"tako.dev/tako/internal/reason"
)

// Swap replaces the graph. What has the same key and digest keeps its status, its budgets and what is proven of it; what
// is new or differs starts afresh. Operations in flight go on; the results of those whose desire is over, and of checks, only
// say that they are over. Notifications follow their target's key; those whose target is gone are cleared.
func (e *Engine) Swap(now time.Time, g *Graph) (Effects, error) {
	if err := e.knowsLanes(g); err != nil {
		return Effects{}, err
	}
	e.now, e.wall = e.clock.advance(now), now
	e.out = Effects{}
	old, states, pending := e.graph, e.states, e.pending
	e.adopt(g)
	for i := range e.states {
		if was := old.ID(g.Vertices[i].Key); was != None {
			e.inherit(ID(i), &states[was], old.Vertices[was].Digest == g.Vertices[i].Digest)
		}
	}
	for _, o := range e.ops {
		for i := range o.ids {
			o.ids[i] = g.ID(o.keys[i])
		}
	}
	e.repay(old, pending)
	e.run()
	return e.out, nil
}

// inherit takes over what still holds of a vertex's old state.
func (e *Engine) inherit(id ID, was *state, same bool) {
	s := &e.states[id]
	comparable := same && !e.graph.Vertices[id].NotApplicable && was.outcome != reason.NotApplicable
	switch was.phase {
	case applying, refreshing:
		s.phase = stale
		if comparable {
			s.phase, s.again, s.drift = was.phase, was.again, was.drift // what it does is still wanted, and told
		}
	case checking, stale:
		s.phase = stale // a plan is made for one graph
	case idle, queuedCheck, queuedApply, queuedRefresh:
	}
	if !comparable {
		return
	}
	s.outcome, s.detail, s.err, s.since = was.outcome, was.detail, was.err, was.since
	s.attempts, s.repairs, s.holds = was.attempts, was.repairs, was.holds
	s.windowAt, s.fixedAt, s.failedIn = was.windowAt, was.fixedAt, was.failedIn
	s.proven, s.depth = was.proven, was.depth
	if s.outcome == reason.Blocked {
		s.outcome, s.since = reason.Unknown, time.Time{} // by whom may be another question now
	}
	if s.outcome.Converged() {
		e.setOK(id, true)
	}
	s.dirty = was.dirty || s.phase == stale || !s.outcome.Converged()
	s.cause = was.cause
	if was.wait > e.now {
		e.delay(id, was.wait-e.now)
	}
	if was.outcome == reason.Failed && !was.dirty {
		s.dirty = false // it has failed for good with this very desire
	}
}

// repay carries over what targets owe.
func (e *Engine) repay(old *Graph, pending map[ID]*owed) {
	e.pending = map[ID]*owed{}
	ids := make([]ID, 0, len(pending))
	for id := range pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, was := range ids {
		o, key := pending[was], old.Vertices[was].Key
		if id := e.graph.ID(key); id != None && !e.graph.Vertices[id].NotApplicable {
			e.pending[id] = o
			e.look(id, CauseOrder, Shallow)
			continue
		}
		for _, n := range o.confirmed {
			e.out.Persist = append(e.out.Persist, Record{Kind: NotificationCleared, Target: key, Seq: n.seq})
		}
		for _, source := range sortedKeys(o.open) {
			e.out.Persist = append(e.out.Persist, Record{Kind: NotificationCleared, Target: key, Seq: o.open[source]})
		}
	}
}

func sortedKeys(m map[Key]uint64) []Key {
	keys := make([]Key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
