package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestRoleAndBindingTogether: a binding that comes with its role is no mistake while nothing is applied, for nobody; one whose role comes
// from nowhere is.
func TestRoleAndBindingTogether(t *testing.T) {
	c := newConsole(t)
	const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gives-rights}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [get, create, patch, delete]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: gives-rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gives-rights}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: givers}]
`
	in := func(text string) *strings.Reader { return strings.NewReader(text) }
	out, errs, exit := c.run(t.Context(), in(rights), "apply", "-f", "-")
	if exit != reason.ExitOK || strings.Contains(errs, "there is no") {
		t.Fatalf("exit %d: %s%s", exit, out, errs)
	}
	binding := func(role string) string {
		return fmt.Sprintf(`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: together}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
`, role)
	}
	const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: together}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
`
	t.Cleanup(func() {
		c.run(context.Background(), in(role+binding("together")+"---"+rights), "delete", "-f", "-") // the tests share the server
	})
	giver := c.person(t, "giver", "givers", "giver")
	waitUntil(t, func() (string, bool) {
		out, errs, exit := giver.run(t.Context(), in(role+binding("together")), "apply", "-f", "-", "--dry-run=server")
		return fmt.Sprintf("exit %d: %s%s", exit, out, errs), exit == reason.ExitOK && !strings.Contains(errs, "there is no") && strings.Contains(errs, "its role is declared in the same run")
	})
	if out, errs, exit := c.run(t.Context(), in(role+binding("together")), "apply", "-f", "-", "--dry-run=server"); exit != reason.ExitOK || errs != "" {
		t.Errorf("exit %d: %s%s", exit, out, errs)
	}
	if _, errs, exit := c.run(t.Context(), in(role+binding("nowhere")), "apply", "-f", "-", "--dry-run=server"); exit != reason.ExitOK || !strings.Contains(errs, `there is no Role "nowhere"`) {
		t.Errorf("a role from nowhere: exit %d: %s", exit, errs)
	}
	waitUntil(t, func() (string, bool) { // until what was applied just before is among the rules
		out, errs, exit := giver.run(t.Context(), in(role+binding("together")), "apply", "-f", "-")
		return fmt.Sprintf("exit %d: %s%s", exit, out, errs), exit == reason.ExitOK
	})
}
