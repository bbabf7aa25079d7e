package fleet

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/present"
)

// TestChanges: what is added to a page that was written says what came, what went and what is counted otherwise, and nothing twice.
func TestChanges(t *testing.T) {
	silent := func(n *v1alpha1.Node) {
		n.Status.Conditions = []metav1.Condition{condition(node.Ready, metav1.ConditionUnknown, node.ReasonAgentSilent, "nothing was heard")}
	}
	page := func(nodes []v1alpha1.Node, c Config) *Status {
		f := &Fleet{Nodes: nodes, Configs: []Config{c}}
		return f.Status(nil)
	}
	good := page([]v1alpha1.Node{aNode("web-1"), aNode("web-2")}, aConfig("web"))
	bad := page([]v1alpha1.Node{aNode("web-1"), aNode("web-2", silent)}, aConfig("web", halted))
	if text := good.Changes(good, now, present.Style{}); text != "" {
		t.Errorf("nothing has changed: %s", text)
	}
	if text := bad.Changes(bad, now, present.Style{}); text != "" {
		t.Errorf("what was told is told again: %s", text)
	}
	came := bad.Changes(good, now, present.Style{})
	for _, want := range []string{"2026-03-04T15:00:00Z Nodes      2 · 1 as declared · 1 unknown\n", "Z Configs    1 · 1 halted\n", "Z ✗ Halted       nodeconfig/web -n prod: ", "Z ? Unknown      node/web-2: "} {
		if !strings.Contains(came, want) {
			t.Errorf("no %q in\n%s", want, came)
		}
	}
	if strings.Contains(came, "Resources") {
		t.Errorf("counts that are the same are told: %s", came)
	}
	went := good.Changes(bad, now, present.Style{})
	for _, want := range []string{"Z Nodes      2 · 2 as declared\n", "Z ✔ Over         nodeconfig/web -n prod: Halted no more\n", "Z ✔ Over         node/web-2: Unknown no more\n"} {
		if !strings.Contains(went, want) {
			t.Errorf("no %q in\n%s", want, went)
		}
	}
}
