package workloads

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/node"
)

// gangSize is how many instances a gang has.
const gangSize = 3

// gangs are the jobs whose instances begin together, as they are in truth.
type gangs struct {
	begun map[types.UID]bool                    // of which there has been an instance
	tried map[types.UID]map[int32]bool          // which slots were tried in the round that is under way
	kept  map[types.UID]map[int32]*keptInstance // which the store has refused last
}

// keptInstance is one that the store has refused, of a gang that has begun.
type keptInstance struct {
	of   *server
	run  int
	node string
	at   time.Time
}

// againMin and againMax are when it is tried again: who is tried at another time is wanted anew.
const againMin, againMax = time.Second, time.Second + 2*thinkMax

func newGangs() gangs {
	return gangs{begun: map[types.UID]bool{}, tried: map[types.UID]map[int32]bool{}, kept: map[types.UID]map[int32]*keptInstance{}}
}

// gangOf is the gang that an instance is of; nil: it is of none.
func (w *world) gangOf(in *v1alpha1.Instance) *v1alpha1.Workload {
	of := w.store.workload(in.Spec.Workload)
	if of == nil || of.Spec.Job == nil || !of.Spec.Job.Gang {
		return nil
	}
	return of
}

// tries is that a server tries to create an instance: one of a gang that was refused before where its room was found (G2).
func (w *world) tries(s *server, in *v1alpha1.Instance) {
	of := w.gangOf(in)
	if of == nil {
		return
	}
	g := &w.truth.gangs
	if g.tried[of.UID] == nil {
		g.tried[of.UID] = map[int32]bool{}
	}
	g.tried[of.UID][in.Spec.Slot] = true
	k := g.kept[of.UID][in.Spec.Slot]
	if k == nil || k.of != s || k.run != s.run || k.node == in.Spec.Node {
		return
	}
	if waited := w.now.Sub(k.at); waited < againMin || waited > againMax {
		return
	}
	n := w.store.node(k.node)
	if n == nil || n.Spec.Unschedulable || away(n) {
		return
	}
	if sight := s.sights[n.UID]; sight == nil || sight.seen.Presence != node.Here {
		return
	}
	w.broken("G2", "%s tries %s on %s, and room was found for it on %s", s.name, in.Name, in.Spec.Node, k.node)
}

// tried is what has become of that.
func (w *world) tried(s *server, in *v1alpha1.Instance, refused bool) {
	of := w.gangOf(in)
	if of == nil {
		return
	}
	g := &w.truth.gangs
	delete(g.kept[of.UID], in.Spec.Slot)
	if !refused {
		return
	}
	w.did("one of a gang refused")
	if g.kept[of.UID] == nil {
		g.kept[of.UID] = map[int32]*keptInstance{}
	}
	g.kept[of.UID][in.Spec.Slot] = &keptInstance{s, s.run, in.Spec.Node, w.now}
}

// freed is that the one that was in a slot before is deleted: who comes then is wanted anew.
func (w *world) freed(in *v1alpha1.Instance) {
	if of := w.gangOf(in); of != nil {
		delete(w.truth.gangs.kept[of.UID], in.Spec.Slot)
	}
}

// checkGangs: when a gang begins all of it is tried (G1). Room is kept for one that was refused where there is any of it.
func (w *world) checkGangs(s *server) {
	g := &w.truth.gangs
	for _, of := range listed[*v1alpha1.Workload](w.store) {
		slots := g.tried[of.UID]
		if len(slots) == 0 {
			continue
		}
		there := len(w.of(of)) > 0
		if !g.begun[of.UID] && len(slots) != gangSize && !s.killed {
			w.broken("G1", "%s begins %s with %d of %d", s.name, of.Name, len(slots), gangSize)
		}
		if there {
			g.begun[of.UID] = true
			w.did("gang begun")
		} else {
			delete(g.kept, of.UID)
		}
	}
	clear(g.tried)
}
