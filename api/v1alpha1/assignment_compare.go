package v1alpha1

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// OfWorkload reports whether the layer is that of a workload's revision, and no config's.
func (l *AssignedLayer) OfWorkload() bool { return strings.HasPrefix(l.Config, templatePrefix) }

// SameConfigs reports whether two Assignments of a node differ in nothing but instances and what these run: then what its host says of its configs in one
// of them is true in the other. The keys to secrets of configs change with the roots of these alone.
func (s *AssignmentSpec) SameConfigs(other *AssignmentSpec) bool {
	return s.NodeUID == other.NodeUID && s.Environment == other.Environment && s.AllowDeletions == other.AllowDeletions && slices.Equal(s.Absorbed, other.Absorbed) &&
		slices.EqualFunc(configsOf(s.Layers), configsOf(other.Layers), sameAssigned) && sameAssignedTry(s.Try, other.Try) && sameBesideInstances(s.Own, other.Own)
}

func configsOf(all []AssignedLayer) []AssignedLayer {
	return slices.DeleteFunc(slices.Clone(all), func(l AssignedLayer) bool { return l.OfWorkload() })
}

func sameAssigned(a, b AssignedLayer) bool {
	return a.Priority == b.Priority && a.Config == b.Config && a.Revision == b.Revision && a.Root == b.Root
}

func sameAssignedTry(a, b *AssignedTry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Seconds == b.Seconds && a.Config == b.Config && a.Fallback == b.Fallback
}

func sameBesideInstances(a, b *OwnLayer) bool {
	var none OwnLayer
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Holds, b.Holds) && slices.Equal(a.Peers, b.Peers)
}
