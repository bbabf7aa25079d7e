// Package plans answers where the instances of workloads would go that nobody has applied. Who may apply a workload may ask that about it: nothing is
// written, and nothing of other namespaces told.
package plans

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/controllers/preview"
)

const (
	// answerMax bounds one answer: a person waits for it, and what was found by then is an answer too.
	answerMax = 15 * time.Second
	// turnMax is how long a question waits for its turn. One is answered at a time, because each takes a processor, and memory for a namespace.
	turnMax = 10 * time.Second
	// againSeconds is when who got no turn may ask again.
	againSeconds = 5
	// instancesMax is how many instances there may be in the namespaces of a question: some 2 KB of memory each while it is answered.
	instancesMax = 100_000
)

// Options are what a Store works with; all are required.
type Options struct {
	// Objects are those that there are.
	Objects *registry.Registry
	// Authorizer says who may apply what.
	Authorizer authorizer.Authorizer
	// Hosts are the hosts and what they take; false while this server does not lead, and knows nothing of them.
	Hosts func() (preview.Hosts, bool)
}

// Store answers Plans. Use New.
type Store struct {
	options Options
	turn    chan struct{} // holds one while a question is answered
}

var (
	_ rest.Creater              = (*Store)(nil)
	_ rest.Scoper               = (*Store)(nil)
	_ rest.SingularNameProvider = (*Store)(nil)
)

// New starts nothing.
func New(o Options) *Store { return &Store{options: o, turn: make(chan struct{}, 1)} }

// New makes an empty question.
func (*Store) New() runtime.Object { return &v1alpha1.Plan{} }

// Destroy does nothing: nothing is kept.
func (*Store) Destroy() {}

// NamespaceScoped says that a question is about one namespace.
func (*Store) NamespaceScoped() bool { return true }

// GetSingularName is the question's name.
func (*Store) GetSingularName() string { return "plan" }

// Create answers. The errors are Forbidden, Invalid with what is wrong with each workload, and TooManyRequests and ServiceUnavailable, after which to ask
// again.
func (s *Store) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	p := obj.(*v1alpha1.Plan)
	if validate != nil {
		if err := validate(ctx, p.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	p.Namespace, p.ManagedFields = request.NamespaceValue(ctx), nil      // nobody owns fields of a question
	if len(p.Spec.Workloads)+len(p.Spec.Delete) <= v1alpha1.PlannedMax { // otherwise it is refused below, before anybody is asked a million times
		if err := s.mayApply(ctx, p); err != nil {
			return nil, err
		}
	}
	hosts, leads := s.options.Hosts()
	if !leads {
		return nil, apierrors.NewServiceUnavailable("this server does not lead, and knows nothing of hosts")
	}
	var workloads []*v1alpha1.Workload
	if err := list(ctx, s.options.Objects, v1alpha1.ResourceWorkloads, p.Namespace, &workloads); err != nil {
		return nil, err
	}
	before := map[string]*v1alpha1.Workload{}
	for _, w := range workloads {
		before[w.Name] = w
	}
	if err := s.mayCreate(ctx, p, before); err != nil {
		return nil, err
	}
	if faults := v1alpha1.ValidatePlan(p, func(name string) *v1alpha1.Workload { return before[name] }); len(faults) > 0 {
		return nil, apierrors.NewInvalid(v1alpha1.Kind(v1alpha1.KindPlan), p.Name, registry.FieldErrors(faults))
	}
	done, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	fleet, err := s.fleet(ctx, p, workloads)
	if err != nil {
		return nil, err
	}
	fleet.Hosts = hosts
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	p.Status, err = preview.Make(ctx, fleet, p.Namespace, &p.Spec, time.Now())
	return p, err
}

// take waits for the turn.
func (s *Store) take(ctx context.Context) (done func(), err error) {
	timer := time.NewTimer(turnMax)
	defer timer.Stop()
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, apierrors.NewTooManyRequests("others are asking where instances would go, and one is answered at a time", againSeconds)
	}
}

// mayApply asks whether somebody may change and delete what he asks about.
func (s *Store) mayApply(ctx context.Context, p *v1alpha1.Plan) error {
	for i := range p.Spec.Workloads {
		if err := s.may(ctx, "patch", p.Namespace, p.Spec.Workloads[i].Name); err != nil {
			return err
		}
	}
	for _, name := range p.Spec.Delete {
		if err := s.may(ctx, "delete", p.Namespace, name); err != nil {
			return err
		}
	}
	return nil
}

