package documents

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// workloadKind is that of workloads.
var workloadKind = schema.GroupKind{Group: "tako.dev", Kind: workload.Kind}

// Rank is the place of a kind in the order of creation: what others stand in, are instances of, or refer to comes first.
func Rank(kind schema.GroupKind) int {
	switch {
	case kind.Group == "" && kind.Kind == "Namespace":
		return 0
	case kind.Group == "apiextensions.k8s.io":
		return 1
	case kind.Group == "rbac.authorization.k8s.io":
		if kind.Kind == "ClusterRole" || kind.Kind == "Role" {
			return 2
		}
		return 3 // bindings name roles
	case kind.Group == "" && (kind.Kind == "ConfigMap" || kind.Kind == "Secret"):
		return 4
	case kind.Group == "tako.dev" && (kind.Kind == declare.KindNodeConfig || kind.Kind == declare.KindClusterNodeConfig):
		return 6 // names any of the above
	case kind == workloadKind:
		return 7 // runs on what configs have made of the nodes
	}
	return 5
}

// Sort puts documents into the order in which they are created; documents of one rank stay as they stand in the files.
// Deleting goes the other way round.
func Sort(documents []Document) {
	slices.SortStableFunc(documents, func(a, b Document) int { return cmp.Compare(Rank(a.Kind().GroupKind()), Rank(b.Kind().GroupKind())) })
}
