package controllers

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/api/v1alpha1"
)

// settled tells, from what the cache has, that nothing is to be made: the revision of the config as it is was made, and is there.
func settled(config client.Object, status *v1alpha1.NodeConfigStatus, made []metav1.PartialObjectMetadata) bool {
	revised := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRevised)
	return revised != nil && revised.Status == metav1.ConditionTrue && revised.ObservedGeneration == config.GetGeneration() &&
		slices.ContainsFunc(made, func(m metav1.PartialObjectMetadata) bool {
			return m.Name == status.Revision && m.DeletionTimestamp == nil
		})
}

// surplus returns which revisions of one config go: of those that are not in use all but the newest. Equally old ones are told
// apart by name, so that the answer is one.
func surplus(made []metav1.PartialObjectMetadata, inUse map[string]bool, keep int) []metav1.PartialObjectMetadata {
	old := slices.DeleteFunc(slices.Clone(made), func(m metav1.PartialObjectMetadata) bool {
		return inUse[m.Name] || m.DeletionTimestamp != nil
	})
	slices.SortFunc(old, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return old[min(keep, len(old)):]
}

// prune removes the revisions of a config that are neither in use nor among the newest. In use is what its status names, the way back
// of its rollout too, and what a node has, which may be there for long where a host is away.
func (r *revisions) prune(ctx context.Context, config client.Object, made []metav1.PartialObjectMetadata) error {
	status := r.kind.status(config)
	inUse := map[string]bool{status.Revision: true}
	if s := status.Rollout; s != nil {
		inUse[s.Target], inUse[s.Proven] = true, true
	}
	if len(surplus(made, inUse, r.keep)) == 0 {
		return nil
	}
	if err := r.addAssigned(ctx, config, inUse); err != nil {
		return err
	}
	for _, m := range surplus(made, inUse, r.keep) {
		o := r.metadata()
		o.Name, o.Namespace = m.Name, m.Namespace
		err := r.cached.Delete(ctx, o, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		r.metrics.removed.WithLabelValues(r.kind.revision).Inc()
		r.log.Info("old revision removed", "namespace", m.Namespace, "revision", m.Name, "uid", types.UID(m.UID))
	}
	return nil
}

// addAssigned adds the revisions of a config that nodes have, or would go back to.
func (r *revisions) addAssigned(ctx context.Context, config client.Object, inUse map[string]bool) error {
	list, err := r.assignments(ctx)
	if err != nil {
		return err
	}
	id := r.kind.config + "/" + config.GetName()
	if ns := config.GetNamespace(); ns != "" {
		id = r.kind.config + "/" + ns + "/" + config.GetName()
	}
	add := func(layers []v1alpha1.AssignedLayer) {
		for i := range layers {
			if layers[i].Config == id {
				inUse[layers[i].Revision] = true
			}
		}
	}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		add(spec.Layers)
		if spec.Try != nil {
			add(spec.Try.Layers)
		}
	}
	return nil
}

// assignments are all Assignments, as the server's own cache has them. They may be shared.
func (r *revisions) assignments(ctx context.Context) (*v1alpha1.AssignmentList, error) {
	lw := r.objects.ListerWatcher(r.gvk(v1alpha1.KindAssignment), false)
	if lw == nil {
		list := &v1alpha1.AssignmentList{}
		return list, r.cached.List(ctx, list)
	}
	o, err := toolscache.ToListerWatcherWithContext(lw).ListWithContext(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return o.(*v1alpha1.AssignmentList), nil
}
