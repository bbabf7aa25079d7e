package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

// prodOnly is a server that shows somebody the configs of prod, and nothing else.
func prodOnly(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resource := func(name, kind string, namespaced bool) string {
		return fmt.Sprintf(`{"name": %q, "singularName": %q, "kind": %q, "namespaced": %t, "verbs": ["get", "list"]}`, name, strings.ToLower(kind), kind, namespaced)
	}
	switch r.URL.Path {
	case "/api":
		fmt.Fprint(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
	case "/api/v1":
		fmt.Fprintf(w, `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [%s]}`, resource("secrets", "Secret", true))
	case "/apis":
		fmt.Fprint(w, `{"kind": "APIGroupList", "groups": [{"name": "tako.dev", "versions": [{"groupVersion": "tako.dev/v1alpha1", "version": "v1alpha1"}],
			"preferredVersion": {"groupVersion": "tako.dev/v1alpha1", "version": "v1alpha1"}}]}`)
	case "/apis/tako.dev/v1alpha1":
		fmt.Fprintf(w, `{"kind": "APIResourceList", "groupVersion": "tako.dev/v1alpha1", "resources": [%s, %s, %s, %s]}`, resource("nodes", "Node", false),
			resource("nodeconfigs", "NodeConfig", true), resource("clusternodeconfigs", "ClusterNodeConfig", false), resource("assignments", "Assignment", false))
	case "/apis/tako.dev/v1alpha1/namespaces/prod/nodeconfigs":
		fmt.Fprint(w, `{"kind": "NodeConfigList", "apiVersion": "tako.dev/v1alpha1", "metadata": {"resourceVersion": "7"}, "items": [
			{"kind": "NodeConfig", "apiVersion": "tako.dev/v1alpha1", "metadata": {"name": "web", "namespace": "prod"}, "spec": {"resources": []},
			"status": {"rollout": {"phase": "Complete", "target": "web-1", "proven": "web-1"}}}]}`)
	default:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"}`)
	}
}

// Who may see one namespace alone is shown that, is told what is left out, and is not told that all is well.
func TestOneNamespaceAlone(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(prodOnly))
	t.Cleanup(h.Close)
	server, err := remote.New(&rest.Config{Host: h.URL}, remote.Options{RequestTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for home, seen := range map[string]int{"prod": 1, "qa": 0, "": 0} {
		f, err := Read(t.Context(), server, "", home)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Configs) != seen || slices.Contains(f.Unseen, "nodeconfigs") == (seen == 1) || !slices.Contains(f.Unseen, "nodes") {
			t.Errorf("at home in %q: %d configs, and not seen %v", home, len(f.Configs), f.Unseen)
		}
		text := f.Status(nil).Text(now, present.Style{})
		if strings.Contains(text, "! you may not see nodeconfigs outside of namespace prod\n") != (seen == 1) || !strings.HasSuffix(text, "\nnothing that you may see needs attention\n") {
			t.Errorf("at home in %q:\n%s", home, text)
		}
	}
}
