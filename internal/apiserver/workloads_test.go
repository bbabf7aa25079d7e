package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	autoscaling "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare/workload"
)

const (
	workloadsAt = fleet + "/namespaces/default/workloads"
	instances   = fleet + "/namespaces/default/instances"
	mergePatch  = "application/merge-patch+json"
)

// webOf is a workload of so many instances; a negative number is left out.
func webOf(name string, replicas int) string {
	number := ""
	if replicas >= 0 {
		number = fmt.Sprintf(`"replicas":%d,`, replicas)
	}
	return `{"apiVersion":"tako.dev/v1alpha1","kind":"Workload","metadata":{"name":"` + name + `","namespace":"default"},"spec":{` + number +
		`"template":{"tasks":[{"name":"web","command":["/usr/bin/web"]}]}}}`
}

// TestWorkloadsInTheAPI: mistakes are those of a file, the status is written by its own way alone, and the mode stays.
func TestWorkloadsInTheAPI(t *testing.T) {
	for _, c := range []struct{ name, method, path, kind, body, words string }{
		{"a field that there is not", http.MethodPost, workloadsAt + "?fieldValidation=Strict", plainJSON, strings.Replace(webOf("typo", 1), `"replicas"`, `"replica"`, 1), `unknown field \"spec.replica\"`},
		{"a mistake", http.MethodPost, workloadsAt, plainJSON, webOf("many", 100_001), "TK0414"},
		{"a long name", http.MethodPost, workloadsAt, plainJSON, webOf(strings.Repeat("w", workload.NameBytesMax+1), 1), "is not the name of a workload"},
		{"a mistake, applied", http.MethodPatch, workloadsAt + "/many?fieldManager=me", applyYAML, strings.Replace(webOf("many", 1), "/usr/bin/web", "web", 1), "TK0414"},
	} {
		code, b := call(t, theSite.admin, c.method, c.path, c.kind, c.body)
		if code != http.StatusUnprocessableEntity && code != http.StatusBadRequest || !strings.Contains(string(b), c.words) {
			t.Errorf("%s: %d, want %q: %s", c.name, code, c.words, b)
		}
	}
	code, b := call(t, theSite.admin, http.MethodPatch, workloadsAt+"/plain?fieldManager=me", applyYAML, webOf("plain", 3))
	w := decode[v1alpha1.Workload](t, b)
	if code != http.StatusCreated || w.Generation != 1 || w.Status.Wanted != 0 {
		t.Fatalf("applied: %d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPatch, workloadsAt+"/plain/status", mergePatch, `{"spec":{"replicas":9},"status":{"phase":"Rolling","wanted":3}}`)
	if w = decode[v1alpha1.Workload](t, b); code != http.StatusOK || w.Status.Wanted != 3 || *w.Spec.Replicas != 3 {
		t.Errorf("its status: %d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPatch, workloadsAt+"/plain", mergePatch, `{"spec":{"priority":7},"status":{"phase":"Complete"}}`)
	if w = decode[v1alpha1.Workload](t, b); code != http.StatusOK || w.Status.Phase != "Rolling" || w.Generation != 2 {
		t.Errorf("its spec: %d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPatch, workloadsAt+"/plain", mergePatch, `{"spec":{"mode":"PerNode","replicas":null}}`)
	if code != http.StatusUnprocessableEntity || !strings.Contains(string(b), "TK0415: the mode is Replicated and cannot become PerNode") {
		t.Errorf("its mode: %d, %s", code, b)
	}
}

// TestScale: whoever scales owns the number from then on, and nothing else; who has applied it hears of that.
func TestScale(t *testing.T) {
	const one = workloadsAt + "/scaled"
	if code, b := call(t, theSite.admin, http.MethodPatch, one+"?fieldManager=author", applyYAML, webOf("scaled", 3)); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	code, b := call(t, theSite.admin, http.MethodGet, one+"/scale", plainJSON, nil)
	s := decode[autoscaling.Scale](t, b)
	if code != http.StatusOK || s.Kind != "Scale" || s.APIVersion != "autoscaling/v1" || s.Spec.Replicas != 3 || s.Status.Selector != "tako.dev/workload=scaled" {
		t.Fatalf("read: %d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPatch, one+"/scale?fieldManager=scaler", mergePatch, `{"spec":{"replicas":5}}`)
	if s = decode[autoscaling.Scale](t, b); code != http.StatusOK || s.Spec.Replicas != 5 {
		t.Fatalf("patched: %d, %s", code, b)
	}
	_, b = call(t, theSite.admin, http.MethodGet, one, plainJSON, nil)
	w := decode[v1alpha1.Workload](t, b)
	if *w.Spec.Replicas != 5 || w.Generation != 2 {
		t.Errorf("scaled: %s", b)
	}
	if author, scaler := ownedBy(w.ManagedFields, "author"), ownedBy(w.ManagedFields, "scaler"); strings.Contains(author, "f:replicas") || scaler != `scale {"f:spec":{"f:replicas":{}}}` {
		t.Errorf("owned by the author: %s, by the scaler: %s", author, scaler)
	}
	if code, b = call(t, theSite.admin, http.MethodPatch, one+"?fieldManager=author", applyYAML, webOf("scaled", 3)); code != http.StatusConflict || !strings.Contains(string(b), "scaler") {
		t.Errorf("applied again with another number: %d, %s", code, b)
	}
	if code, b = call(t, theSite.admin, http.MethodPatch, one+"?fieldManager=author", applyYAML, webOf("scaled", -1)); code != http.StatusOK || *decode[v1alpha1.Workload](t, b).Spec.Replicas != 5 {
		t.Errorf("applied again without the number: %d, %s", code, b)
	}
	s.Spec.Replicas, s.ResourceVersion = 7, "1"
	if code, b = call(t, theSite.admin, http.MethodPut, one+"/scale", plainJSON, s); code != http.StatusConflict {
		t.Errorf("written by who has read an older one: %d, %s", code, b)
	}
	s.ResourceVersion, s.UID = "", "another"
	if code, b = call(t, theSite.admin, http.MethodPut, one+"/scale", plainJSON, s); code != http.StatusConflict {
		t.Errorf("written for another of that name: %d, %s", code, b)
	}
	for replicas, words := range map[int]string{-1: "less than none", 100_001: "TK0414"} {
		code, b = call(t, theSite.admin, http.MethodPatch, one+"/scale", mergePatch, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
		if code != http.StatusUnprocessableEntity || !strings.Contains(string(b), words) {
			t.Errorf("%d: %d, %s", replicas, code, b)
		}
	}
	if code, b = call(t, theSite.admin, http.MethodPatch, workloadsAt+"/nowhere/scale", mergePatch, `{"spec":{"replicas":1}}`); code != http.StatusNotFound {
		t.Errorf("of none: %d, %s", code, b)
	}
	for what, replicas := range map[string]int{"another number": 2, "off": 0} {
		measured := strings.Replace(webOf("measured", -1), `"template"`, `"scale":{"max":3,"targets":[{"name":"q","prometheus":{"query":"up","perInstance":"1"}}]},"template"`, 1)
		if code, b = call(t, theSite.admin, http.MethodPatch, workloadsAt+"/measured?fieldManager=author", applyYAML, measured); code != http.StatusOK && code != http.StatusCreated {
			t.Fatalf("%d, %s", code, b)
		}
		if warned := warnedOf(t, workloadsAt+"/measured/scale", replicas); strings.Contains(warned, "follows what is measured") != (replicas > 0) {
			t.Errorf("of one that follows what is measured, %s: warned is %q", what, warned)
		}
	}
	if warned := warnedOf(t, one+"/scale", 4); warned != "" {
		t.Errorf("of one that does not: warned is %q", warned)
	}
	perNode := strings.Replace(webOf("everywhere", -1), `"template"`, `"mode":"PerNode","template"`, 1)
	if code, b = call(t, theSite.admin, http.MethodPost, workloadsAt, plainJSON, perNode); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPatch, workloadsAt+"/everywhere/scale", mergePatch, `{"spec":{"replicas":2}}`)
	if code != http.StatusUnprocessableEntity || !strings.Contains(string(b), "mode Replicated only") {
		t.Errorf("of one on each node: %d, %s", code, b)
	}
	d, err := discovery.NewDiscoveryClientForConfig(theSite.admin)
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.ServerResourcesForGroupVersion("tako.dev/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	kind := ""
	for _, r := range list.APIResources {
		if r.Name == "workloads/scale" {
			kind = r.Group + "/" + r.Version + " " + r.Kind
		}
	}
	if kind != "autoscaling/v1 Scale" {
		t.Errorf("clients are told that the scale is a %q", kind)
	}
}

// warnedOf is what whoever changes a number is warned of.
func warnedOf(t *testing.T, path string, replicas int) string {
	t.Helper()
	c, err := rest.HTTPClientFor(theSite.admin)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, theSite.admin.Host+path, strings.NewReader(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", mergePatch)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	return resp.Header.Get("Warning")
}

// ownedBy is what somebody owns, with the subresource by which he does.
func ownedBy(entries []metav1.ManagedFieldsEntry, manager string) string {
	for _, e := range entries {
		if e.Manager == manager {
			return e.Subresource + " " + e.FieldsV1.GetRawString()
		}
	}
	return ""
}

// TestInstancesAreTheServers: nobody else writes one, an administrator neither, nor who has taken the server's name.
func TestInstancesAreTheServers(t *testing.T) {
	const text = `{"apiVersion":"tako.dev/v1alpha1","kind":"Instance","metadata":{"name":"web-0","namespace":"default"},"spec":{"workload":"web","revision":"r","slot":0,"node":"n","nodeUID":"u"}}`
	pretender := rest.CopyConfig(theSite.admin)
	pretender.Impersonate = rest.ImpersonationConfig{UserName: user.APIServerUser, Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}}
	for _, c := range []struct{ method, path, kind, body string }{
		{http.MethodPost, instances, plainJSON, text},
		{http.MethodPut, instances + "/web-0", plainJSON, text},
		{http.MethodPatch, instances + "/web-0?fieldManager=m", applyYAML, text},
		{http.MethodDelete, instances + "/web-0", plainJSON, ""},
		{http.MethodDelete, instances, plainJSON, ""},
	} {
		for _, who := range []*rest.Config{theSite.admin, pretender} {
			if code, b := call(t, who, c.method, c.path, c.kind, c.body); code != http.StatusForbidden || !strings.Contains(string(b), "change the Workload") {
				t.Errorf("%s %s as %q: %d, %s", c.method, c.path, who.Impersonate.UserName, code, b)
			}
		}
	}
	if code, b := call(t, theSite.admin, http.MethodGet, instances+"?fieldSelector=spec.node=n,spec.workload=web", plainJSON, nil); code != http.StatusOK {
		t.Errorf("of a node: %d, %s", code, b)
	}
	if code, b := call(t, theSite.admin, http.MethodGet, instances+"?fieldSelector=spec.slot=1", plainJSON, nil); code != http.StatusBadRequest {
		t.Errorf("by a field that cannot be selected: %d, %s", code, b)
	}
}

// TestWhoMayRunWorkloads: who may edit declares and scales them, who may view sees them with their instances.
func TestWhoMayRunWorkloads(t *testing.T) {
	viewer, editor := bound(t, "workload-viewer", "view"), bound(t, "workload-editor", "edit")
	for _, c := range []struct {
		who                      *rest.Config
		what, method, path, body string
		want                     int
	}{
		{viewer, "a viewer declares", http.MethodPost, workloadsAt, webOf("theirs", 1), http.StatusForbidden},
		{editor, "an editor declares", http.MethodPost, workloadsAt, webOf("theirs", 1), http.StatusCreated},
		{viewer, "a viewer reads", http.MethodGet, workloadsAt + "/theirs", "", http.StatusOK},
		{viewer, "a viewer reads the scale", http.MethodGet, workloadsAt + "/theirs/scale", "", http.StatusOK},
		{viewer, "a viewer scales", http.MethodPatch, workloadsAt + "/theirs/scale", `{"spec":{"replicas":2}}`, http.StatusForbidden},
		{editor, "an editor scales", http.MethodPatch, workloadsAt + "/theirs/scale", `{"spec":{"replicas":2}}`, http.StatusOK},
		{editor, "an editor writes the status", http.MethodPatch, workloadsAt + "/theirs/status", `{"status":{"wanted":2}}`, http.StatusForbidden},
		{viewer, "a viewer lists instances", http.MethodGet, instances, "", http.StatusOK},
		{viewer, "a viewer deletes", http.MethodDelete, workloadsAt + "/theirs", "", http.StatusForbidden},
		{editor, "an editor deletes", http.MethodDelete, workloadsAt + "/theirs", "", http.StatusOK},
	} {
		kind := plainJSON
		if c.method == http.MethodPatch {
			kind = mergePatch
		}
		if code, b := call(t, c.who, c.method, c.path, kind, c.body); code != c.want {
			t.Errorf("%s: %d, want %d: %s", c.what, code, c.want, b)
		}
	}
}

// TestImagesOfWorkloadsAreKept: what a task runs is not forgotten while a workload, or a revision of one, names it.
func TestImagesOfWorkloadsAreKept(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	declaration, _, faults := workload.Read("f", []byte(`
apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: web}
spec: {template: {tasks: [{name: web, image: {object: {digest: "`+digest+`", sizeBytes: 5}}}, {name: on-the-host, image: {path: /images/a}}]}}`))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	w := &v1alpha1.Workload{Spec: declaration.Spec}
	r := &v1alpha1.Revision{Spec: v1alpha1.RevisionSpec{Template: &declaration.Spec.Template}}
	for _, d := range []struct {
		of   string
		what func() (declared, error)
	}{
		{"workload", func() (declared, error) { return declaredIn(w) }},
		{"revision", func() (declared, error) { return declaredIn(r) }},
	} {
		is, err := d.what()
		all := map[string]bool{}
		nameObjects(is, all)
		nameBundle(is, all)
		if err != nil || len(all) != 1 || !all[digest] {
			t.Errorf("of a %s: %v, %v", d.of, all, err)
		}
	}
}
