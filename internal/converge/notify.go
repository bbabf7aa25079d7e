package converge

import "slices"

// owed is what one target owes its notifiers.
type owed struct {
	open      map[Key]uint64 // announced, by source: whether anything changed is not known yet
	confirmed []notification // the change is visible: a refresh is due
}

// notification is one confirmed reason to refresh a target.
type notification struct {
	seq    uint64
	source Key
}

func (o *owed) empty() bool { return len(o.open) == 0 && len(o.confirmed) == 0 }

// announce records, before an apply, everybody whom it will have to notify should it change something.
func (e *Engine) announce(id ID) {
	v := &e.graph.Vertices[id]
	for _, a := range e.graph.out[id] {
		if a.kind != Notify || e.graph.Vertices[a.to].NotApplicable {
			continue
		}
		e.lastSeq++
		o := e.pending[a.to]
		if o == nil {
			o = &owed{}
			e.pending[a.to] = o
		}
		if o.open == nil {
			o.open = map[Key]uint64{}
		}
		o.open[v.Key] = e.lastSeq
		e.out.Persist = append(e.out.Persist, Record{Kind: NotificationAdded, Target: e.graph.Vertices[a.to].Key, Source: v.Key, Cause: v.Digest, Seq: e.lastSeq})
	}
}

// conclude confirms what an apply announced, or takes it back because nothing changed. id is None when the source has left
// the graph while its apply was in flight.
func (e *Engine) conclude(id ID, source Key, changed bool) {
	if id == None {
		for _, target := range e.targets() {
			e.concludeFor(target, source, changed)
		}
		return
	}
	for _, a := range e.graph.out[id] {
		e.concludeFor(a.to, source, changed)
	}
}

func (e *Engine) concludeFor(target ID, source Key, changed bool) {
	o := e.pending[target]
	if o == nil {
		return
	}
	seq, announced := o.open[source]
	if !announced {
		return
	}
	delete(o.open, source)
	if changed {
		o.confirmed = append(o.confirmed, notification{seq, source})
		e.look(target, CauseOrder, Shallow)
		return
	}
	e.clear(target, seq)
	e.tidy(target)
}

// targets returns who is owed to, in order, so that equal histories have equal effects.
func (e *Engine) targets() []ID {
	ids := make([]ID, 0, len(e.pending))
	for id := range e.pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// owes reports whether a refresh is due.
func (e *Engine) owes(id ID) bool {
	o := e.pending[id]
	return o != nil && len(o.confirmed) > 0
}

// upto returns the last notification that a refresh starting now covers.
func (e *Engine) upto(id ID) uint64 {
	var last uint64
	for _, n := range e.pending[id].confirmed {
		last = max(last, n.seq)
	}
	return last
}

// acquit clears the confirmed notifications up to a number.
func (e *Engine) acquit(id ID, upto uint64) {
	o := e.pending[id]
	if o == nil {
		return
	}
	o.confirmed = slices.DeleteFunc(o.confirmed, func(n notification) bool {
		if n.seq > upto {
			return false
		}
		e.clear(id, n.seq)
		return true
	})
	e.tidy(id)
}

func (e *Engine) clear(id ID, seq uint64) {
	e.out.Persist = append(e.out.Persist, Record{Kind: NotificationCleared, Target: e.graph.Vertices[id].Key, Seq: seq})
}

// tidy drops the books of a target that owes nothing.
func (e *Engine) tidy(id ID) {
	if e.pending[id].empty() {
		delete(e.pending, id)
	}
}
