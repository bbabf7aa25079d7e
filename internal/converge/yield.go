package converge

// yieldAuto returns the explicit edges, which have no cycle, and the automatic ones that fit, and those that do not. None is
// dropped that would fit: each of the dropped would close a cycle with those kept.
//
// Only edges inside a tangle can be on a cycle. There the vertices are put in line: one comes when everything that it is
// ordered after has come, and where nobody can, the first one that only automatic edges hold back. Automatic edges against the
// line are put aside, and those of them that no way leads against are put back. So an automatic edge that contradicts
// nothing costs nothing, and one that does costs a look at what follows it.
func yieldAuto(n int, explicit, auto []Edge) (kept, dropped []Edge) {
	kept = make([]Edge, 0, len(explicit)+len(auto))
	kept = append(append(kept, explicit...), auto...)
	tangle, count := tangles(arcsFrom(n, kept))
	if count == 0 {
		return kept, nil
	}
	soft := func(e Edge) bool { return e.Kind.yields() && tangle[e.From] == tangle[e.To] && tangle[e.From] != 0 }
	place := lineUp(n, kept, soft)
	var aside []int // indexes into kept
	ways := newWays(n)
	for i, e := range kept {
		switch {
		case place[e.From] > place[e.To]:
			aside = append(aside, i)
		case tangle[e.From] == tangle[e.To]:
			ways.add(e.From, e.To) // no way out of a tangle leads back into it
		}
	}
	drop := make([]bool, len(kept))
	for _, i := range aside {
		if e := kept[i]; ways.lead(e.To, e.From) {
			drop[i] = true
			dropped = append(dropped, e)
		} else {
			ways.add(e.From, e.To)
		}
	}
	fit := kept[:0]
	for i, e := range kept {
		if !drop[i] {
			fit = append(fit, e)
		}
	}
	return fit, dropped
}

// lineUp gives each vertex a place so that every edge that is not soft leads forwards, and soft ones as far as that is easy.
func lineUp(n int, edges []Edge, soft func(Edge) bool) (place []int32) {
	const unplaced = -1
	place = make([]int32, n)
	hard, all := make([]int32, n), make([]int32, n) // edges from vertices that have no place yet
	out := make([][]int32, n)
	for i, e := range edges {
		all[e.To]++
		if !soft(e) {
			hard[e.To]++
		}
		out[e.From] = append(out[e.From], int32(i))
	}
	var free, held []ID // nothing holds back; only soft edges do, or did
	for v := range place {
		place[v] = unplaced
		switch {
		case all[v] == 0:
			free = append(free, ID(v))
		case hard[v] == 0:
			held = append(held, ID(v))
		}
	}
	for placed := int32(0); len(free) > 0 || len(held) > 0; {
		var v ID
		if len(free) > 0 {
			v, free = free[0], free[1:]
		} else {
			v, held = held[0], held[1:]
		}
		if place[v] != unplaced {
			continue
		}
		place[v] = placed
		placed++
		for _, i := range out[v] {
			e := edges[i]
			all[e.To]--
			if !soft(e) {
				hard[e.To]--
			}
			switch {
			case all[e.To] == 0:
				free = append(free, e.To)
			case hard[e.To] == 0 && !soft(e):
				held = append(held, e.To)
			}
		}
	}
	return place
}

// ways answers whether a way leads from one vertex to another.
type ways struct {
	out   [][]ID
	seen  []int32 // the question in which a vertex was seen last
	asked int32
	stack []ID
}

func newWays(n int) *ways { return &ways{out: make([][]ID, n), seen: make([]int32, n)} }

func (w *ways) add(from, to ID) { w.out[from] = append(w.out[from], to) }

func (w *ways) lead(from, to ID) bool {
	w.asked++
	w.stack = append(w.stack[:0], from)
	w.seen[from] = w.asked
	for len(w.stack) > 0 {
		v := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		if v == to {
			return true
		}
		for _, next := range w.out[v] {
			if w.seen[next] != w.asked {
				w.seen[next] = w.asked
				w.stack = append(w.stack, next)
			}
		}
	}
	return false
}
