package sim

import (
	"slices"
	"time"

	agentcore "tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// step feeds the graph.
func (h *host) step(e converge.Event) { h.carryOut(h.engine.Step(h.a.time(), e)) }

// carryOut makes durable, then starts.
func (h *host) carryOut(out converge.Effects) {
	a := h.a
	if len(out.Persist) > 0 {
		h.persist(out.Persist)
	}
	for _, op := range out.Start {
		h.takeOff(op)
	}
	if out.Wake > 0 {
		h.tick++
		tick := h.tick
		a.every(out.Wake, func() {
			if h.tick == tick {
				h.step(converge.Tick{})
			}
		})
	}
	for i, r := range out.Reports {
		if r.Outcome.Converged() {
			v := &h.compiled.Graph.Vertices[out.Reports[i].ID]
			h.met[v.Key] = v.Digest
		}
	}
	h.settle()
	a.checkHost()
}

// persist keeps the ledger. One that cannot be written is a reason not to begin: the agent then ends, and is started again.
func (h *host) persist(records []converge.Record) {
	next := ledger{Pending: slices.Clone(h.ledger.Pending), Budgets: slices.Clone(h.ledger.Budgets), Removals: h.ledger.Removals}
	for _, r := range records {
		switch r.Kind {
		case converge.NotificationAdded:
			h.a.w.seen.Notifications++
			next.Pending = append(next.Pending, converge.Pending{Seq: r.Seq, Target: r.Target, Source: r.Source})
		case converge.NotificationCleared:
			next.Pending = slices.DeleteFunc(next.Pending, func(p converge.Pending) bool { return p.Seq == r.Seq })
		case converge.BudgetSpent, converge.BudgetCleared:
			next.Budgets = slices.DeleteFunc(next.Budgets, func(b budget) bool { return b.Key == r.Target })
			if r.Kind == converge.BudgetSpent {
				next.Budgets = append(next.Budgets, budget{r.Target, r.Budget.Digest, r.Budget.Attempts, r.Budget.Holds, r.Budget.Wait})
			}
		}
	}
	if err := h.saveLedger(next); err != nil {
		panic(dies{})
	}
}

// takeOff starts an operation, and decides how it ends.
func (h *host) takeOff(op converge.Op) {
	a, g := h.a, h.compiled.Graph
	f := &flight{op: op, began: h.moment, results: make([]converge.Result, len(op.IDs))}
	for i, id := range op.IDs {
		v := &g.Vertices[id]
		f.keys, f.digests = append(f.keys, v.Key), append(f.digests, v.Digest)
		var targets []converge.Key
		if op.Verb == converge.Apply {
			targets = slices.Clone(h.told[id])
		}
		f.targets = append(f.targets, targets)
		if a.w.chance(a.w.faults / 3) {
			codes := []reason.Code{reason.DiskFull, reason.ConcurrentEdit, reason.PackageLock}
			f.results[i].Err = &reason.Error{Code: one(a.w, codes), Doing: op.Verb.String()}
		}
	}
	h.flights = append(h.flights, f)
	a.every(time.Millisecond+a.w.within(300*time.Millisecond), func() { h.land(f) })
}

// takeEffect is the one moment in which an operation looks at the host, or changes it.
func (h *host) takeEffect(f *flight) {
	if f.took {
		return
	}
	f.took = true
	h.moment++
	for i, k := range f.keys {
		r := &f.results[i]
		want := h.wanted(k, f.digests[i])
		right := h.actual[k] == want
		switch f.op.Verb {
		case converge.Check:
			r.InSync = r.Err == nil && right
		case converge.Apply:
			switch {
			case r.Err == nil:
				r.Changed = !right
				h.set(k, want)
			case h.a.w.chance(0.3):
				r.Changed = true
				h.set(k, converge.Digest{200}) // half-way
			}
			for _, to := range f.targets[i] {
				if r.Changed {
					h.owed[to] = h.moment
				}
			}
		case converge.Refresh:
			r.Changed = r.Err == nil
		}
	}
}

// wanted is how something is to be: of a removal, not at all.
func (h *host) wanted(k converge.Key, digest converge.Digest) converge.Digest {
	if id := h.compiled.Graph.ID(k); id != converge.None && h.compiled.Items[id].Removal >= 0 {
		return converge.Digest{}
	}
	return digest
}

func (h *host) set(k converge.Key, to converge.Digest) {
	if to == (converge.Digest{}) {
		delete(h.actual, k)
		return
	}
	h.actual[k] = to
}

// land reports an operation.
func (h *host) land(f *flight) {
	h.takeEffect(f)
	h.flights = slices.DeleteFunc(h.flights, func(o *flight) bool { return o == f })
	for i, k := range f.keys {
		r := &f.results[i]
		switch {
		case f.op.Verb == converge.Refresh && r.Err == nil && !r.Owed:
			h.a.w.seen.Refreshes++
			if h.owed[k] <= f.began {
				delete(h.owed, k)
			}
		case f.op.Verb != converge.Refresh && r.Err == nil && (r.InSync || f.op.Verb == converge.Apply):
			h.removed(k)
		}
	}
	h.step(converge.Done{Token: f.op.Token, Results: f.results})
}

// removed forgets a removal that was carried out.
func (h *host) removed(k converge.Key) {
	id := h.compiled.Graph.ID(k)
	if id == converge.None || h.compiled.Items[id].Removal < 0 {
		return
	}
	next := h.ledger
	next.Removals = slices.DeleteFunc(slices.Clone(next.Removals), func(r activeEntry) bool { return agentcore.Key(r.Claim) == k })
	if len(next.Removals) < len(h.ledger.Removals) && h.saveLedger(next) != nil {
		h.ledger = next // it reaches the disk with what is written next, or is found to be undone at the next start
	}
}

// settle notes that all that can be done has been done once.
func (h *host) settle() {
	if h.life.Settled || h.life.Enforced.Version == 0 || !h.engine.Quiet() || len(h.flights) > 0 {
		return
	}
	next := h.life
	next.Settled, next.Trial = true, next.Trial.Settle()
	if h.a.held.setLife(next) == nil {
		h.life = next
	}
}

// ends is the end of a run: what was in flight may be done all the same.
func (h *host) ends() {
	if h.compiled != nil {
		for _, f := range h.flights {
			if h.a.w.chance(0.5) {
				h.takeEffect(f)
			}
		}
	}
	h.flights, h.engine = nil, nil
	h.tick++
}

// drift changes something on the host behind the agent's back, which an event tells it.
func (h *host) drift() {
	if h.engine == nil || h.compiled.Graph.Len() == 0 {
		return
	}
	id := converge.ID(h.a.w.random.IntN(h.compiled.Graph.Len()))
	if h.compiled.Items[id].Removal >= 0 {
		return // what somebody makes anew after it was removed is theirs
	}
	h.set(h.compiled.Graph.Vertices[id].Key, converge.Digest{byte(1 + h.a.w.random.IntN(5))})
	h.step(converge.Touched{IDs: []converge.ID{id}})
}
