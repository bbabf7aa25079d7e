package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"

	"tako.dev/tako/internal/cli/failure"
)

// values is a server with a Secret that nobody has changed since, a ConfigMap with two keys of two people, and one that has gone.
func values(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	table := func(managed string) {
		if !strings.Contains(r.Header.Get("Accept"), "as=Table") {
			panic("the value itself is asked for")
		}
		fmt.Fprintf(w, `{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": [{"cells": [], "object": {"metadata": {"name": "x", "managedFields": [%s]}}}]}`, managed)
	}
	entry := func(who string, at time.Time, key string) string {
		return fmt.Sprintf(`{"manager": %q, "operation": "Apply", "time": %q, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, %q: {}}}}`, who, at.Format(time.RFC3339), "f:"+key)
	}
	switch r.URL.Path {
	case "/api":
		fmt.Fprint(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
	case "/apis":
		fmt.Fprint(w, `{"kind": "APIGroupList", "groups": []}`)
	case "/api/v1":
		fmt.Fprint(w, `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "configmaps", "singularName": "configmap", "kind": "ConfigMap", "namespaced": true, "verbs": ["get"]},
			{"name": "secrets", "singularName": "secret", "kind": "Secret", "namespaced": true, "verbs": ["get"]}]}`)
	case "/api/v1/namespaces/prod/configmaps/settings":
		table(entry("tako:eve", now.Add(-3*time.Hour), "color") + "," + entry("tako:ann", now.Add(-2*time.Minute), "color") + "," + entry("tako:bob", now.Add(-time.Minute), "size"))
	case "/api/v1/namespaces/prod/secrets/tls":
		table(entry("tako:eve", now.Add(-5*time.Hour), "key"))
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
	}
}

// TestHaltedByAValue: what brings back a value is to put it back, so that is what is said, with who has changed which one; a revision is
// not offered.
func TestHaltedByAValue(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(values))
	t.Cleanup(h.Close)
	server, err := remote.New(&rest.Config{Host: h.URL}, remote.Options{RequestTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	file := func(from declare.ContentSource) declare.Resource {
		return declare.Resource{File: &declare.File{ContentFrom: &from}}
	}
	byValue := func(c *Config) {
		halted(c)
		r := c.Status.Rollout
		at := ago(time.Hour)
		r.Target, r.Proven, r.TargetRoot, r.ProvenRoot, r.ProvenAt = "web-2", "web-2", "bb", "aa", &at
		c.Spec.Resources = []declare.Resource{
			file(declare.ContentSource{Secret: &declare.KeySelector{Name: "tls", Key: "key"}}),
			file(declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "settings", Key: "color"}}),
			file(declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "settings", Key: "color"}}),
			file(declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "gone", Key: "x"}}),
		}
	}
	c := aConfig("web", byValue)
	f := Fleet{Nodes: []v1alpha1.Node{aNode("web-1")}, Configs: []Config{c}}
	found := f.OfConfig(&c)
	if x := found[0]; x.What != "Halted" || strings.Contains(x.Next, "undo") || !strings.Contains(x.Text, "put the old one back") {
		t.Fatalf("without asking: %+v", x)
	}
	NameValues(t.Context(), server, &c, found, now)
	want := "configmap/settings -n prod, key color: changed by tako:ann at 2026-03-04T14:58:00Z, 2m ago\nconfigmap/gone -n prod, key x: it is gone\nnode/web-1"
	if x := found[0]; x.Next != "tako edit configmap/settings -n prod" || !strings.HasPrefix(x.Evidence, want) || strings.Contains(x.Evidence, "tls") {
		t.Errorf("next %q, evidence %s", x.Next, x.Evidence)
	}
	if _, err := Undo(t.Context(), server, &c, ""); failure.Of(err, "").Exit != reason.ExitStalled || !strings.Contains(err.Error(), "no revision brings that back") {
		t.Errorf("undo: %v", err)
	}
	other := aConfig("web", byValue, func(c *Config) { c.Status.Rollout.Proven = "web-1" })
	if found := f.OfConfig(&other); !strings.Contains(found[0].Next, "undo") {
		t.Errorf("another revision: %+v", found[0])
	}
	first := aConfig("web", halted, func(c *Config) { c.Status.Rollout.Proven = "" })
	if found := f.OfConfig(&first); found[0].Next != "tako edit nodeconfig/web -n prod" {
		t.Errorf("nothing to go back to: %+v", found[0])
	}
}
