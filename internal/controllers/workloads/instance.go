package workloads

import (
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler"
	"tako.dev/tako/internal/scheduler/fit"
	"tako.dev/tako/internal/transfer/wire"
)

// instance is one that has a node.
type instance struct {
	o    *v1alpha1.Instance // as it is stored: shared, and never changed here
	of   *workload
	here bool           // its node is there, and is the one that it was made for
	seen fleet.Instance // what is stored and what was heard, together
	said *wire.Instance // what its host says of it; nil: nothing yet
	over time.Time      // when it had ended
	wish *fleet.Leave   // who wants it away, as it was decided on last
	room string         // for whom it makes room; see makesRoom
}

func (w *world) absorbInstance(told told[v1alpha1.Instance]) {
	_, uid := told.identity()
	if told.value != nil {
		w.takeInstance(told.value)
	} else if in := w.uids[uid]; in != nil {
		w.lose(in)
	}
}

// takeInstance takes in an instance, from a watch or as the store has answered a write.
func (w *world) takeInstance(o *v1alpha1.Instance) {
	in := w.instances[keyOf(o)]
	switch {
	case in != nil && older(o, in.o):
		if o.ResourceVersion == in.o.ResourceVersion {
			in.o = o // what a watch tells is shared with others, and what was written here is not
		}
		return
	case in != nil && o.UID != in.o.UID:
		w.lose(in)
		in = nil
	}
	w.take(in, o)
}

// take enters an instance, or another version of one, from a watch or as the store has answered a write.
func (w *world) take(in *instance, o *v1alpha1.Instance) {
	key := keyOf(o)
	if in == nil {
		in = &instance{of: w.entry(types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.Workload})}
		w.instances[key], w.uids[o.UID], in.of.instances[o.Name] = in, in, in
		if w.on[o.Spec.Node] == nil {
			w.on[o.Spec.Node] = map[*instance]bool{}
		}
		w.on[o.Spec.Node][in] = true
		w.unpend(in.of, int(o.Spec.Slot))
		in.o = o
	}
	in.o = o
	w.makeRoom(in, makesRoom(o))
	w.restate(in)
	w.touch(in.of)
	if h := w.hosts[o.Spec.Node]; in.here {
		w.unsettled[h.name] = true
		if said := saidOf(h.seen.Report, o.UID); said != nil && in.said == nil {
			w.observeOne(in, said, w.now) // its host was faster than whoever told of it here
		}
	}
}

// saidOf is what a report says of an instance.
func saidOf(r *wire.Report, uid types.UID) *wire.Instance {
	if r == nil {
		return nil
	}
	for i := range r.Instances { // at most catalog.InstancesMax, and asked once for each instance that comes
		if r.Instances[i].UID == string(uid) {
			return &r.Instances[i]
		}
	}
	return nil
}

// lose lets an instance go whose object has gone.
func (w *world) lose(in *instance) {
	delete(w.instances, keyOf(in.o))
	delete(w.uids, in.o.UID)
	delete(in.of.instances, in.o.Name)
	w.fresh[in] = true
	delete(w.on[in.o.Spec.Node], in)
	if len(w.on[in.o.Spec.Node]) == 0 {
		delete(w.on, in.o.Spec.Node)
	}
	if h := w.hosts[in.o.Spec.Node]; h != nil {
		w.unsettled[h.name] = true
	}
	w.makeRoom(in, "")
	w.snapshot.RemoveInstance(keyOf(in.o).String())
	w.touch(in.of)
	w.leave(in.of)
}