// mayCreate asks whether he may make those that are not there: who may not change them has not come to learn that by now.
func (s *Store) mayCreate(ctx context.Context, p *v1alpha1.Plan, before map[string]*v1alpha1.Workload) error {
	for i := range p.Spec.Workloads[:min(len(p.Spec.Workloads), v1alpha1.PlannedMax)] {
		if name := p.Spec.Workloads[i].Name; before[name] == nil {
			if err := s.may(ctx, "create", p.Namespace, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) may(ctx context.Context, verb, namespace, name string) error {
	who, known := request.UserFrom(ctx)
	if !known {
		return apierrors.NewBadRequest("nobody asks")
	}
	decision, why, err := s.options.Authorizer.Authorize(ctx, authorizer.AttributesRecord{User: who, Verb: verb, Namespace: namespace, APIGroup: v1alpha1.GroupName,
		APIVersion: v1alpha1.Version, Resource: v1alpha1.ResourceWorkloads, Name: name, ResourceRequest: true})
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case decision == authorizer.DecisionAllow:
		return nil
	case why == "":
		why = "no role allows it"
	}
	return apierrors.NewForbidden(v1alpha1.Resource(v1alpha1.ResourceWorkloads), name, fmt.Errorf("who asks where its instances would go must be allowed to %s it: %s", verb, why))
}

// fleet reads what there is: in the namespace, and in others to which workloads of it are to be near, or from which away.
func (s *Store) fleet(ctx context.Context, p *v1alpha1.Plan, workloads []*v1alpha1.Workload) (*preview.Fleet, error) {
	f := &preview.Fleet{Workloads: workloads}
	for _, namespace := range namespacesOf(p, workloads) {
		if namespace != p.Namespace {
			if err := list(ctx, s.options.Objects, v1alpha1.ResourceWorkloads, namespace, &f.Workloads); err != nil {
				return nil, err
			}
		}
		if err := list(ctx, s.options.Objects, v1alpha1.ResourceRevisions, namespace, &f.Revisions); err != nil {
			return nil, err
		}
		if err := list(ctx, s.options.Objects, v1alpha1.ResourceInstances, namespace, &f.Instances); err != nil {
			return nil, err
		}
		if n := len(f.Instances); n > instancesMax {
			return nil, apierrors.NewForbidden(v1alpha1.Resource(v1alpha1.ResourcePlans), p.Name, fmt.Errorf("there are %d instances, and where others would go is said beside at most %d", n, instancesMax))
		}
	}
	f.Revisions = slices.DeleteFunc(f.Revisions, func(r *v1alpha1.Revision) bool { return r.Spec.Template == nil })
	return f, list(ctx, s.options.Objects, v1alpha1.ResourceNodes, metav1.NamespaceAll, &f.Nodes)
}

// namespacesOf are the namespaces that matter, that of the question first.
func namespacesOf(p *v1alpha1.Plan, workloads []*v1alpha1.Workload) []string {
	others := map[string]bool{}
	for i := range p.Spec.Workloads {
		w := &v1alpha1.Workload{Spec: p.Spec.Workloads[i].Spec}
		workloads = append(workloads[:len(workloads):len(workloads)], w)
	}
	for _, w := range workloads {
		for _, a := range slices.Concat(w.Spec.Placement.Affinity, w.Spec.Placement.AntiAffinity) {
			for _, namespace := range a.Namespaces {
				others[namespace] = true
			}
		}
	}
	delete(others, p.Namespace)
	return append([]string{p.Namespace}, slices.Sorted(maps.Keys(others))...)
}

// list appends the objects of a resource in a namespace. They are shared with others.
func list[T any](ctx context.Context, objects *registry.Registry, resource, namespace string, to *[]T) error {
	found, err := objects.Store(v1alpha1.Resource(resource)).List(request.WithNamespace(ctx, namespace), &internalversion.ListOptions{})
	if err != nil {
		return err
	}
	return meta.EachListItem(found, func(o runtime.Object) error {
		*to = append(*to, any(o).(T))
		return nil
	})
}
