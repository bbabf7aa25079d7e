package v1alpha1

import (
	"fmt"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// TestLabelsAreBounded: a Node, a Token and the labels that a Token gives have the bound that a config's labels have.
func TestLabelsAreBounded(t *testing.T) {
	for what, validate := range map[string]func(map[string]string) []declare.Fault{
		"metadata.labels of a Node": func(l map[string]string) []declare.Fault {
			n := &Node{}
			n.Labels = l
			return ValidateNode(n, nil, time.Now())
		},
		"metadata.labels of a Token": func(l map[string]string) []declare.Fault {
			token := &Token{Spec: TokenSpec{Type: TokenJoin, Join: &JoinToken{}}}
			token.Labels = l
			return ValidateToken(token, time.Now())
		},
		"spec.join.labels": func(l map[string]string) []declare.Fault {
			return ValidateToken(&Token{Spec: TokenSpec{Type: TokenJoin, Join: &JoinToken{Labels: l}}}, time.Now())
		},
	} {
		labels := map[string]string{}
		for i := range declare.LabelsMax {
			labels[fmt.Sprintf("l%d", i)] = "x"
		}
		if faults := validate(labels); len(faults) != 0 {
			t.Errorf("%s: %d labels: %v", what, len(labels), faults)
		}
		labels["more"] = "x"
		if faults := validate(labels); len(faults) != 1 || faults[0].Code != reason.InvalidValue {
			t.Errorf("%s: %d labels: %v", what, len(labels), faults)
		}
	}
}