// restate brings what is stored of an instance together with what was heard, and tells the scheduler.
func (w *world) restate(in *instance) {
	o, s := in.o, &in.seen
	h := w.hosts[o.Spec.Node]
	in.here = h != nil && h.uid == o.Spec.NodeUID
	s.Name, s.UID, s.Slot, s.Revision, s.Replaces = o.Name, string(o.UID), int(o.Spec.Slot), o.Spec.Revision, string(o.Spec.Replaces)
	s.Node, s.Owner, s.Abandoned, s.Losses = o.Spec.Node, "", o.Status.Abandoned != nil, int(o.Status.Losses)
	if !in.here {
		s.Node = absent
	}
	if owner := metav1.GetControllerOf(o); owner != nil {
		s.Owner = string(owner.UID)
	}
	switch stored := statuses.PhaseOf(o.Status.Phase); {
	case stored.Ended():
		s.Phase, s.Failure, in.over = stored, statuses.FailureOf(o.Status.Failure), statuses.FromSeconds(o.Status.Ended)
	case s.Phase.Ended():
	case o.Spec.Stop != nil:
		s.Phase = fleet.Terminating
	case s.Phase == fleet.Pending:
		s.Phase = fleet.Placed
	}
	w.fresh[in] = true
	w.tellScheduler(in)
}

// messageMax bounds, in bytes, what is kept of a host's words.
const messageMax = 256

// observe takes in what a host says of its instances. What it said something of before, and says nothing of now, it does not have any more: it
// has lost its state. Then that begins anew, unless it is to end. So does all that it had where another agent speaks for it, whose counts begin anew too.
func (w *world) observe(h *host, now time.Time) {
	before, report := h.last, h.seen.Report
	h.last = report
	if before != nil && joinedAnew(before, report) {
		for i := range before.Instances {
			w.restart(h, types.UID(before.Instances[i].UID))
		}
		before = nil
	}
	said := make(map[types.UID]bool, len(report.Instances))
	for i := range report.Instances {
		one := &report.Instances[i]
		in := w.uids[types.UID(one.UID)]
		if in == nil || !in.here || in.o.Spec.Node != h.name {
			continue
		}
		said[in.o.UID] = true
		w.observeOne(in, one, now)
	}
	if before == nil {
		return
	}
	for i := range before.Instances {
		if uid := types.UID(before.Instances[i].UID); !said[uid] {
			w.restart(h, uid)
		}
	}
}

// joinedAnew: an agent has started no later than the one before, which is another one. Its disk is another one, or an old one.
func joinedAnew(before, report *wire.Report) bool {
	return report.Session.ID != before.Session.ID && report.Session.Start <= before.Session.Start
}

// restart has an instance begin anew of which its host knows nothing any more, unless it is to end.
func (w *world) restart(h *host, uid types.UID) {
	in := w.uids[uid]
	if in == nil || !in.here || in.o.Spec.Node != h.name || in.seen.Phase >= fleet.Terminating {
		return
	}
	in.said, in.seen.Phase, in.seen.Attempt, in.seen.ReadySince, in.seen.Failure, in.seen.Taken = nil, fleet.Placed, 0, time.Time{}, nil, ""
	w.fresh[in] = true
	w.touch(in.of)
}

func (w *world) observeOne(in *instance, report *wire.Instance, now time.Time) {
	r := fleet.Report{UID: report.UID, Attempt: int(report.Attempt), Phase: statuses.PhaseSaid(report.Phase), Ready: report.Ready, Taken: report.Revision}
	if report.Code != 0 {
		r.Failure = &fleet.Failure{
			Code: report.Code, Message: strings.ToValidUTF8(report.Message[:min(len(report.Message), messageMax)], ""), Since: statuses.Seconds(time.UnixMilli(report.Since)).Time, OfNode: report.OfNode, Passing: statuses.Passing(report),
		}
	}
	was := in.seen
	is, counts := fleet.Observe(was, r, now)
	if !counts {
		return
	}
	in.said = report
	w.fresh[in] = true
	if same(&was, &is) {
		return
	}
	in.seen = is
	if is.Phase.Ended() {
		in.over = now
		w.rejected(in, now)
	}
	if is.Phase >= fleet.Terminating && is.Phase != was.Phase {
		w.tellScheduler(in)
		if h := w.hosts[in.o.Spec.Node]; h != nil {
			w.unsettled[h.name] = true
		}
	}
	w.touch(in.of)
}

