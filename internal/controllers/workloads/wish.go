package workloads

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
)

// wish is what is to be stored of an instance: who wants it away, or nil, that nobody does any more.
type wish struct {
	uid   string
	leave *v1alpha1.InstanceLeave
}

// wishes stores of instances who wants them away, where nothing that is there says it at any time, and takes it back.
//
// A workload that was changed picks other nodes: that is another thing than a node whose labels were changed, which instances survive unless
// whenLabelsChange says otherwise. So it is noted of each instance once, and in the workload's status when all were looked at, in this order: a leader that
// dies in between, or was not there when it was declared, leaves it to the next one. A note is taken back where the node is picked again.
//
// Who was preempted is not wanted away any more when those whom that was to make room for have all that they want, or are gone.
func (w *world) wishes(d *decision) {
	of, spec := d.of, &d.of.o.Spec
	picking, picks := spec.Mode != declared.PerNode, "" // where eligible nodes say it
	if picking {
		picks = declared.Picks(spec)
	}
	changed := d.status.Picks != "" && d.status.Picks != picks
	for _, in := range of.sorted() {
		if !in.here || in.o.Spec.Stop != nil || in.seen.Phase >= fleet.Terminating || in.seen.Owner != string(of.o.UID) {
			continue
		}
		switch leave := in.o.Status.Leave; {
		case leave == nil && picking && changed && !w.picks(spec, w.hosts[in.o.Spec.Node]):
			d.wishes = append(d.wishes, wish{in.seen.UID, &v1alpha1.InstanceLeave{Code: reason.PlacementChanged.String(), Since: statuses.Seconds(w.now)}})
		case leave == nil:
		case leave.Code == reason.PlacementChanged.String() && w.picks(spec, w.hosts[in.o.Spec.Node]):
			d.wishes = append(d.wishes, wish{in.seen.UID, nil})
		case in.room != "" && !w.needsRoom(in.room):
			d.wishes = append(d.wishes, wish{in.seen.UID, nil})
			w.snapshot.NotEvicted(keyOf(in.o).String())
		}
	}
	if len(d.wishes) == 0 {
		d.status.Picks = picks
	}
}

// makesRoom is for whom an instance makes room, "" for nobody.
func makesRoom(o *v1alpha1.Instance) string {
	if l := o.Status.Leave; l != nil && l.Code == reason.Preempted.String() {
		return l.For
	}
	return ""
}

// makeRoom notes for whom an instance makes room.
func (w *world) makeRoom(in *instance, whom string) {
	if in.room == whom {
		return
	}
	if delete(w.room[in.room], in); len(w.room[in.room]) == 0 {
		delete(w.room, in.room)
	}
	if in.room = whom; whom == "" {
		return
	}
	if w.room[whom] == nil {
		w.room[whom] = map[*instance]bool{}
	}
	w.room[whom][in] = true
}

// needsRoom reports whether a workload has instances without a node. As long as nothing was decided about it here that is not known.
func (w *world) needsRoom(whom string) bool {
	namespace, name, _ := strings.Cut(whom, "/")
	of := w.workloads[types.NamespacedName{Namespace: namespace, Name: name}]
	return of != nil && of.o != nil && (of.told == nil || len(of.pending) > 0)
}

// picks reports whether a workload picks a node. Of one that has not told its architecture yet nothing speaks against that.
func (w *world) picks(spec *declared.Spec, h *host) bool {
	all := spec.Placement.Architectures
	return spec.Selector.Matches(h.labels) && (len(all) == 0 || h.offers == nil || slices.Contains(all, h.offers.Arch))
}
