package apiserver

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
)

const (
	fleet     = "/apis/tako.dev/v1alpha1"
	applyYAML = "application/apply-patch+yaml"
)

// person makes a user with a role of rules, and waits until he has it.
func person(t *testing.T, name string, rules ...rbac.PolicyRule) *rest.Config {
	t.Helper()
	c := client(t)
	if _, err := c.RbacV1().ClusterRoles().Create(t.Context(), &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return bound(t, name, name)
}

// bound makes a user who has a role, and waits until he may list nodeconfigs, which the role has to allow.
func bound(t *testing.T, name, role string) *rest.Config {
	t.Helper()
	bind := &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbac.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: []rbac.Subject{{Kind: "User", Name: name}}}
	if _, err := client(t).RbacV1().ClusterRoleBindings().Create(t.Context(), bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, b := call(t, theSite.admin, http.MethodPost, fleet+"/tokens", plainJSON,
		fmt.Sprintf(`{"apiVersion":"tako.dev/v1alpha1","kind":"Token","metadata":{"name":%q},"spec":{"type":"user","user":{"name":%[1]q}}}`, name))
	who := as(decode[v1alpha1.Token](t, b).Status.Token)
	eventually(t, name+" may list configs", func() bool {
		code, _ := call(t, who, http.MethodGet, configs, plainJSON, nil)
		return code == http.StatusOK
	})
	return who
}

// TestContentsThatAuthorsMayRead: a config brings to hosts only what its author may read himself, however it is written.
func TestContentsThatAuthorsMayRead(t *testing.T) {
	for _, name := range []string{"readable", "locked"} {
		secret := &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"k": "v"}}
		if _, err := client(t).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	her := person(t, "author",
		rbac.PolicyRule{APIGroups: []string{"tako.dev"}, Resources: []string{"nodeconfigs"}, Verbs: []string{"*"}},
		rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"readable"}, Verbs: []string{"get"}})
	from := func(name, secret string) *v1alpha1.NodeConfig {
		c := config(name, "")
		c.Spec.Resources[0].File.ContentFrom = &declare.ContentSource{Secret: &declare.KeySelector{Name: secret, Key: "k"}}
		return c
	}
	try := func(who *rest.Config, method, path, contentType string, body any, want int) {
		t.Helper()
		code, b := call(t, who, method, path, contentType, body)
		if code != want || want == http.StatusForbidden && !strings.Contains(string(b), `may not get secrets \"locked\" in namespace \"default\"`) {
			t.Errorf("%s %s: %d, %s", method, path, code, b)
		}
	}
	const apply = "?fieldManager=m&force=true"
	try(her, http.MethodPost, configs, plainJSON, from("her-own", "readable"), http.StatusCreated)
	try(her, http.MethodPost, configs, plainJSON, from("her-other", "locked"), http.StatusForbidden)
	try(her, http.MethodPost, configs+"?dryRun=All", plainJSON, from("her-other", "locked"), http.StatusForbidden)
	try(her, http.MethodPut, configs+"/her-own", plainJSON, from("her-own", "locked"), http.StatusForbidden)
	try(her, http.MethodPatch, configs+"/her-own"+apply, applyYAML, from("her-own", "locked"), http.StatusForbidden)
	try(her, http.MethodPatch, configs+"/her-new"+apply, applyYAML, from("her-new", "locked"), http.StatusForbidden)
	try(her, http.MethodPatch, configs+"/her-new"+apply, applyYAML, from("her-new", "readable"), http.StatusCreated)
	try(her, http.MethodPatch, configs+"/her-own", "application/json-patch+json",
		`[{"op":"replace","path":"/spec/resources/0/file/contentFrom/secret/name","value":"locked"}]`, http.StatusForbidden)
	// What somebody else has put there stays, and does not keep her from changing the rest.
	try(theSite.admin, http.MethodPut, configs+"/her-own", plainJSON, from("her-own", "locked"), http.StatusOK)
	try(her, http.MethodPatch, configs+"/her-own", "application/merge-patch+json", `{"spec":{"priority":7}}`, http.StatusOK)
}