// same reports whether two of one instance say the same.
func same(a, b *fleet.Instance) bool {
	sameFailure := a.Failure == b.Failure || a.Failure != nil && b.Failure != nil && a.Failure.Code == b.Failure.Code && a.Failure.Message == b.Failure.Message && a.Failure.OfNode == b.Failure.OfNode && a.Failure.Passing == b.Failure.Passing
	return a.Phase == b.Phase && a.Attempt == b.Attempt && a.Taken == b.Taken && a.ReadySince.Equal(b.ReadySince) && sameFailure
}

// rejected tells the scheduler of an instance that its node has refused to take: what takes its place goes elsewhere.
func (w *world) rejected(in *instance, now time.Time) {
	f := in.seen.Failure
	if f == nil || f.Code != reason.InstanceRefused || in.of.o == nil || in.seen.Owner != string(in.of.o.UID) {
		return
	}
	w.snapshot.Rejected(scheduler.Instance{Name: keyOf(in.o).String(), Workload: keyWithUID(in.of.o), Revision: in.o.Spec.Revision, Node: in.o.Spec.Node}, f.Message, now)
}

// tellScheduler tells it what an instance holds.
func (w *world) tellScheduler(in *instance) {
	name := keyOf(in.o).String()
	h := w.hosts[in.o.Spec.Node]
	if in.seen.Phase.Ended() || !in.here || !h.joined {
		w.snapshot.RemoveInstance(name)
		return
	}
	key := in.of.key.String() + "/" + in.seen.Owner
	own := in.of.o != nil && key == keyWithUID(in.of.o)
	if !own || !in.of.classes[in.o.Spec.Revision] {
		w.snapshot.SetWorkload(w.classOf(in.of, key, in.o.Spec.Revision))
	}
	told := scheduler.Instance{Name: name, Workload: key, Revision: in.o.Spec.Revision, Node: in.o.Spec.Node, Ending: in.seen.Phase == fleet.Terminating}
	if err := w.snapshot.SetInstance(told); err != nil {
		w.snapshot.RemoveInstance(name) // it was told of neither its node nor its workload, and both were told above
	}
	if in.room != "" {
		w.snapshot.Evicting(name)
	}
	if own {
		in.of.classes[in.o.Spec.Revision] = true
	} else {
		w.snapshot.RemoveWorkload(key, in.o.Spec.Revision) // nothing is placed of it, and what is there holds what it has
	}
}

// classOf is a revision of a workload as the scheduler sees it. One whose template nobody has any more holds nothing that is known.
func (w *world) classOf(of *workload, key, revision string) scheduler.Workload {
	c := scheduler.Workload{Key: key, Revision: revision, Namespace: of.key.Namespace}
	r := of.revisions[revision]
	if r == nil {
		return c
	}
	spec := declared.Spec{Template: *r.Spec.Template}
	if of.o != nil {
		spec = of.o.Spec
		spec.Template = *r.Spec.Template
	}
	c.Labels, c.Priority, c.Placement = spec.Template.Labels, spec.Priority, spec.Placement
	if request, err := fit.Compile(&spec); err == nil { // validation lets nothing else through
		c.Request = request
	}
	c.Request.Selector = selectorOf(&spec, of.key.Namespace)
	for i := range spec.Template.Tasks {
		if image := spec.Template.Tasks[i].Image; image != nil {
			c.Images = append(c.Images, image.Name())
		}
	}
	return c
}

// selectorOf is what nodes must be like for a workload: as it selects them, and of its environment.
func selectorOf(spec *declared.Spec, environment string) declare.Selector {
	s := declare.Selector{MatchLabels: make(map[string]string, len(spec.Selector.MatchLabels)+1)}
	maps.Copy(s.MatchLabels, spec.Selector.MatchLabels)
	s.MatchLabels[v1alpha1.LabelEnvironment] = environment
	s.MatchExpressions = spec.Selector.MatchExpressions
	return s
}

// describe tells the scheduler anew of all that it knows of a workload.
func (w *world) describe(of *workload) {
	if of.o == nil {
		return
	}
	key := keyWithUID(of.o)
	for revision := range of.classes {
		w.snapshot.SetWorkload(w.classOf(of, key, revision))
	}
}
