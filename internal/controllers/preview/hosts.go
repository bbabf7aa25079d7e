package preview

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/controllers/workloads"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/wire"
)

// hosts are the hosts of the fleet as they were heard last. What they are told they do at once, if they are there.
type hosts struct {
	real func(node types.UID) (presence.Seen, bool)
	seen map[types.UID]heard
}

// heard is what is known of a node; not known: nobody has heard of it.
type heard struct {
	presence.Seen
	known bool
}

var _ workloads.Presence = (*hosts)(nil)

// Of returns what is known of a node: of one moment, whatever the real one says meanwhile.
func (h *hosts) Of(uid types.UID) (presence.Seen, bool) {
	is, asked := h.seen[uid]
	if !asked {
		is.Seen, is.known = h.real(uid)
		h.seen[uid] = is
	}
	return is.Seen, is.known
}

// Since says of every node that it may have changed.
func (*hosts) Since(uint64) (names []string, all bool, now uint64) { return nil, true, 0 }

// Tell tells nobody: who asks says when.
func (*hosts) Tell(chan struct{}) (stop func()) { return func() {} }

// work has the hosts do what is wanted of instances. It reports whether they have something else to say by that.
func (h *hosts) work(wanted []*v1alpha1.Instance) bool {
	byNode := map[types.UID][]*v1alpha1.Instance{}
	for _, in := range wanted {
		byNode[in.Spec.NodeUID] = append(byNode[in.Spec.NodeUID], in)
	}
	worked := false
	for uid, instances := range byNode {
		seen, known := h.Of(uid)
		if !known || seen.Presence != node.Here || !seen.Believed || seen.Report == nil {
			continue
		}
		if report := after(seen.Report, instances); report != nil {
			seen.Report = report
			h.seen[uid] = heard{seen, true}
			worked = true
		}
	}
	return worked
}

// after is what a host says when it has done what is wanted of some instances; nil: nothing else than before.
func after(before *wire.Report, wanted []*v1alpha1.Instance) *wire.Report {
	at := make(map[string]int, len(before.Instances))
	for i := range before.Instances {
		at[before.Instances[i].UID] = i
	}
	all, changed := slices.Clone(before.Instances), false
	for _, in := range wanted {
		i, known := at[string(in.UID)]
		if !known {
			i = len(all)
			at[string(in.UID)] = i
			all = append(all, wire.Instance{UID: string(in.UID), Attempt: 1})
		}
		was := all[i]
		live(in, &all[i])
		changed = changed || !known || was.Phase != all[i].Phase || was.Ready != all[i].Ready
	}
	if !changed {
		return nil
	}
	report := *before
	report.Instances = all
	return &report
}

// live is what becomes of an instance. What fails now has its reasons, and goes on failing.
func live(in *v1alpha1.Instance, has *wire.Instance) {
	switch {
	case has.Phase >= wire.InstanceFailed:
	case in.Spec.Stop != nil:
		has.Phase, has.Ready = wire.InstanceDone, false
	case has.Code == 0:
		has.Phase, has.Ready = wire.InstanceRunning, true
	}
}