// TestNodeStatusIsTheServers: nobody writes who may speak for a node, an administrator neither.
func TestNodeStatusIsTheServers(t *testing.T) {
	node := `{"apiVersion":"tako.dev/v1alpha1","kind":"Node","metadata":{"name":"sealed"},"status":{"identity":{"key":"k","sealingKey":"AA==","joined":"2026-01-01T00:00:00Z"}}}`
	code, b := call(t, theSite.admin, http.MethodPost, fleet+"/nodes", plainJSON, node)
	if code != http.StatusCreated || decode[v1alpha1.Node](t, b).Status.Identity != nil {
		t.Errorf("create: %d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPut, fleet+"/nodes/sealed", plainJSON, node)
	if code != http.StatusOK || decode[v1alpha1.Node](t, b).Status.Identity != nil {
		t.Errorf("update: %d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPatch, fleet+"/nodes/sealed?fieldManager=m", applyYAML, node)
	if code != http.StatusOK || decode[v1alpha1.Node](t, b).Status.Identity != nil {
		t.Errorf("apply: %d, %s", code, b)
	}
	if code, b = call(t, theSite.admin, http.MethodPut, fleet+"/nodes/sealed/status", plainJSON, node); code != http.StatusNotFound {
		t.Errorf("update the status: %d, %s", code, b)
	}
}

// TestAssignmentsAreTheServers: nobody else writes one, an administrator neither, nor who has taken the server's name; and it goes with
// its node.
func TestAssignmentsAreTheServers(t *testing.T) {
	_, b := call(t, theSite.admin, http.MethodPost, fleet+"/nodes", plainJSON, `{"apiVersion":"tako.dev/v1alpha1","kind":"Node","metadata":{"name":"owner"}}`)
	uid := decode[v1alpha1.Node](t, b).UID
	text := fmt.Sprintf(`{"apiVersion":"tako.dev/v1alpha1","kind":"Assignment","metadata":{"name":"owner","ownerReferences":[{"apiVersion":"tako.dev/v1alpha1","kind":"Node","name":"owner","uid":%q}]},"spec":{"nodeUID":%[1]q}}`, uid)
	const one = fleet + "/assignments/owner"
	eventually(t, "the server has made one", func() bool {
		code, _ := call(t, theSite.admin, http.MethodGet, one, plainJSON, nil)
		return code == http.StatusOK
	})
	pretender := rest.CopyConfig(theSite.admin)
	pretender.Impersonate = rest.ImpersonationConfig{UserName: user.APIServerUser, Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}}
	for _, c := range []struct{ method, path, contentType, body string }{
		{http.MethodPost, fleet + "/assignments", plainJSON, text},
		{http.MethodPut, one, plainJSON, text},
		{http.MethodPatch, one, "application/merge-patch+json", `{"spec":{"environment":"x"}}`},
		{http.MethodPatch, one + "?fieldManager=m", applyYAML, text},
		{http.MethodDelete, one, plainJSON, ""},
		{http.MethodDelete, fleet + "/assignments", plainJSON, ""},
	} {
		for _, who := range []*rest.Config{theSite.admin, pretender} {
			code, b := call(t, who, c.method, c.path, c.contentType, c.body)
			if code != http.StatusForbidden || !strings.Contains(string(b), "tako works it out from nodes and configs") {
				t.Errorf("%s %s as %q: %d, %s", c.method, c.path, who.Impersonate.UserName, code, b)
			}
		}
	}
	if code, b := call(t, theSite.admin, http.MethodDelete, fleet+"/nodes/owner", plainJSON, nil); code != http.StatusOK {
		t.Fatalf("delete the node: %d, %s", code, b)
	}
	eventually(t, "the assignment goes with its node", func() bool {
		code, _ := call(t, theSite.admin, http.MethodGet, one, plainJSON, nil)
		return code == http.StatusNotFound
	})
}

// TestWhoMayAskAHost: a viewer asks what happened, and who may read secrets also what was logged. No host is there to answer.
func TestWhoMayAskAHost(t *testing.T) {
	if code, b := call(t, theSite.admin, http.MethodPost, fleet+"/nodes", plainJSON, `{"apiVersion":"tako.dev/v1alpha1","kind":"Node","metadata":{"name":"asked"}}`); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	const away, no = http.StatusServiceUnavailable, http.StatusForbidden
	for role, want := range map[string]map[string]int{
		"view": {"history": away, "evidence?subject=file/motd": away, "logs": no, "usage": no},
		"edit": {"history": away, "evidence?subject=file/motd": away, "logs": away, "usage": away},
	} {
		who := bound(t, "asker-"+role, role)
		for question, code := range want {
			if got, b := call(t, who, http.MethodGet, fleet+"/nodes/asked/"+question, plainJSON, nil); got != code {
				t.Errorf("%s asks for %s: %d, want %d: %s", role, question, got, code, b)
			}
		}
		if got, b := call(t, who, http.MethodGet, fleet+"/assignments", plainJSON, nil); got != http.StatusOK {
			t.Errorf("%s lists assignments: %d, %s", role, got, b)
		}
		if got, _ := call(t, who, http.MethodPatch, fleet+"/nodes/asked", "application/merge-patch+json", `{"spec":{"environment":"x"}}`); got != no {
			t.Errorf("%s writes a node: %d", role, got)
		}
	}
	eventually(t, "the audit log has who has asked what", func() bool {
		audit, err := os.ReadFile(filepath.Join(theSite.dir, "audit.log"))
		return err == nil && bytes.Contains(audit, []byte(`"username":"asker-view"`)) && bytes.Contains(audit, []byte(`"subresource":"logs"`))
	})
	if code, b := call(t, theSite.admin, http.MethodGet, fleet+"/nodes/nobody/history", plainJSON, nil); code != http.StatusNotFound {
		t.Errorf("a node that is not there: %d, %s", code, b)
	}
	if code, b := call(t, theSite.admin, http.MethodGet, fleet+"/nodes/asked/history?since=yesterday", plainJSON, nil); code != http.StatusBadRequest || !strings.Contains(string(b), "such as 10m") {
		t.Errorf("a time that is none: %d, %s", code, b)
	}
}
