package workloads

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler/fit"
)

// viewOf is a workload as decisions see it, and when time alone changes that; zero: it does not.
func (w *world) viewOf(of *workload, wanted int) (fleet.View, time.Time) {
	o := of.o
	v := fleet.View{
		Name: o.Name, UID: string(o.UID), Generation: o.Generation, Spec: o.Spec, Deleting: o.DeletionTimestamp != nil, Wanted: wanted,
		Hash: of.templates(), Nodes: w.sights, Approval: approvalOf(o), Brake: w.brake(o.Namespace), Quiet: w.quiet(), Was: of.was,
	}
	for name, r := range of.revisions {
		if r.Spec.Source.UID != o.UID || r.DeletionTimestamp != nil {
			continue
		}
		number, err := strconv.Atoi(r.Annotations[v1alpha1.AnnotationNumber])
		if err != nil {
			number = 0 // it is not the server that has written that; the oldest of all then
		}
		v.Revisions = append(v.Revisions, fleet.Revision{
			Name: name, Number: number, Hash: declared.HashIn(o.Name, name), Same: of.same(r), Runs: of.runsLike(r), Stick: r.Spec.Template.Stick(),
		})
	}
	slices.SortFunc(v.Revisions, func(a, b fleet.Revision) int { return cmp.Compare(a.Name, b.Name) })
	var wake time.Time
	v.Instances = make([]fleet.Instance, 0, len(of.instances)+len(of.pending))
	for _, in := range of.instances {
		seen := in.seen
		var at time.Time
		seen.Leave, at = w.leaveOf(in)
		wake = earlier(wake, at)
		if (seen.Leave == nil) != (in.wish == nil) || seen.Leave != nil && *seen.Leave != *in.wish {
			in.wish, w.fresh[in] = seen.Leave, true
		}
		v.Instances = append(v.Instances, seen)
	}
	for slot, p := range of.pending {
		in := fleet.Instance{Name: instanceName(o.Name, slot), UID: p.uid, Owner: string(o.UID), Slot: slot, Revision: p.Revision, Replaces: p.Replaces}
		if o.Spec.Mode == declared.PerNode {
			in.Node = p.Node
		} else {
			in.Bound = p.Node
		}
		v.Instances = append(v.Instances, in)
	}
	if o.Spec.Mode == declared.PerNode {
		v.Eligible = w.eligible(of)
	}
	return v, wake
}

// known is what is worked out of templates once for each generation: it takes longer than a decision.
type known struct {
	generation int64
	collisions int
	hash       string
	same       map[types.UID]bool // revisions that have the template of the spec
}

// templates is the hash of the template of the spec.
func (of *workload) templates() string {
	if k := &of.known; k.hash == "" || k.generation != of.o.Generation || k.collisions != of.was.Collisions {
		*k = known{of.o.Generation, of.was.Collisions, declared.Hash(&of.o.Spec.Template, of.was.Collisions), map[types.UID]bool{}}
	}
	return of.known.hash
}

// same reports whether a revision has the template of the spec.
func (of *workload) same(r *v1alpha1.Revision) bool {
	is, asked := of.known.same[r.UID]
	if !asked {
		is = declared.SameTemplate(r.Spec.Template, &of.o.Spec.Template)
		of.known.same[r.UID] = is
	}
	return is
}

// runsLike is one text for revisions of which a change from one to another restarts nothing: the UID of the first that was asked about.
func (of *workload) runsLike(r *v1alpha1.Revision) string {
	if like, asked := of.alike[r.UID]; asked {
		return like
	}
	like := string(r.UID)
	for _, other := range of.revisions {
		if known := of.alike[other.UID]; known != "" {
			change := declared.Compare(&declared.Spec{Template: *other.Spec.Template}, &declared.Spec{Template: *r.Spec.Template})
			if change.Effect != declared.NeedsRestart {
				like = known
				break
			}
		}
	}
	of.alike[r.UID] = like
	return like
}

// instanceName is the name of the instance in a slot of a workload.
func instanceName(workload string, slot int) string { return fmt.Sprintf("%s-%d", workload, slot) }

// approvalOf reads what people have approved of; what cannot be read is nothing.
func approvalOf(o *v1alpha1.Workload) fleet.Approval {
	revision, step, ok := strings.Cut(o.Annotations[v1alpha1.AnnotationApproved], "/")
	n, err := strconv.Atoi(step)
	if !ok || err != nil {
		return fleet.Approval{}
	}
	return fleet.Approval{Revision: revision, Step: n}
}

// leaveOf is who wants an instance away; nil: nobody does. until is when somebody will.
func (w *world) leaveOf(in *instance) (wish *fleet.Leave, until time.Time) {
	if !in.here {
		return nil, time.Time{} // with its node it is over
	}
	h := w.hosts[in.o.Spec.Node]
	if h.drain != nil {
		return &fleet.Leave{Why: reason.NodeDrained, Since: h.drainAt, Force: statuses.FromSeconds(h.drain.Deadline)}, time.Time{}
	}
	if l := in.o.Status.Leave; l != nil {
		return &fleet.Leave{Why: statuses.CodeOf(l.Code), Since: l.Since.Time, Force: statuses.FromSeconds(l.Force)}, time.Time{}
	}
	moved := &fleet.Leave{Why: reason.PlacementChanged}
	if h.environment != in.o.Namespace {
		return moved, time.Time{}
	}
	spec := in.of.o // nil: nothing is declared any more
	if spec == nil {
		return nil, time.Time{}
	}
	if spec.Spec.Placement.WhenLabelsChange == declared.Move && !spec.Spec.Selector.Matches(h.labels) {
		return moved, time.Time{}
	}
	if len(h.taints) == 0 {
		return nil, time.Time{}
	}
	taints := make([]fit.Taint, 0, len(h.taints))
	for _, t := range h.taints {
		taints = append(taints, fit.Taint{Taint: t, Since: h.taintedAt[t]})
	}
	at, leaves := fit.LeavesAt(taints, spec.Spec.Placement.Tolerations)
	switch {
	case !leaves:
		return nil, time.Time{}
	case at.After(w.now):
		return nil, at
	}
	moved.Since = at
	return moved, time.Time{}
}

// eligible are the nodes on which a workload is to have an instance, in order. One that takes nothing new keeps what it has.
func (w *world) eligible(of *workload) []string {
	spec := &of.o.Spec
	request, err := fit.Compile(spec)
	if err != nil {
		return nil // validation lets nothing like that through
	}
	alone := fit.Request{Selector: selectorOf(spec, of.key.Namespace), Architectures: request.Architectures, Runtime: request.Runtime, Tolerations: request.Tolerations, Directories: request.Directories}
	has := map[string]bool{}
	for _, in := range of.instances {
		if in.here && in.seen.Phase < fleet.Terminating && in.seen.Owner == string(of.o.UID) {
			has[in.o.Spec.Node] = true
		}
	}
	var names []string
	for name, h := range w.hosts {
		switch {
		case !h.joined || h.environment != of.key.Namespace:
		case has[name] && h.offers == nil: // nobody has heard yet what it is like
			names = append(names, name)
		case (h.unschedulable || h.drain != nil || h.offers == nil) && !has[name]:
		default:
			n := h.offered().Node
			n.Unschedulable, n.Unhealthy = false, ""
			if len(fit.Check(&n, &fit.Left{}, &alone)) == 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
