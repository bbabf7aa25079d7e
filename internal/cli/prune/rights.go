package prune

import (
	"slices"
	"strings"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RightsLast puts the bindings that give a user its rights, itself or by a group that it is in, behind all else that goes: without them it may
// delete nothing more.
func RightsLast(leftovers []Leftover, user string, groups []string) []Leftover {
	slices.SortStableFunc(leftovers, func(a, b Leftover) int {
		x, y := givesRights(a.Object, user, groups), givesRights(b.Object, user, groups)
		switch {
		case x == y:
			return 0
		case x:
			return 1
		}
		return -1
	})
	return leftovers
}

func givesRights(o *unstructured.Unstructured, user string, groups []string) bool {
	if o.GroupVersionKind().Group != rbac.GroupName || !strings.HasSuffix(o.GetKind(), "Binding") {
		return false
	}
	subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	return slices.ContainsFunc(subjects, func(s any) bool {
		fields, _ := s.(map[string]any)
		name, _ := fields["name"].(string)
		return fields["kind"] == rbac.UserKind && name == user || fields["kind"] == rbac.GroupKind && slices.Contains(groups, name)
	})
}
