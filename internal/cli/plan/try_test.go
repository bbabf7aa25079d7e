package plan

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/internal/cli/remote"
)

// TestTriedFirst: a config that there is already comes before the values that it takes; a new one after what it stands in.
func TestTriedFirst(t *testing.T) {
	change := func(kind, name string, before *unstructured.Unstructured) *Change {
		return &Change{Ref: remote.Ref{Kind: remote.Kind{GroupVersionKind: schema.GroupVersionKind{Kind: kind}}, Name: name}, Before: before}
	}
	there := &unstructured.Unstructured{}
	changes := []*Change{change("Namespace", "n", nil), change("ConfigMap", "m", there), change("NodeConfig", "new", nil), change("NodeConfig", "old", there),
		change("ClusterNodeConfig", "all", there)}
	TriedFirst(changes)
	var names []string
	for _, c := range changes {
		names = append(names, c.Ref.Name)
	}
	if got := strings.Join(names, " "); got != "old all n m new" {
		t.Errorf("the order is %s", got)
	}
}
