package assignments

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/reason"
)

// tenant is what matters here of an Instance. It does not change.
type tenant struct {
	node    string
	nodeUID types.UID
	is      v1alpha1.AssignedInstance
}

func shapeInstance(obj any) (string, *tenant) {
	i := obj.(*v1alpha1.Instance)
	s := &i.Spec
	return i.Namespace + "/" + i.Name, &tenant{node: s.Node, nodeUID: s.NodeUID, is: v1alpha1.AssignedInstance{
		UID: i.UID, Namespace: i.Namespace, Name: i.Name, Workload: s.Workload, Revision: s.Revision, Slot: s.Slot, Job: s.Job, LeaseSeconds: s.LeaseSeconds,
		Stop: s.Stop != nil || i.DeletionTimestamp != nil || ended(i),
	}}
}

// ended: what an instance was for is done, or has failed, which is kept of those of jobs. A host that has lost what it knew of that would begin it once more.
func ended(i *v1alpha1.Instance) bool {
	return i.Status.Phase == v1alpha1.InstanceDone || i.Status.Phase == v1alpha1.InstanceFailed
}

// template is the ID of the layer of what it runs.
func (t *tenant) template() string { return catalog.TemplateLayer(t.is.Namespace, t.is.Revision) }

// template is a revision of a workload that instances have.
type template struct {
	instances int
	known     bool // layer and err are what it compiles to now
	layer     *layers.Layer
	err       error
	retryAt   time.Time // zero: there will be news of it
}

// workloads are the instances of all nodes, and what they run.
type workloads struct {
	instances map[string]*tenant               // by namespace and name
	byNode    map[string]map[types.UID]*tenant // by name
	templates map[string]*template             // by ID of the layer
	patience  patience
}

func newWorkloads() workloads {
	return workloads{instances: map[string]*tenant{}, byNode: map[string]map[types.UID]*tenant{}, templates: map[string]*template{}, patience: newPatience()}
}

// absorb takes in what the watch has told, and calls changed with each instance that its node has or had otherwise.
func (w *workloads) absorb(news map[string]*tenant, changed func(*tenant)) {
	for key, is := range news {
		was := w.instances[key]
		if was == is || was != nil && is != nil && *was == *is {
			continue
		}
		// The new one first: what both run is not forgotten between them.
		if is != nil {
			w.instances[key] = is
			if w.byNode[is.node] == nil {
				w.byNode[is.node] = map[types.UID]*tenant{}
			}
			w.byNode[is.node][is.is.UID] = is
			if w.templates[is.template()] == nil {
				w.templates[is.template()] = &template{}
			}
			w.templates[is.template()].instances++
			changed(is)
		}
		if was != nil {
			w.remove(was, is)
			changed(was)
		}
		if is == nil {
			delete(w.instances, key)
		}
	}
}

// remove takes an instance away; is stands in its place, if anything does.
func (w *workloads) remove(was, is *tenant) {
	if is == nil || is.node != was.node || is.is.UID != was.is.UID {
		delete(w.byNode[was.node], was.is.UID)
		if len(w.byNode[was.node]) == 0 {
			delete(w.byNode, was.node)
		}
	}
	t := w.templates[was.template()]
	if t.instances--; t.instances == 0 {
		delete(w.templates, was.template())
	}
}

// outdated notes that templates are to be compiled again: those of which there is news, and those that could not be for a reason that passes. It calls
// changed with each node that has instances of one.
func (w *workloads) outdated(news []string, now time.Time, changed func(node string)) {
	any := false
	for _, id := range news {
		if t := w.templates[id]; t != nil {
			t.known, any = false, true
		}
	}
	for _, t := range w.templates {
		if due(&t.retryAt, now) {
			t.known, any = false, true
		}
	}
	if !any {
		return
	}
	for _, is := range w.instances {
		if !w.templates[is.template()].known {
			changed(is.node)
		}
	}
}

// wakeAt is when a template is to be compiled again, or a host has waited for more instances; zero: not by itself.
func (w *workloads) wakeAt() time.Time {
	at := w.patience.wakeAt()
	for _, t := range w.templates {
		at = earlier(at, t.retryAt)
	}
	return at
}

// compile finds out what the templates on some nodes compile to now, as far as that is not known: as many at once as objects are written, because each
// waits for the store.
func (w *workloads) compile(ctx context.Context, from Layers, nodes []string, now time.Time) {
	var group errgroup.Group
	group.SetLimit(writesMax)
	for _, name := range nodes {
		for _, is := range w.byNode[name] {
			id, t := is.template(), w.templates[is.template()]
			if t.known {
				continue
			}
			t.known = true
			group.Go(func() error {
				t.layer, t.err = from.Of(ctx, id, is.is.Revision)
				if t.retryAt = (time.Time{}); t.err != nil && !lasting(t.err) {
					t.retryAt = now.Add(retryAfter)
				}
				return nil
			})
		}
	}
	_ = group.Wait() // the errors are in the templates
}

