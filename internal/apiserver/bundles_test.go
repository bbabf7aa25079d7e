package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/apiserver/bundles"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
)

// listed is a list of one entry: its digest, and the difference that leads to it.
func listed(t *testing.T, key string) (digest string, data []byte) {
	t.Helper()
	item, err := catalog.DataItem(&declare.Data{Key: key, Value: "v"})
	if err != nil {
		t.Fatal(err)
	}
	trie := catalog.TrieOf([]catalog.Item{item})
	var b bytes.Buffer
	err = bundle.Write(&b, 0, catalog.Difference(catalog.Trie{}, trie, catalog.Digest{}), func(catalog.Change) int { return len(item.Body) },
		func(catalog.Change) ([]byte, error) { return item.Body, nil })
	if err != nil {
		t.Fatal(err)
	}
	return bundle.Digest(trie.Root()), b.Bytes()
}

// TestWhoMayPushBundles: who may update the configs that could name a bundle may push it, and nobody else; and the config that names it gets a
// revision that does.
func TestWhoMayPushBundles(t *testing.T) {
	digest, data := listed(t, "who/may")
	push := func(who *rest.Config, namespace string) (int, string) {
		t.Helper()
		query := fmt.Sprintf("?size=%d&offset=0", len(data))
		if namespace != "" {
			query += "&namespace=" + namespace
		}
		code, b := call(t, who, http.MethodPatch, bundles.Path+digest+query, "application/octet-stream", string(data))
		return code, string(b)
	}
	may := person(t, "pusher",
		rbac.PolicyRule{APIGroups: []string{"tako.dev"}, Resources: []string{"nodeconfigs"}, Verbs: []string{"list", "update"}})
	reads := person(t, "reader", rbac.PolicyRule{APIGroups: []string{"tako.dev"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create"}})
	for what, c := range map[string]struct {
		who       *rest.Config
		namespace string
	}{"who reads": {reads, "default"}, "for the cluster": {may, ""}, "nobody": {as("x.y"), "default"}} {
		if code, b := push(c.who, c.namespace); code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s: %d, %s", what, code, b)
		}
	}
	code, b := push(may, "default")
	var state bundles.State
	if err := json.Unmarshal([]byte(b), &state); code != http.StatusOK || err != nil || !state.Here {
		t.Fatalf("%d, %s", code, b)
	}
	c := config("bundled", "x")
	c.Spec.Bundle = &declare.BundleReference{Digest: digest}
	if code, b := call(t, theSite.admin, http.MethodPost, configs, plainJSON, c); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	eventually(t, "there is a revision that names it", func() bool {
		_, b := call(t, theSite.admin, http.MethodGet, configs+"/bundled", plainJSON, nil)
		name := decode[v1alpha1.NodeConfig](t, b).Status.Revision
		if name == "" {
			return false
		}
		_, b = call(t, theSite.admin, http.MethodGet, strings.TrimSuffix(configs, "nodeconfigs")+"revisions/"+name, plainJSON, nil)
		r := decode[v1alpha1.Revision](t, b)
		return r.Spec.Bundle != nil && r.Spec.Bundle.Digest == digest
	})
	c = config("misnamed", "x")
	c.Spec.Bundle = &declare.BundleReference{Digest: "x"}
	if code, b := call(t, theSite.admin, http.MethodPost, configs, plainJSON, c); code != http.StatusUnprocessableEntity || !strings.Contains(string(b), "spec.bundle.digest") {
		t.Errorf("%d, %s", code, b)
	}
}
