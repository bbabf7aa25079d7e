package workloads

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler"
)

// group is what the scheduler is asked for at once: pending instances of one revision, and where that is said, of one node.
type group struct {
	scheduler.Group
	of       *workload
	priority int32
	slots    []int
	why      *scheduler.Explanation // nil: all was placed, or nobody has tried
}

// kin is what the pending instances of a workload have in common that are one group.
type kin struct {
	revision, node string
	must           bool
}

// pend makes pending what a decision creates, and lets go what it takes away that was.
func (w *world) pend(d *decision) {
	of := d.of
	gone := map[string]bool{}
	for _, s := range d.Stop {
		gone[s.UID] = true
	}
	for _, mark := range slices.Concat(d.Drop, d.Abandon) {
		gone[mark.UID] = true
	}
	changed := len(d.Create) > 0 || !of.held.IsZero()
	for slot, p := range of.pending {
		if gone[p.uid] {
			w.unwant(of, slot)
			changed = true
			w.touch(of) // its slot is free by that
		}
	}
	if len(d.Create) > 0 && !slices.Contains(of.o.Finalizers, finalizer) {
		w.retry(of) // before it is known that nothing is left behind, nothing is begun
		return
	}
	if len(of.pending) == 0 {
		of.since = w.now
	}
	for _, create := range d.Create {
		w.number++
		of.pending[create.Slot] = &pending{Create: create, uid: fmt.Sprintf("pending/%s/%d", of.o.UID, w.number)}
	}
	if changed {
		w.regroup(of)
	}
}

// unpend is told that there is an instance in a slot.
func (w *world) unpend(of *workload, slot int) {
	if of.pending[slot] != nil {
		w.unwant(of, slot)
		w.regroup(of)
	}
}

// unwant ends that an instance is wanted, and gives back room that is kept for it.
func (w *world) unwant(of *workload, slot int) {
	w.giveBack(of, slot)
	delete(of.pending, slot)
}

// giveBack gives back the room that is kept for a pending instance.
func (w *world) giveBack(of *workload, slot int) {
	if p := of.pending[slot]; p.kept != "" {
		p.kept = ""
		w.snapshot.NotCommitted(of.nameOf(slot))
	}
}

// nameOf is what the scheduler calls the instance in a slot.
func (of *workload) nameOf(slot int) string {
	return of.key.Namespace + "/" + instanceName(of.key.Name, slot)
}

