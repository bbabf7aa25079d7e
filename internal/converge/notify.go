package converge

import "slices"

// owed is what one target owes its notifiers.
type owed struct {
	open      map[Key]uint64 // announced, by source: whether anything changed is not known yet
	confirmed []notification // the change is visible: a refresh is due
}

// notification is one confirmed reason to refresh a target.
type notification struct {
	seq     uint64
	source  Key
	covered bool // by a refresh in flight, which started after the change
}

func (o *owed) empty() bool { return len(o.open) == 0 && len(o.confirmed) == 0 }

// announce records, before an apply, everybody whom it will have to notify should it change something, and returns them.
func (e *Engine) announce(id ID) (told []Key) {
	v := &e.graph.Vertices[id]
	for _, a := range e.graph.after(id) {
		if a.kind != Notify || e.graph.Vertices[a.to].NotApplicable {
			continue
		}
		o := e.pending[a.to]
		if o == nil {
			o = &owed{}
			e.pending[a.to] = o
		}
		if o.open == nil {
			o.open = map[Key]uint64{}
		}
		if _, announced := o.open[v.Key]; announced {
			continue // by another edge between the two
		}
		e.lastSeq++
		o.open[v.Key] = e.lastSeq
		target := e.graph.Vertices[a.to].Key
		told = append(told, target)
		e.out.Persist = append(e.out.Persist, Record{Kind: NotificationAdded, Target: target, Source: v.Key, Cause: v.Digest, Seq: e.lastSeq})
	}
	return told
}

// conclude confirms what an apply announced to told, or takes it back because nothing changed. Who was told is remembered
// with the operation, because a Swap may have taken the edge or the source away while it was in flight.
func (e *Engine) conclude(told []Key, source Key, changed bool) {
	for _, k := range told {
		if target := e.graph.ID(k); target != None {
			e.concludeFor(target, source, changed)
		}
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
		e.supersede(target, source)
		o.confirmed = append(o.confirmed, notification{seq: seq, source: source})
		e.look(target, CauseOrder, Shallow)
		return
	}
	e.clear(target, seq)
	e.tidy(target)
}

// supersede clears what a newer change of the same source makes superfluous: the refresh that the newer one asks for serves
// both. So a target that cannot be refreshed owes each source two at most, however often that changes. What a refresh in
// flight covers stays, because that has not seen the newer change.
func (e *Engine) supersede(target ID, source Key) {
	o := e.pending[target]
	o.confirmed = slices.DeleteFunc(o.confirmed, func(n notification) bool {
		if n.source != source || n.covered {
			return false
		}
		e.clear(target, n.seq)
		return true
	})
}

// owes reports whether a refresh is due.
func (e *Engine) owes(id ID) bool {
	o := e.pending[id]
	return o != nil && len(o.confirmed) > 0
}

// cover marks what a refresh starting now covers, and returns the last of it. The number alone does not tell what is covered:
// a change with a smaller one may turn out after the refresh has started.
func (e *Engine) cover(id ID) (upto uint64) {
	confirmed := e.pending[id].confirmed
	for i := range confirmed {
		confirmed[i].covered = true
		upto = max(upto, confirmed[i].seq)
	}
	return upto
}

// acquit clears the notifications that the refresh that has just succeeded covers.
func (e *Engine) acquit(id ID) {
	o := e.pending[id]
	if o == nil {
		return
	}
	o.confirmed = slices.DeleteFunc(o.confirmed, func(n notification) bool {
		if !n.covered {
			return false
		}
		e.clear(id, n.seq)
		return true
	})
	e.tidy(id)
}

// uncover notes that the refresh in flight has failed, so that everything is still owed.
func (e *Engine) uncover(id ID) {
	if o := e.pending[id]; o != nil {
		for i := range o.confirmed {
			o.confirmed[i].covered = false
		}
	}
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
