package assignments

import (
	"cmp"
	"math"
	"slices"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/transfer/wire"
)

// orders are the highest order of an operator about each config that what is declared has caught up with: some host had it in force, and is to
// have the same by its Assignment. They stand in the Assignments, from which they are read again; a host that has not heard of such an order
// would take it otherwise, and go back to it, when somebody brings it one day.
type orders map[string]v1alpha1.AbsorbedOrder

// note notes an order, and says whether it is above what was known.
func (o orders) note(x v1alpha1.AbsorbedOrder) bool {
	if have, known := o[x.Config]; known && compareOrders(have, x) >= 0 {
		return false
	}
	o[x.Config] = x
	return true
}

func compareOrders(a, b v1alpha1.AbsorbedOrder) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Number, b.Number))
}

// stored notes the orders of an Assignment.
func (o orders) stored(a *v1alpha1.Assignment) {
	for _, x := range a.Spec.Absorbed {
		o.note(x)
	}
}

// caughtUp notes the orders that a host has in force and that say what it is to have anyway, and says whether one of them is new. An order counts
// for the epoch of the head that it is applied to.
func (o orders) caughtUp(h *host) (news bool) {
	r := h.seen.Report
	if r == nil {
		return false
	}
	for i := range r.Statements {
		s := &r.Statements[i]
		if s.Code != 0 || s.Number > math.MaxInt64 || r.Have.Epoch > math.MaxInt64 {
			continue
		}
		if is(h, s) && o.note(v1alpha1.AbsorbedOrder{Config: s.Layer, Epoch: int64(r.Have.Epoch), Number: int64(s.Number)}) {
			news = true
		}
	}
	return news
}

// is tells whether a host is to have what an order says: by what is stored for it, or by what was decided last.
func is(h *host, s *wire.Statement) bool {
	for _, row := range h.rows {
		if row.Config == s.Layer {
			return row.Root == s.Root.String()
		}
	}
	l := h.layer(s.Layer)
	return l != nil && l.Root == s.Root.String()
}

// absorbed are the orders about the layers of an Assignment, by config: none of those that are stored goes back.
func absorbed(layers []v1alpha1.AssignedLayer, was []v1alpha1.AbsorbedOrder, known orders) []v1alpha1.AbsorbedOrder {
	var all []v1alpha1.AbsorbedOrder
	for i := range layers {
		x, found := known[layers[i].Config]
		if at := slices.IndexFunc(was, func(w v1alpha1.AbsorbedOrder) bool { return w.Config == layers[i].Config }); at >= 0 && compareOrders(was[at], x) > 0 {
			x, found = was[at], true
		}
		if found {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.AbsorbedOrder) int { return cmp.Compare(a.Config, b.Config) })
	return all
}
