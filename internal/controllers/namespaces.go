package controllers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tako.dev/tako/internal/fleet/namespace"
)

// namespaces is the shell of fleet/namespace.
type namespaces struct {
	client   client.Client
	kinds    *kinds
	metadata metadata.Interface
	objects  dynamic.Interface
	log      *slog.Logger
	metrics  *metrics
}

func (c *Controllers) addNamespaces(m manager.Manager) error {
	terminating := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })
	n := &namespaces{client: m.GetClient(), kinds: c.kinds, metadata: c.metadata, objects: c.objects, log: c.options.Log.With("component", "namespaces"), metrics: c.metrics}
	return builder.ControllerManagedBy(m).Named("namespaces").For(&core.Namespace{}, builder.WithPredicates(terminating)).Complete(n)
}

// Reconcile takes one step towards the end of a namespace that is being deleted.
func (n *namespaces) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := n.reconcile(ctx, request.Name)
	switch {
	case errors.Is(ctx.Err(), context.Canceled) || apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: retryMin}, nil // somebody was faster; look again
	case err != nil:
		n.metrics.failures.WithLabelValues("namespaces").Inc()
	}
	return result, err
}

func (n *namespaces) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	var ns core.Namespace
	if err := n.client.Get(ctx, client.ObjectKey{Name: name}, &ns); err != nil {
		return reconcile.Result{}, err
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, core.FinalizerKubernetes) {
		return reconcile.Result{}, nil
	}
	view, err := n.look(ctx, &ns)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := namespace.Decide(view, time.Now())
	if failed := n.empty(ctx, name, &view, d.Delete); failed {
		d.Conditions = namespace.Decide(view, time.Now()).Conditions
	}
	if d.Finalize {
		return reconcile.Result{}, n.finalize(ctx, &ns)
	}
	if err := n.tell(ctx, &ns, d.Conditions); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: d.Again}, nil
}

// look finds out what is in a namespace. Kinds are asked for anew: one that came a moment ago may have objects there.
func (n *namespaces) look(ctx context.Context, ns *core.Namespace) (namespace.View, error) {
	if err := n.kinds.refresh(ctx); err != nil {
		return namespace.View{}, err
	}
	list, unknown := n.kinds.list()
	view := namespace.View{Name: ns.Name, Deleted: ns.DeletionTimestamp.Time, Unknown: unknown}
	for _, s := range list {
		if s.namespaced && s.can("list", "delete") {
			view.Content = append(view.Content, n.count(ctx, ns.Name, s))
		}
	}
	return view, nil
}

func (n *namespaces) count(ctx context.Context, name string, s served) namespace.Content {
	c := namespace.Content{Resource: namespace.Resource{Group: s.resource.Group, Version: s.resource.Version, Name: s.resource.Resource}}
	list, err := n.metadata.Resource(s.resource).Namespace(name).List(ctx, metav1.ListOptions{Limit: pageMax})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return c // the kind went meanwhile, and its objects with it
	}
	if err != nil {
		c.Unread = err.Error()
		return c
	}
	c.Left = len(list.Items)
	if list.RemainingItemCount != nil {
		c.Left += int(*list.RemainingItemCount)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			continue
		}
		for _, f := range list.Items[i].Finalizers {
			if c.Held == nil {
				c.Held = map[string]int{}
			}
			c.Held[f]++
		}
	}
	return c
}

// empty deletes what was decided, and notes in the view what did not work.
func (n *namespaces) empty(ctx context.Context, name string, view *namespace.View, resources []namespace.Resource) (failed bool) {
	for i := range view.Content {
		c := &view.Content[i]
		if !slices.Contains(resources, c.Resource) {
			continue
		}
		if err := n.deleteAll(ctx, name, c.Resource); err != nil && !apierrors.IsNotFound(err) {
			c.Undone, failed = err.Error(), true
			n.metrics.failures.WithLabelValues("namespaces").Inc()
			n.log.Warn("content is not deleted", "namespace", name, "resource", c.Resource.String(), "err", err)
		}
	}
	return failed
}

// deleteAll deletes all objects of a kind in a namespace: in one call, and one by one where the kind cannot do that.
func (n *namespaces) deleteAll(ctx context.Context, name string, r namespace.Resource) error {
	s, ok := n.served(r)
	if !ok {
		return nil
	}
	objects := n.objects.Resource(s.resource).Namespace(name)
	how := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &how}
	if s.can("deletecollection") {
		return objects.DeleteCollection(ctx, options, metav1.ListOptions{})
	}
	list, err := n.metadata.Resource(s.resource).Namespace(name).List(ctx, metav1.ListOptions{Limit: pageMax}) // the next round takes the next page
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := objects.Delete(ctx, list.Items[i].Name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (n *namespaces) served(r namespace.Resource) (served, bool) {
	list, _ := n.kinds.list()
	i := slices.IndexFunc(list, func(s served) bool {
		return s.resource.Group == r.Group && s.resource.Version == r.Version && s.resource.Resource == r.Name
	})
	if i < 0 {
		return served{}, false
	}
	return list[i], true
}

// finalize lets the namespace go.
func (n *namespaces) finalize(ctx context.Context, ns *core.Namespace) error {
	ns = ns.DeepCopy()
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f core.FinalizerName) bool { return f == core.FinalizerKubernetes })
	if err := n.client.SubResource("finalize").Update(ctx, ns); err != nil {
		return err
	}
	n.metrics.namespaces.Inc()
	n.log.Info("namespace is empty and goes", "namespace", ns.Name)
	return nil
}

// tell writes the conditions, where they say something new.
func (n *namespaces) tell(ctx context.Context, ns *core.Namespace, conditions []namespace.Condition) error {
	changed := ns.DeepCopy()
	for _, c := range conditions {
		setCondition(&changed.Status, c)
	}
	if slices.Equal(changed.Status.Conditions, ns.Status.Conditions) {
		return nil
	}
	return n.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(ns, client.MergeFromWithOptimisticLock{}))
}

func setCondition(status *core.NamespaceStatus, c namespace.Condition) {
	value := core.ConditionFalse
	if c.True {
		value = core.ConditionTrue
	}
	next := core.NamespaceCondition{Type: core.NamespaceConditionType(c.Type), Status: value, Reason: c.Reason, Message: c.Message, LastTransitionTime: metav1.Now()}
	i := slices.IndexFunc(status.Conditions, func(old core.NamespaceCondition) bool { return old.Type == next.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, next)
		return
	}
	if old := status.Conditions[i]; old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	status.Conditions[i] = next
}
