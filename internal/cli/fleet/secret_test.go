package fleet

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/exposed"
	"tako.dev/tako/internal/present"
)

// TestExposedSecretNeedsAttention: it stands on the page with its command, until its value is another one.
func TestExposedSecretNeedsAttention(t *testing.T) {
	list := exposed.Add(nil, exposed.Exposure{Node: "web-1", UID: "u1", Why: "was moved from qa to prod", At: now.Add(-time.Hour), Keys: []string{"tls.key"}})
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "tls", "namespace": "qa",
		"annotations": map[string]any{exposed.Annotation: exposed.Write(list)}}, "data": map[string]any{"tls.key": "aGlkZGVu"}}}
	f := &Fleet{Exposed: []Secret{SecretOf(o)}, Assignments: map[string]*v1alpha1.Assignment{
		"web-3": {Spec: v1alpha1.AssignmentSpec{Own: &v1alpha1.OwnLayer{Keys: []v1alpha1.WrappedKey{{Secret: "qa/tls/tls.key"}}}}},
		"web-2": {Spec: v1alpha1.AssignmentSpec{Own: &v1alpha1.OwnLayer{Keys: []v1alpha1.WrappedKey{{Secret: "qa/tls/a"}, {Secret: "qa/tls/b"}}}}},
		"web-4": {Spec: v1alpha1.AssignmentSpec{Own: &v1alpha1.OwnLayer{Keys: []v1alpha1.WrappedKey{{Secret: "qa/tls-2/a"}}}}},
	}}
	s := f.Status(nil)
	text := s.Text(now, present.Style{})
	want := "✗ Exposed      secret/tls -n qa: change the value of tls.key: node web-1, which was moved from qa to prod, could read what is the value still (1h ago)\nnext: tako why secret/tls -n qa\n"
	if s.Healthy() || !strings.HasSuffix(text, want) {
		t.Errorf("the page:\n%s", text)
	}
	found := f.OfSecret(&f.Exposed[0])
	text = Explain(f.Exposed[0].Argument(), found, now, present.Style{})
	for _, want := range []string{"| node/web-1 was moved from qa to prod at 2026-03-04T14:00:00Z and could read the value of tls.key\n", "next: tako edit secret/tls -n qa\n", "Given        secret/tls -n qa: to 2 nodes: web-2, web-3\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("why does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hidden") || strings.Contains(text, "aGlkZGVu") {
		t.Errorf("why shows the value:\n%s", text)
	}
	if found := f.OfSecret(&Secret{Namespace: "qa", Name: "other"}); words(found) != "Given" || found[0].Text != "to no node" {
		t.Errorf("%+v", found)
	}
}

func TestManyHoldersAreCounted(t *testing.T) {
	list := []exposed.Exposure{
		{Node: "web-1", UID: "1", Why: "was deleted", At: now, Keys: []string{"a"}, More: 3}, {Node: "web-2", UID: "2", Why: "was deleted", At: now, Keys: []string{"b"}},
	}
	x := (&Fleet{}).OfSecret(&Secret{Namespace: "qa", Name: "s", Exposures: list})[0]
	if x.Text != "change the values of a, b: node web-2, which was deleted, and 4 before could read what is the value still" {
		t.Error(x.Text)
	}
	if !strings.Contains(x.Evidence, "value of a, as could 3 before") {
		t.Error(x.Evidence)
	}
}
