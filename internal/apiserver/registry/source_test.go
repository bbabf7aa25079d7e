package registry

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
)

// TestHoldUntilRemoved: a source has the finalizer exactly while its objects are to go with it, and gets none when it goes already.
func TestHoldUntilRemoved(t *testing.T) {
	now := metav1.NewTime(time.Now())
	for _, c := range []struct {
		name     string
		onRemove v1alpha1.SourceRemoval
		gone     *metav1.Time
		has      []string
		want     []string
	}{
		{"keeps", "", nil, []string{"others"}, []string{"others"}},
		{"deletes", v1alpha1.SourceRemovalDelete, nil, []string{"others"}, []string{"others", v1alpha1.SourceFinalizer}},
		{"deletes still", v1alpha1.SourceRemovalDelete, nil, []string{v1alpha1.SourceFinalizer}, []string{v1alpha1.SourceFinalizer}},
		{"keeps from now on", v1alpha1.SourceRemovalKeep, nil, []string{v1alpha1.SourceFinalizer, "others"}, []string{"others"}},
		{"is deleted", v1alpha1.SourceRemovalDelete, &now, []string{v1alpha1.SourceFinalizer}, []string{v1alpha1.SourceFinalizer}},
		{"is deleted, and is done", v1alpha1.SourceRemovalDelete, &now, nil, nil},
		{"is deleted, and keeps", v1alpha1.SourceRemovalKeep, &now, []string{v1alpha1.SourceFinalizer}, nil},
	} {
		s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Finalizers: slices.Clone(c.has), DeletionTimestamp: c.gone}, Spec: v1alpha1.SourceSpec{OnRemove: c.onRemove}}
		if holdUntilRemoved(s); !slices.Equal(s.Finalizers, c.want) {
			t.Errorf("%s: %v, want %v", c.name, s.Finalizers, c.want)
		}
	}
}
