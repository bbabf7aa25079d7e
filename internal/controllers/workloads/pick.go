package workloads

import (
	"slices"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
)

// repicked is what is to be stored of an instance: the wish that it leaves, or nil, that nobody has it any more.
type repicked struct {
	uid   string
	leave *v1alpha1.InstanceLeave
}

// repick has instances leave whose nodes a workload picks no more because its declaration was changed. That is another thing than a node whose labels were
// changed, which they survive unless whenLabelsChange says otherwise. So it is noted of each instance once, and in the workload's status when all were
// looked at, in this order: a leader that dies in between, or was not there when it was declared, leaves it to the next one. A note is taken back where the
// node is picked again.
func (w *world) repick(d *decision) {
	of, spec := d.of, &d.of.o.Spec
	if spec.Mode == declared.PerNode { // where eligible nodes say it
		return
	}
	picks := declared.Picks(spec)
	changed := d.status.Picks != "" && d.status.Picks != picks
	for _, in := range of.sorted() {
		if !in.here || in.o.Spec.Stop != nil || in.seen.Phase >= fleet.Terminating || in.seen.Owner != string(of.o.UID) {
			continue
		}
		picked, leave := w.picks(spec, w.hosts[in.o.Spec.Node]), in.o.Status.Leave
		switch {
		case leave == nil && changed && !picked:
			d.repicked = append(d.repicked, repicked{in.seen.UID, &v1alpha1.InstanceLeave{Code: reason.PlacementChanged.String(), Since: statuses.Seconds(w.now)}})
		case leave != nil && leave.Code == reason.PlacementChanged.String() && picked:
			d.repicked = append(d.repicked, repicked{in.seen.UID, nil})
		}
	}
	if len(d.repicked) == 0 {
		d.status.Picks = picks
	}
}

// picks reports whether a workload picks a node. Of one that has not told its architecture yet nothing speaks against that.
func (w *world) picks(spec *declared.Spec, h *host) bool {
	all := spec.Placement.Architectures
	return spec.Selector.Matches(h.labels) && (len(all) == 0 || h.offers == nil || slices.Contains(all, h.offers.Arch))
}
