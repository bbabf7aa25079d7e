package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
)

const plansAt = fleet + "/namespaces/default/plans"

// planOf asks about a workload of webOf, and maybe about a deletion.
func planOf(name string, replicas int, deleted string) string {
	_, spec, _ := strings.Cut(webOf(name, replicas), `"spec":`)
	planned := `"workloads":[{"name":"` + name + `","spec":` + strings.TrimSuffix(spec, "}") + `}]`
	if deleted != "" {
		planned += `,"delete":["` + deleted + `"]`
	}
	return `{"apiVersion":"tako.dev/v1alpha1","kind":"Plan","spec":{` + planned + `}}`
}

// TestPlans: who may apply a workload learns where its instances would go, and nothing is written.
func TestPlans(t *testing.T) {
	code, b := call(t, theSite.admin, http.MethodPost, plansAt, plainJSON, planOf("asked", 3, "nowhere"))
	p := decode[v1alpha1.Plan](t, b)
	if code != http.StatusCreated || len(p.Status.Workloads) != 2 || p.Namespace != "default" {
		t.Fatalf("%d, %s", code, b)
	}
	if w := p.Status.Workloads[0]; w.Wanted != 3 || w.Placed != 0 || w.Pending == nil || !strings.HasPrefix(w.Pending.Message, "TK0712: ") {
		t.Errorf("%s", b)
	}
	if code, b = call(t, theSite.admin, http.MethodGet, workloadsAt+"/asked", plainJSON, nil); code != http.StatusNotFound {
		t.Errorf("it is there: %d, %s", code, b)
	}
	viewer, editor := bound(t, "plan-viewer", "view"), bound(t, "plan-editor", "edit")
	if code, b = call(t, theSite.admin, http.MethodPost, workloadsAt, plainJSON, webOf("planned", 1)); code != http.StatusCreated {
		t.Fatalf("%d, %s", code, b)
	}
	for _, c := range []struct {
		who        *rest.Config
		what, body string
		want       int
		words      string
	}{
		{viewer, "a viewer asks", planOf("theirs", 1, ""), http.StatusForbidden, "must be allowed to patch it"},
		{viewer, "a viewer asks about a deletion", `{"apiVersion":"tako.dev/v1alpha1","kind":"Plan","spec":{"delete":["theirs"]}}`, http.StatusForbidden, "must be allowed to delete it"},
		{editor, "an editor asks", planOf("theirs", 1, "planned"), http.StatusCreated, `"name":"theirs"`},
		{editor, "a mistake in it", planOf("theirs", 100_001, ""), http.StatusUnprocessableEntity, "TK0414"},
		{editor, "its path", planOf("theirs", 100_001, ""), http.StatusUnprocessableEntity, "spec.workloads[0].spec.replicas"},
		{editor, "a mode that cannot change", strings.Replace(planOf("planned", -1, ""), `"template"`, `"mode":"PerNode","template"`, 1), http.StatusUnprocessableEntity, "TK0415"},
		{editor, "one twice", planOf("theirs", 1, "theirs"), http.StatusUnprocessableEntity, "TK0420"},
		{editor, "nothing", `{"apiVersion":"tako.dev/v1alpha1","kind":"Plan","spec":{}}`, http.StatusUnprocessableEntity, "TK0413"},
		{editor, "too much", `{"apiVersion":"tako.dev/v1alpha1","kind":"Plan","spec":{"delete":["a"` + strings.Repeat(`,"a"`, v1alpha1.PlannedMax) + `]}}`, http.StatusUnprocessableEntity, "TK0425"},
	} {
		if code, b := call(t, c.who, http.MethodPost, plansAt, plainJSON, c.body); code != c.want || !strings.Contains(string(b), c.words) {
			t.Errorf("%s: %d, want %d %q: %s", c.what, code, c.want, c.words, b)
		}
	}
	if code, b = call(t, theSite.admin, http.MethodPost, fleet+"/namespaces/nowhere/plans", plainJSON, planOf("theirs", 1, "")); code != http.StatusNotFound {
		t.Errorf("in no namespace: %d, %s", code, b)
	}
	if code, _ = call(t, theSite.admin, http.MethodGet, plansAt, plainJSON, nil); code != http.StatusMethodNotAllowed {
		t.Errorf("they are listed: %d", code)
	}
}
