package load

import (
	"encoding/json"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// TestNextVersion: of a stored config only the spec and the generation change.
func TestNextVersion(t *testing.T) {
	stored := []byte(`{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"shared","namespace":"default","uid":"u","generation":7,
		"managedFields":[{"manager":"bench","operation":"Update"}]},"spec":{"resources":[{"name":"f","file":{"path":"/f","content":"old"}}]},
		"status":{"observedGeneration":6,"revision":"shared-1"}}`)
	next, err := nextVersion(stored, []byte(`{"metadata":{"name":"shared"},"spec":{"resources":[{"name":"f","file":{"path":"/f","content":"new"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.NodeConfig
	if err := json.Unmarshal(next, &got); err != nil {
		t.Fatal(err)
	}
	if got.Generation != 8 || got.UID != "u" || len(got.ManagedFields) != 1 || got.Status.ObservedGeneration != 6 || got.Status.Revision != "shared-1" || got.Kind != "NodeConfig" {
		t.Errorf("%s", next)
	}
	if text := string(next); !strings.Contains(text, `"new"`) || strings.Contains(text, `"old"`) {
		t.Errorf("%s", next)
	}
	for name, broken := range map[string][2]string{"stored": {"{", "{}"}, "body": {"{}", "{"}} {
		if _, err := nextVersion([]byte(broken[0]), []byte(broken[1])); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
