package await

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/reason"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "A", ` + text + `}`)); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestLook(t *testing.T) {
	ready := func(status, rest string) string {
		return `"metadata": {"generation": 2}, "status": {` + rest + `"conditions": [{"type": "Ready", "status": "` + status + `", "reason": "Because", "message": "words"}]}`
	}
	stalled := `"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Stalled", "status": "True", "reason": "No", "observedGeneration": 2}]}`
	drained := func(status, why string, generation int) string { // stalled in something else
		return fmt.Sprintf(`"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Stalled", "status": "True"}, {"type": "Drained", "status": %q, "reason": %q, "message": "words", "observedGeneration": %d}]}`, status, why, generation)
	}
	for _, c := range []struct {
		name, goal, object string
		state              State
		words              string
	}{
		{"reached", "condition=Ready", ready("True", ""), Reached, "Because"},
		{"reached in another letter case", "condition=ready=true", ready("True", ""), Reached, ""},
		{"other status", "condition=Ready=False", ready("False", ""), Reached, ""},
		{"not yet", "condition=Ready", ready("False", ""), Pending, "words"},
		{"about an older generation", "condition=Ready", ready("True", `"observedGeneration": 1, `), Pending, "generation 1"},
		{"about this generation", "condition=Ready", ready("True", `"observedGeneration": 2, `), Reached, ""},
		{"no such condition", "condition=Done", ready("True", ""), Pending, "no condition Done"},
		{"no status at all", "condition=Ready", `"metadata": {}`, Pending, "no condition"},
		{"conditions of a wrong type", "condition=Ready", `"status": {"conditions": "x"}`, Pending, ""},
		{"stalled", "condition=Ready", stalled, Stalled, "No"},
		{"stalled before", "condition=Ready", strings.Replace(stalled, `"observedGeneration": 2`, `"observedGeneration": 1`, 1), Pending, ""},
		{"stalled is what is waited for", "condition=Stalled", stalled, Reached, ""},
		{"stalled for a path", "jsonpath={.status.x}=1", stalled, Stalled, ""},
		{"drained", "condition=Drained", drained("True", "Drained", 2), Reached, ""},
		{"being drained", "condition=Drained", drained("False", "Draining", 2), Pending, "words"},
		{"cannot be drained", "condition=Drained", drained("False", "TK0760", 2), Stalled, "words"},
		{"could not be drained before", "condition=Drained", drained("False", "TK0760", 1), Pending, "generation 1"},
		{"was drained before", "condition=Drained", drained("True", "Drained", 1), Pending, "generation 1"},
		{"gone", "delete", "", Reached, "gone"},
		{"not asked to go", "delete", `"metadata": {}`, Pending, "nobody"},
		{"held", "delete", `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}`, Pending, "a/b"},
		{"held namespace", "delete", `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"finalizers": ["kubernetes"]}`, Pending, "kubernetes"},
		{"exists", "create", `"metadata": {}`, Reached, ""},
		{"does not exist", "create", "", Pending, ""},
		{"number", "jsonpath={.status.n}=3", `"status": {"n": 3}`, Reached, ""},
		{"text", "jsonpath='{.status.s}'=a b", `"status": {"s": "a b"}`, Reached, ""},
		{"truth", "jsonpath={.status.b}=true", `"status": {"b": true}`, Reached, ""},
		{"other value", "jsonpath={.status.n}=3", `"status": {"n": 4}`, Pending, "4"},
		{"any value", "jsonpath={.status.n}", `"status": {"n": 4}`, Reached, "4"},
		{"no value", "jsonpath={.status.n}", `"status": {}`, Pending, "no value"},
		{"several values", "jsonpath={.status.l[*]}=1", `"status": {"l": [1, 1]}`, Pending, ""},
		{"null", "jsonpath={.status.n}=null", `"status": {"n": null}`, Reached, ""},
	} {
		goal, err := Parse(c.goal)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := goal.Look(object(t, c.object))
		if got.State != c.state || !strings.Contains(got.Words, c.words) || got.Words == "" {
			t.Errorf("%s: %+v, want state %d and %q", c.name, got, c.state, c.words)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "x", "condition", "condition=", "condition=Ready=", "delete=x", "create=x", "jsonpath", "jsonpath=.a",
		"jsonpath={.a", "jsonpath={.a}x", "jsonpath={.a[}=1"} {
		if _, err := Parse(text); !reason.Is(err, reason.Usage) {
			t.Errorf("%q: %v, want wrong usage", text, err)
		}
	}
}

func FuzzLook(f *testing.F) {
	f.Add("jsonpath={.status.x}=1", `{"status": {"x": 1}}`)
	f.Add("condition=Ready", `{"status": {"conditions": [{"type": "Ready"}, 3, null]}}`)
	f.Add("jsonpath={.items[0:9:2]}", `{"items": [1]}`)
	f.Fuzz(func(t *testing.T, text, body string) {
		goal, err := Parse(text)
		var fields map[string]any
		if err != nil || json.Unmarshal([]byte(body), &fields) != nil || fields == nil {
			t.Skip("no goal or no object")
		}
		o := &unstructured.Unstructured{}
		if o.UnmarshalJSON([]byte(body)) != nil {
			t.Skip("no object")
		}
		if v := goal.Look(o); v.State != Reached && v.Words == "" {
			t.Errorf("no words for %+v", v)
		}
	})
}