// planInstances lists the instances of the host with the layers of what they run, and returns the keys that these need. What the host has already goes
// before what is new where there is no room for all. One that is to end needs no template: it may be that nothing of it was ever there.
func (p *planner) planInstances(next *plan) ([]v1alpha1.AssignedInstance, []layers.KeyUse) {
	var has []v1alpha1.AssignedInstance
	if p.was.Own != nil {
		has = p.was.Own.Instances
	}
	all := p.tenants(has)
	if len(all) > catalog.InstancesMax {
		for _, t := range all[catalog.InstancesMax:] {
			next.leave(t, noRoom("instances", catalog.InstancesMax))
		}
		all = all[:catalog.InstancesMax]
	}
	errs, uses := p.planTemplates(next, all)
	var instances []v1alpha1.AssignedInstance
	for _, t := range all {
		if err := errs[t.template()]; err != nil && !t.is.Stop {
			next.leave(t, err)
			continue
		}
		instances = append(instances, t.is)
	}
	slices.SortFunc(instances, func(a, b v1alpha1.AssignedInstance) int { return cmp.Compare(a.UID, b.UID) })
	return instances, uses
}

// tenants are the instances of this very node: those that it has first, then by UID.
func (p *planner) tenants(has []v1alpha1.AssignedInstance) []*tenant {
	var all []*tenant
	for _, t := range p.workloads.byNode[p.host.name] {
		if t.nodeUID == p.host.uid {
			all = append(all, t)
		}
	}
	news := make(map[types.UID]bool, len(all))
	for _, t := range all {
		_, found := slices.BinarySearchFunc(has, t.is.UID, func(a v1alpha1.AssignedInstance, uid types.UID) int { return cmp.Compare(a.UID, uid) })
		news[t.is.UID] = !found
	}
	slices.SortFunc(all, func(a, b *tenant) int {
		return cmp.Or(number(news[a.is.UID])-number(news[b.is.UID]), cmp.Compare(a.is.UID, b.is.UID))
	})
	return all
}

// planTemplates adds the layers of what instances run, and returns the keys that these need, and why one is not there. One that is there stays as it
// is when it cannot be compiled any more.
func (p *planner) planTemplates(next *plan, all []*tenant) (errs map[string]error, uses []layers.KeyUse) {
	had := make(map[string]*v1alpha1.AssignedLayer, len(p.was.Layers))
	for i := range p.was.Layers {
		had[p.was.Layers[i].Config] = &p.was.Layers[i]
	}
	revisions := map[string]string{}
	for _, t := range all {
		revisions[t.template()] = t.is.Revision
	}
	ids := slices.SortedFunc(maps.Keys(revisions), func(a, b string) int {
		return cmp.Or(number(had[a] == nil)-number(had[b] == nil), cmp.Compare(a, b))
	})
	errs = map[string]error{}
	for i, id := range ids {
		old := had[id]
		layer, err := p.workloads.templates[id].layer, p.workloads.templates[id].err
		switch {
		case i >= catalog.TemplatesMax:
			errs[id] = noRoom("revisions of workloads", catalog.TemplatesMax)
		case err == nil:
			next.add(v1alpha1.AssignedLayer{Priority: catalog.TemplatePriority, Config: id, Revision: revisions[id], Root: layer.Root.String(), Since: metav1.NewTime(p.now.Truncate(time.Second))}, old, layer)
			uses = append(uses, layer.Keys...)
		case old != nil:
			next.partial = true
			next.spec.Layers = append(next.spec.Layers, *old)
		default:
			errs[id] = err
		}
	}
	return errs, uses
}

func noRoom(of string, most int) error {
	return &reason.Error{Code: reason.TooManyResources, Doing: "assign the instance to its node", Cause: fmt.Errorf("the node has %d %s, which is as many as a host takes", most, of),
		Hint: "let it go to another node, or end others there"}
}

// leave notes why an instance is not in the Assignment.
func (p *plan) leave(t *tenant, why error) {
	if p.left == nil {
		p.left = map[types.UID]error{}
	}
	p.left[t.is.UID] = why
}

// Unassigned is why an instance is not in the Assignment of its node; nil where it is, or nothing is known of it yet. The errors are those of package
// layers, and TooManyResources.
func (a *Assignments) Unassigned(node, instance types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left[node][instance]
}

// keepLeft notes which instances of a node are not in its Assignment.
func (a *Assignments) keepLeft(node types.UID, left map[types.UID]error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(left) > 0 {
		a.left[node] = left
	} else {
		delete(a.left, node)
	}
}
