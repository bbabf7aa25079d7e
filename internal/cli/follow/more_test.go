package follow

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/remote"
)

// What is about hosts is explained by why, which says what to do; anything else is described.
func TestMore(t *testing.T) {
	config := remote.Kind{GroupVersionKind: schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: "v1alpha1", Kind: v1alpha1.KindNodeConfig}, Singular: "nodeconfig", Namespaced: true}
	for want, ref := range map[string]remote.Ref{
		"tako why nodeconfig.tako.dev/web -n prod": {Kind: config, Namespace: "prod", Name: "web"},
		"tako describe thing.x.org/a -n prod":      {Kind: things, Namespace: "prod", Name: "a"},
	} {
		if got := (&waiting{ref: ref, goal: await.Gone()}).more(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
