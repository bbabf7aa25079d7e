package fleet

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
)

// ofDrain is whether instances may come to a node, and how far it is in getting rid of those that are there.
func ofDrain(n *v1alpha1.Node) []Finding {
	back := "tako node uncordon " + n.Name
	if n.Spec.Drain == nil {
		if n.Spec.Unschedulable {
			return []Finding{{Weight: Note, What: "Cordoned", Text: "no new instance comes there, and what runs there stays", Next: back}}
		}
		return nil
	}
	c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionDrained)
	if c == nil || c.ObservedGeneration < n.Generation {
		return []Finding{{Weight: Waiting, What: "Draining", Text: "nobody has looked yet at what is there"}}
	}
	x := Finding{Weight: Waiting, What: "Draining", Text: c.Message, Since: c.LastTransitionTime}
	if c.Status == metav1.ConditionTrue {
		x.Weight, x.What, x.Next = Note, "Drained", back
		return []Finding{x}
	}
	if code, err := reason.ParseCode(c.Reason); err == nil {
		x.Weight, x.What, x.Code, x.Next = Broken, "Drain stuck", code.String(), "tako node drain "+n.Name+" --deadline 10m"
	}
	return []Finding{x}
}