// regroup has the queue hold what is pending.
func (w *world) regroup(of *workload) {
	wanted, alike := map[string]*group{}, map[kin]*group{}
	of.held = time.Time{}
	delete(w.again, of)
	for slot, p := range of.pending {
		if p.until.After(w.now) {
			of.held = earlier(of.held, p.until)
			continue
		}
		if p.kept != "" {
			w.again[of] = true
			continue
		}
		k := kin{p.Revision, p.Node, p.Must}
		g := alike[k]
		if g == nil {
			name := fmt.Sprintf("%s/%s/%s", keyWithUID(of.o), p.Revision, p.Node)
			g = &group{Group: *of.group(p), of: of, priority: of.o.Spec.Priority}
			g.Name = name
			wanted[name], alike[k] = g, g
		}
		g.slots = append(g.slots, slot)
	}
	for name := range of.groups {
		if wanted[name] == nil {
			w.queue.Remove(name)
			w.snapshot.Forget(name)
			delete(w.groups, name)
			delete(of.groups, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		g, was := wanted[name], w.groups[name]
		slices.Sort(g.slots)
		if was != nil && was.priority == g.priority && was.Gang == g.Gang && slices.Equal(was.slots, g.slots) {
			continue
		}
		for _, slot := range g.slots {
			g.Instances = append(g.Instances, of.nameOf(slot))
		}
		if was != nil {
			g.why = was.why
		}
		if key := keyWithUID(of.o); !of.classes[g.Revision] {
			w.snapshot.SetWorkload(w.classOf(of, key, g.Revision))
			of.classes[g.Revision] = true
		}
		w.groups[name], of.groups[name] = g, true
		w.queue.Put(g.Group, g.priority)
	}
	if len(of.pending) == 0 {
		for in := range w.room[of.key.String()] {
			w.touch(in.of)
		}
	}
}

// group is that of a pending instance, before it has a name and members.
func (of *workload) group(p *pending) *scheduler.Group {
	return &scheduler.Group{Workload: keyWithUID(of.o), Revision: p.Revision, Node: p.Node, Must: p.Must, Gang: of.gang()}
}

// gang reports whether all instances of a workload are placed, or none.
func (of *workload) gang() bool {
	return of.o.Spec.Mode == declared.RunToCompletion && of.o.Spec.Job != nil && of.o.Spec.Job.Gang
}

// bound is an instance with the node that was found for it.
type bound struct {
	group *group
	slot  int
	scheduler.Binding
}

// bind takes what was placed out of a group.
func (g *group) bind(d *scheduler.Decision) []bound {
	placed := make(map[string]scheduler.Binding, len(d.Bindings))
	for _, b := range d.Bindings {
		placed[b.Instance] = b
	}
	all := make([]bound, 0, len(placed))
	left := max(len(g.Instances)-len(placed), 0)
	instances, slots := make([]string, 0, left), make([]int, 0, left)
	for i, name := range g.Instances {
		if b, is := placed[name]; is {
			all = append(all, bound{g, g.slots[i], b})
			continue
		}
		instances, slots = append(instances, name), append(slots, g.slots[i])
	}
	g.Instances, g.slots, g.why = instances, slots, d.Explanation
	return all
}

// place asks the scheduler for nodes, and creates the instances there: as many as it returns, which is not much more than placeMax.
func (c *Workloads) place(ctx context.Context, w *world, now time.Time) int {
	all := w.once()
	var evicted []scheduler.Eviction
	for len(all) < placeMax && ctx.Err() == nil {
		next, ok := w.queue.Next(w.snapshot, now)
		if !ok {
			break
		}
		g := w.groups[next.Name]
		part := next
		if !part.Gang && len(part.Instances) > placeMax {
			part.Instances = part.Instances[:placeMax]
		}
		d := w.snapshot.Place(&part, now)
		evicted = append(evicted, d.Evictions...)
		all = append(all, g.bind(&d)...)
		rest := g.Group
		switch {
		case len(rest.Instances) == 0:
			w.queue.Remove(next.Name)
		case d.Explanation == nil && len(part.Instances) == placeMax:
			w.queue.Put(rest, g.priority)
		default:
			w.queue.Back(w.snapshot, rest, d, now)
		}
		if d.Explanation != nil {
			w.stale[g.of] = true
			w.unsettle(g.of)
		}
	}
	c.write(ctx, slices.Concat(c.createJobs(w, all), c.evictJobs(w, evicted)))
	w.keep(all)
	regrouped := map[*workload]bool{} // each looks at all that is pending of it
	for _, b := range all {
		if of := b.group.of; !regrouped[of] {
			regrouped[of] = true
			w.regroup(of)
		}
	}
	return len(all)
}

// once are the instances of gangs that are created once more on the nodes that were found for them. Where such a node is none any more that the gang may go
// to another one is looked for.
func (w *world) once() (all []bound) {
	for _, of := range slices.SortedFunc(maps.Keys(w.again), func(a, b *workload) int { return cmp.Compare(a.key.String(), b.key.String()) }) {
		moved := false
		for _, slot := range slices.Sorted(maps.Keys(of.pending)) {
			switch p := of.pending[slot]; {
			case p.kept == "" || p.until.After(w.now):
			case !w.snapshot.Stands(of.group(p), of.nameOf(slot), w.now):
				w.giveBack(of, slot)
				moved = true
			default:
				all = append(all, bound{&group{of: of}, slot, scheduler.Binding{Instance: of.nameOf(slot), Node: p.kept}})
			}
		}
		if delete(w.again, of); moved {
			w.regroup(of)
			delete(w.again, of)
		}
	}
	return all
}

// keep decides about the room of those that could not be created. Where the rest of a gang is there it is kept for the missing ones: a gang that has begun
// goes on as a whole, and nobody else takes their place meanwhile. Where nothing of it is there others may have all of it.
func (w *world) keep(all []bound) {
	for _, b := range all {
		of := b.group.of
		if p := of.pending[b.slot]; p != nil && p.kept != "" && (!of.gang() || len(of.own()) == 0) {
			w.giveBack(of, b.slot)
		}
	}
}

// createJobs create instances on the nodes that were found for them.
func (c *Workloads) createJobs(w *world, all []bound) []job {
	jobs := make([]job, 0, len(all))
	for _, b := range all {
		of := b.group.of
		p := of.pending[b.slot]
		h := w.hosts[b.Node]
		o := newInstance(of.o, p.Create, h)
		jobs = append(jobs, job{
			do: func(ctx context.Context) error {
				err := c.options.Objects.Create(ctx, o)
				if apierrors.IsAlreadyExists(err) {
					return c.there(ctx, of.o, o)
				}
				return err
			},
			done: func(err error) {
				if err != nil {
					p.until, p.kept = w.now.Add(retryAfter), b.Node
					c.failed(w, of, "create instance "+o.Name, err)
					return
				}
				w.snapshot.Committed(b.Instance, 0)
				c.metrics.Placements.Inc()
				w.created(of, b.slot, o)
			},
		})
	}
	return jobs
}

func newInstance(of *v1alpha1.Workload, create fleet.Create, on *host) *v1alpha1.Instance {
	return &v1alpha1.Instance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: instanceName(of.Name, create.Slot), Labels: map[string]string{v1alpha1.LabelWorkload: of.Name}, OwnerReferences: ownedBy(of),
		},
		Spec: v1alpha1.InstanceSpec{
			Workload: of.Name, Revision: create.Revision, Slot: int32(create.Slot), Node: on.name, NodeUID: on.uid, Replaces: types.UID(create.Replaces),
			Job: of.Spec.Mode == declared.RunToCompletion, LeaseSeconds: leaseSeconds(&of.Spec),
		},
	}
}

