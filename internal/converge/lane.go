package converge

import "slices"

// lane is a Lane at work.
type lane struct {
	Lane
	urgent    []ID // checks that an event asked for
	checks    []ID // the other checks
	applies   []ID
	refreshes []ID
	inFlight  int
	checking  int // checks in flight
	waiting   int // vertices in line for a token
	bucket    bucket
}

func (l *lane) queueCheck(id ID, urgent bool) {
	if urgent {
		l.urgent = append(l.urgent, id)
		return
	}
	l.checks = append(l.checks, id)
}

// gathered reports whether applying now would leave nothing behind that is about to join.
func (l *lane) gathered() bool {
	return !l.Gather || l.checking == 0 && len(l.urgent) == 0 && len(l.checks) == 0
}

// dispatch starts what the lane's bounds allow: first what finishes a vertex, then new checks, those of events first.
func (e *Engine) dispatch(l *lane) {
	for l.inFlight < l.Parallel {
		switch {
		case len(l.refreshes) > 0:
			e.start(l, Refresh, e.take(&l.refreshes, l.Batch, Refresh))
		case len(l.applies) > 0 && l.gathered():
			e.start(l, Apply, e.take(&l.applies, l.Batch, Apply))
		case len(l.urgent) > 0:
			e.start(l, Check, e.take(&l.urgent, l.Batch, Check))
		case len(l.checks) > 0:
			e.start(l, Check, e.take(&l.checks, l.Batch, Check))
		default:
			return
		}
	}
}

// take removes up to n vertices from a queue. One whose order or requirements no longer hold goes back to be evaluated
// anew: what was planned for it is void.
func (e *Engine) take(queue *[]ID, n int, verb Verb) []ID {
	acts := verb != Check
	taken := make([]ID, 0, min(n, len(*queue)))
	i := 0
	for ; i < len(*queue) && len(taken) < n; i++ {
		id := (*queue)[i]
		s := &e.states[id]
		if s.busyPreds > 0 || e.standsBy(id) || s.badPreds > 0 && (acts || !s.proven) || verb == Apply && e.shut(id, Apply) {
			s.phase = idle
			s.dirty = true
			e.work = append(e.work, id)
			continue
		}
		taken = append(taken, id)
	}
	*queue = (*queue)[i:]
	if len(*queue) == 0 {
		*queue = nil
	}
	return taken
}

// start puts an operation in flight. An apply first announces whom it may have to notify.
func (e *Engine) start(l *lane, verb Verb, ids []ID) {
	if len(ids) == 0 {
		return
	}
	e.lastToken++
	o := &op{verb: verb, lane: l, ids: ids, keys: make([]Key, len(ids))}
	started := Op{Token: e.lastToken, Verb: verb, Lane: l.Name, IDs: slices.Clone(ids)}
	for i, id := range ids {
		s := &e.states[id]
		o.keys[i] = e.graph.Vertices[id].Key
		if verb != Refresh {
			o.seen = append(o.seen, s.depth)
			s.depth = Shallow
		}
		switch verb {
		case Check:
			s.phase, s.again = checking, false
			started.Depth = max(started.Depth, o.seen[i])
		case Apply:
			s.phase = applying
			o.told = append(o.told, e.announce(id))
		case Refresh:
			s.phase = refreshing
			started.Upto = append(started.Upto, e.cover(id))
			started.Shut = append(started.Shut, e.shut(id, Refresh))
		}
	}
	e.ops[e.lastToken] = o
	l.inFlight++
	if verb == Check {
		l.checking++
	}
	e.out.Start = append(e.out.Start, started)
}
