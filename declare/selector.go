package declare

import "slices"

// Matches reports whether labels satisfy both parts of the selector; the empty selector matches everything. NotIn and
// DoesNotExist match where the key is absent, as in Kubernetes.
func (s Selector) Matches(labels map[string]string) bool {
	for k, want := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	for i := range s.MatchExpressions {
		if !s.MatchExpressions[i].matches(labels) {
			return false
		}
	}
	return true
}

func (r *SelectorRequirement) matches(labels map[string]string) bool {
	value, ok := labels[r.Key]
	switch r.Operator {
	case OpIn:
		return ok && slices.Contains(r.Values, value)
	case OpNotIn:
		return !ok || !slices.Contains(r.Values, value)
	case OpExists:
		return ok
	case OpDoesNotExist:
		return !ok
	}
	return false // Validate refuses any other operator
}
