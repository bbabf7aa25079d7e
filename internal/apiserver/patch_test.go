package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// TestStrategicPatchMergesResourcesByName: a strategic merge patch changes the resource that it names, and deletes the one that it says.
func TestStrategicPatchMergesResourcesByName(t *testing.T) {
	c := config("strategic", "old")
	c.Spec.Resources = append(c.Spec.Resources, c.Spec.Resources[0])
	c.Spec.Resources[1].Name, c.Spec.Resources[1].File = "other", c.Spec.Resources[0].File.DeepCopy()
	c.Spec.Resources[1].File.Path = "/etc/other"
	if code, b := call(t, theSite.admin, http.MethodPost, configs, plainJSON, c); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	for _, step := range []struct {
		patch string
		want  string // names and contents
	}{
		{`{"spec":{"resources":[{"name":"other","file":{"content":"new"}}]}}`, "motd=old other=new"},
		{`{"spec":{"resources":[{"name":"motd","$patch":"delete"}]}}`, "other=new"},
	} {
		code, b := call(t, theSite.admin, http.MethodPatch, configs+"/strategic", "application/strategic-merge-patch+json", step.patch)
		if code != http.StatusOK {
			t.Fatalf("%s: %d, %s", step.patch, code, b)
		}
		var got []string
		for _, r := range decode[v1alpha1.NodeConfig](t, b).Spec.Resources {
			got = append(got, r.Name+"="+r.File.Content)
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("%s gives %q, want %q", step.patch, got, step.want)
		}
	}
}

// TestWordsOfWhatDoesNotFit: whatever the way of a write, its mistakes are the client's, and named.
func TestWordsOfWhatDoesNotFit(t *testing.T) {
	const (
		apply   = "application/apply-patch+yaml"
		nodes   = "/apis/tako.dev/v1alpha1/nodes"
		secrets = "/api/v1/namespaces/default/secrets"
		crds    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		things  = "/apis/words.example.com/v1/namespaces/default/things"
	)
	taints := `{"apiVersion":"tako.dev/v1alpha1","kind":"Node","metadata":{"name":"twice"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule","value":"x"}]}}`
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bad"},"data":{"password":"hunter2!"}}`
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.words.example.com"},"spec":{"group":"words.example.com",
		"names":{"kind":"Thing","plural":"things","singular":"thing"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}}}}}}]}}`
	thing := `{"apiVersion":"words.example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"b":1}}`
	if code, b := call(t, theSite.admin, http.MethodPost, crds, plainJSON, definition); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	eventually(t, "the kind is served", func() bool {
		code, _ := call(t, theSite.admin, http.MethodGet, things, plainJSON, nil)
		return code == http.StatusOK
	})
	for _, c := range []struct {
		name, method, path, kind, body string
		status                         int
		words                          string
	}{
		{"two taints, created", http.MethodPost, nodes, plainJSON, taints, 422, "TK0420"},
		{"two taints, applied", http.MethodPatch, nodes + "/twice?fieldManager=me", apply, taints, 400, `"spec.taints"`},
		{"two taints, tried", http.MethodPatch, nodes + "/twice?fieldManager=me&dryRun=All", apply, taints, 400, "TK0420"},
		{"a secret, created", http.MethodPost, secrets, plainJSON, secret, 422, `"data[password]"`},
		{"a secret, applied", http.MethodPatch, secrets + "/bad?fieldManager=me", apply, secret, 422, `"data[password]"`},
		{"half of a character", http.MethodPost, secrets, plainJSON, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"half"},"stringData":{"a":"\ud800"}}`, 400, "half of a character"},
		{"another's kind, applied", http.MethodPatch, things + "/a?fieldManager=me", apply, thing, 400, "TK0412"},
		{"another's kind, tried", http.MethodPatch, things + "/a?fieldManager=me&dryRun=All", apply, thing, 400, "TK0412"},
	} {
		code, b := call(t, theSite.admin, c.method, c.path, c.kind, c.body)
		if code != c.status || !strings.Contains(string(b), c.words) || strings.Contains(string(b), "hunter2") {
			t.Errorf("%s: %d, want %d: %s", c.name, code, c.status, b)
		}
	}
}

// TestBindingOfNoRole: who binds a role that is not there is warned; who has just made it is not.
func TestBindingOfNoRole(t *testing.T) {
	const roles, bindings = "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	bind := func(name string) string {
		t.Helper()
		body := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"` + name + `"},"roleRef":{"kind":"ClusterRole","name":"` + name + `"}}`
		var warned string
		admin := *theSite.admin
		admin.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return tripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil {
					warned = resp.Header.Get("Warning")
				}
				return resp, err
			})
		}
		if code, b := call(t, &admin, http.MethodPost, bindings, plainJSON, body); code != http.StatusCreated {
			t.Fatalf("%d, %s", code, b)
		}
		return warned
	}
	if w := bind("nonesuch"); !strings.Contains(w, "there is no ClusterRole") {
		t.Errorf("warned %q", w)
	}
	role := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"fresh"},"rules":[]}`
	if code, b := call(t, theSite.admin, http.MethodPost, roles, plainJSON, role); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	if w := bind("fresh"); w != "" {
		t.Errorf("warned %q of a role that is there", w)
	}
}

// tripper makes a request.
type tripper func(*http.Request) (*http.Response, error)

// RoundTrip makes it.
func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
