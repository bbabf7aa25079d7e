package controllers

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/api/v1alpha1"
)

// settled tells, from what the cache has, that nothing is to be made: the status is about the config as it is, and the revision
// that it names is there.
func settled(config client.Object, status *v1alpha1.NodeConfigStatus, made []metav1.PartialObjectMetadata) bool {
	return status.ObservedGeneration == config.GetGeneration() && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) &&
		slices.ContainsFunc(made, func(m metav1.PartialObjectMetadata) bool {
			return m.Name == status.Revision && m.DeletionTimestamp == nil
		})
}

// surplus returns which revisions of one config go: of those that are not in use all but the newest. Equally old ones are told
// apart by name, so that the answer is one.
func surplus(made []metav1.PartialObjectMetadata, inUse string, keep int) []metav1.PartialObjectMetadata {
	old := slices.DeleteFunc(slices.Clone(made), func(m metav1.PartialObjectMetadata) bool {
		return m.Name == inUse || m.DeletionTimestamp != nil
	})
	slices.SortFunc(old, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return old[min(keep, len(old)):]
}

// prune removes the revisions of a config that are neither in use nor among the newest.
func (r *revisions) prune(ctx context.Context, made []metav1.PartialObjectMetadata, inUse string) error {
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
