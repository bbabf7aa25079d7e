package await

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
)

// convergedGoal is the goal of a node that everything on its host is as declared, and of a Source that all hosts are as it declares.
const convergedGoal = "converged"

// Converged reports whether the goal is that all on hosts is as declared.
func (g Goal) Converged() bool { return g.converged }

// Fits reports whether objects of a kind can reach the goal.
func (g Goal) Fits(kind string) bool {
	return !g.converged || kind == v1alpha1.KindNode || kind == v1alpha1.KindSource
}

// lookConverged judges a node: its host answers, has the newest state that there is for it, and all of that is as declared. A state
// that the host does not take up stays so until somebody changes something.
func lookConverged(object *unstructured.Unstructured) Verdict {
	if object.GetKind() == v1alpha1.KindSource {
		return lookSource(object)
	}
	var n v1alpha1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &n); err != nil {
		return Verdict{Pending, err.Error()}
	}
	s := &n.Status
	ready, heard := conditionOf(object, "Ready")
	switch {
	case s.Identity == nil:
		return Verdict{Pending, "no host has joined under this name yet"}
	case !heard:
		return Verdict{Pending, "its host was not heard yet"}
	case ready.status != string(metav1.ConditionTrue):
		return Verdict{Pending, ready.words()}
	case s.AssignedHead == nil:
		return Verdict{Pending, "there is no state for it yet"}
	}
	assigned := s.AssignedHead
	if v := s.Verdict; v != nil && v.Version == assigned.Version {
		switch v.Type {
		case v1alpha1.VerdictWithheld:
			if strings.TrimPrefix(v.Root, "sha256:") == n.Spec.AllowDeletions && v.Root != "" {
				return Verdict{Pending, verdictWords(v) + "; it was allowed since"}
			}
			return Verdict{Stalled, verdictWords(v)}
		case v1alpha1.VerdictRejected, v1alpha1.VerdictQuarantined:
			return Verdict{Stalled, verdictWords(v)}
		case v1alpha1.VerdictPartial:
			return Verdict{Pending, problemWords(&n)}
		case v1alpha1.VerdictApplied:
			if a := s.AppliedHead; a != nil && a.Version == assigned.Version && a.Epoch == assigned.Epoch {
				return Verdict{Reached, fmt.Sprintf("state %d is applied, and all is as declared", a.Version)}
			}
		}
	}
	if a := s.AppliedHead; a != nil {
		return Verdict{Pending, fmt.Sprintf("it has state %d, and state %d is there for it", a.Version, assigned.Version)}
	}
	return Verdict{Pending, fmt.Sprintf("it has no state yet, and state %d is there for it", assigned.Version)}
}

func verdictWords(v *v1alpha1.Verdict) string {
	text := fmt.Sprintf("state %d is %s", v.Version, v.Type)
	if v.Code != "" {
		text += " (" + v.Code + ")"
	}
	if v.Message != "" {
		text += ": " + v.Message
	}
	return text
}

// problemWords tells of the worst resource of a node.
func problemWords(n *v1alpha1.Node) string {
	if len(n.Status.Problems) == 0 {
		return "not everything is as declared"
	}
	p := &n.Status.Problems[0]
	text := p.Resource + " is " + p.Outcome
	if p.Message != "" {
		text += ": " + p.Message
	}
	return text
}