// there reads the instance of that name. One of this very workload is what was to be made: somebody has heard no answer.
func (c *Workloads) there(ctx context.Context, of *v1alpha1.Workload, o *v1alpha1.Instance) error {
	found := &v1alpha1.Instance{}
	if err := c.options.Objects.Get(ctx, keyOf(o), found); err != nil {
		return err
	}
	if owner := metav1.GetControllerOf(found); owner == nil || owner.UID != of.UID || found.DeletionTimestamp != nil {
		return apierrors.NewAlreadyExists(v1alpha1.Resource(v1alpha1.ResourceInstances), o.Name)
	}
	*o = *found
	return nil
}

// created takes in an instance that the store has.
func (w *world) created(of *workload, slot int, o *v1alpha1.Instance) {
	delete(of.pending, slot)
	w.takeInstance(o)
}

// evictJobs note that instances are to leave for others of higher priority.
func (c *Workloads) evictJobs(w *world, all []scheduler.Eviction) []job {
	var jobs []job
	for _, e := range all {
		namespace, name, _ := strings.Cut(e.Instance, "/")
		in := w.instances[types.NamespacedName{Namespace: namespace, Name: name}]
		if in == nil {
			w.snapshot.NotEvicted(e.Instance)
			continue
		}
		o := in.o.DeepCopy()
		if o.Status.Leave == nil {
			o.Status.Leave = &v1alpha1.InstanceLeave{Code: reason.Preempted.String(), Since: statuses.Seconds(w.now), For: w.groups[e.For].of.key.String()}
		}
		jobs = append(jobs, job{
			do: func(ctx context.Context) error { return c.options.Objects.UpdateStatus(ctx, o) },
			done: func(err error) {
				if err != nil {
					w.snapshot.NotEvicted(e.Instance)
					c.failed(w, in.of, "displace instance "+o.Name, err)
					return
				}
				c.metrics.Evictions.Inc()
				w.take(in, o)
				c.tellDisplaced(in, w.groups[e.For])
			},
		})
	}
	return jobs
}

// unplaced is why the most instances have no node; nil: nobody has found that they cannot have one.
func (of *workload) unplaced(w *world) *scheduler.Explanation {
	var worst *group
	for _, name := range slices.Sorted(maps.Keys(of.groups)) {
		if g := w.groups[name]; g.why != nil && (worst == nil || len(g.Instances) > len(worst.Instances)) {
			worst = g
		}
	}
	if worst == nil {
		return nil
	}
	return worst.why
}

// explain writes into a status why instances have no node.
func (of *workload) explain(s *v1alpha1.WorkloadStatus, w *world) {
	s.PendingReplicas = int32(len(of.pending))
	e := of.unplaced(w)
	if e == nil || len(of.pending) == 0 {
		s.Pending = nil
		return
	}
	p := &v1alpha1.PendingExplanation{
		Since: statuses.Seconds(of.since), Instances: int32(len(of.pending)), Placed: int32(e.Placed), Nodes: int32(e.Nodes), Message: e.Code().String() + ": " + e.String(),
	}
	if was := of.o.Status.Pending; was != nil {
		p.Since = was.Since
	}
	for _, f := range e.Filtered {
		r := v1alpha1.PendingReason{Reason: f.Reason.String(), Nodes: int32(f.Nodes), Left: int32(f.Left), Example: f.Example, Message: f.String()}
		p.Reasons = append(p.Reasons, r)
	}
	for _, m := range e.Nearest {
		near := v1alpha1.NearMiss{Node: m.Node}
		for _, r := range m.Refusals {
			near.Cures = append(near.Cures, r.Cure())
		}
		p.Nearest = append(p.Nearest, near)
	}
	s.Pending = p
}
