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
	e.advance(now)
	old, states, pending, free := e.graph, e.states, e.pending, e.free
	e.adopt(g)
	for was := range free {
		if id := g.ID(old.Vertices[was].Key); id != None {
			e.release([]ID{id})
		}
	}
	for i := range e.states {
		if was := old.ID(g.Vertices[i].Key); was != None {
			e.inherit(ID(i), &states[was], old.Vertices[was].Digest == g.Vertices[i].Digest)
		}
	}
	for _, o := range e.ops {
		for i := range o.ids {
			// Whatever inherit did not take over. By key, and not from its old state: a vertex may have left one graph and come
			// back with the next. A check is always void, for a plan is made for one graph.
			if o.ids[i] = g.ID(o.keys[i]); o.ids[i] != None && e.states[o.ids[i]].phase == idle {
				e.states[o.ids[i]].phase = stale
			}
		}
	}
	e.forgive(old, states)
	e.repay(old, pending)
	return e.run(), nil
}

// forgive clears the budgets that no vertex has taken over.
func (e *Engine) forgive(old *Graph, states []state) {
	for was := range states {
		if states[was].attempts == 0 && states[was].holds == 0 {
			continue
		}
		k := old.Vertices[was].Key
		if id := e.graph.ID(k); id == None || e.states[id].attempts == 0 && e.states[id].holds == 0 {
			e.out.Persist = append(e.out.Persist, Record{Kind: BudgetCleared, Target: k})
		}
	}
}

// inherit takes over what still holds of a vertex's old state.
func (e *Engine) inherit(id ID, was *state, same bool) {
	s := &e.states[id]
	comparable := same && !e.graph.Vertices[id].NotApplicable && was.outcome != reason.NotApplicable
	if e.graph.Vertices[id].NotApplicable && was.outcome == reason.NotApplicable {
		s.since = was.since // it has been told
	}
	if !comparable {
		if same && e.graph.standby[id] && was.outcome == reason.NotApplicable {
			s.outcome, s.since = was.outcome, was.since // until it is known whether it is wanted
			e.setOK(id, true)
		}
		return
	}
	if was.phase == applying || was.phase == refreshing {
		s.phase, s.again, s.drift = was.phase, was.again, was.drift // what it does is still wanted, and told
	}
	s.verdict, s.fight = was.verdict, was.fight
	s.attempts, s.failedIn, s.proven, s.follows, s.depth = was.attempts, was.failedIn, was.proven, was.follows, was.depth
	if s.outcome == reason.Blocked {
		s.verdict = verdict{blockedBy: None} // by whom may be another question now
	}
	if s.outcome.Converged() {
		e.setOK(id, true)
	}
	e.setFailed(id, s.outcome == reason.Failed)
	s.dirty = was.dirty || !s.outcome.Converged() || e.graph.standby[id] // who wants it may be another question now
	s.cause = was.cause
	if was.outcome == reason.Failed && !was.dirty {
		s.dirty = false // it has failed for good with this very desire
	}
	if was.wait > e.now && was.wait != untilOpen { // what its window says is asked anew
		e.delay(id, was.wait-e.now)
		s.peek = was.peek || was.again
		if s.inLine = was.inLine; s.inLine {
			e.lane(id).waiting++
		}
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

func sortedKeys[V any](m map[Key]V) []Key {
	keys := make([]Key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
