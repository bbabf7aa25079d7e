package cli

import (
	"context"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestTwoPeople: nobody overwrites unseen what somebody else has applied; a set is applied by anybody.
func TestTwoPeople(t *testing.T) {
	c := newConsole(t)
	in := func(text string) *strings.Reader { return strings.NewReader(text) }
	must := func(person *console, text string, args ...string) string {
		t.Helper()
		out, errs, exit := person.run(t.Context(), in(text), args...)
		if exit != reason.ExitOK {
			t.Fatalf("%v: exit %d: %s%s", args, exit, out, errs)
		}
		return out + errs
	}
	const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: owns-configmaps}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: owns-configmaps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: owns-configmaps}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: owners}]
`
	must(c, roles, "apply", "-f", "-")
	eve := c.person(t, "eve", "owners", "owner-eve")
	t.Cleanup(func() {
		c.run(context.Background(), in(""), "delete", "configmaps", "owned", "owned-set", "--ignore-not-found")
	})
	object := func(name, data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {" + data + "}\n"
	}
	must(c, object("owned", "a: one, b: one"), "apply", "-f", "-")
	waitUntil(t, func() (string, bool) {
		out, errs, exit := eve.run(t.Context(), in(""), "get", "configmap", "owned")
		return out + errs, exit == reason.ExitOK
	})

	_, errs, exit := eve.run(t.Context(), in(object("owned", "a: two, b: one")), "apply", "-f", "-")
	if exit != reason.ExitConflict || !strings.Contains(errs, "TK1104") || !strings.Contains(errs, `conflict with "tako:admin"`) {
		t.Errorf("what somebody else has applied: exit %d: %s", exit, errs)
	}
	if got := must(c, "", "get", "configmap", "owned", "-o", "jsonpath={.data.a}"); strings.TrimSpace(got) != "one" {
		t.Errorf("it was overwritten by %q", got)
	}
	must(c, object("owned", "a: one, b: three"), "apply", "-f", "-") // the same person again
	must(eve, object("owned", "a: two"), "apply", "--force-conflicts", "-f", "-")
	said := must(eve, object("owned", "a: two"), "apply", "-f", "-")
	if !strings.Contains(said, `keeps what "tako:admin" has applied`) || !strings.Contains(said, "data.b") {
		t.Errorf("nothing says why a field stays: %s", said)
	}
	must(eve, object("owned", "a: two"), "apply", "--field-manager=tako:admin", "-f", "-")
	if got := must(c, "", "get", "configmap", "owned", "-o", "jsonpath={.data}"); strings.TrimSpace(got) != `{"a":"two"}` {
		t.Errorf("who applies in the name of another leaves %s", got)
	}

	must(c, object("owned-set", "a: one"), "apply", "--set", "shared", "-f", "-")
	must(eve, object("owned-set", "a: two"), "apply", "--set", "shared", "-f", "-")
	if _, errs, exit := c.run(t.Context(), in(object("owned-set", "a: three")), "apply", "-f", "-"); exit != reason.ExitConflict {
		t.Errorf("by hand over what a set has: exit %d: %s", exit, errs)
	}
	if _, errs, exit := c.run(t.Context(), in(""), "apply", "-f", "-", "--field-manager", strings.Repeat("x", 129)); exit == reason.ExitOK {
		t.Errorf("a manager that is too long: %s", errs)
	}
}

func TestManagerOf(t *testing.T) {
	long := "system:serviceaccount:" + strings.Repeat("é", 100)
	a, b := managerOf(long+"a"), managerOf(long+"b")
	if len(a) > managerMax || a == b || !strings.HasPrefix(a, "tako:system:") || strings.ContainsRune(a, '�') {
		t.Errorf("%q and %q", a, b)
	}
	if got := managerOf("ann"); got != "tako:ann" {
		t.Errorf("ann owns as %q", got)
	}
}
