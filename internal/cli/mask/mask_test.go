package mask

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSecrets(t *testing.T) {
	config := func(mode, content string) *unstructured.Unstructured {
		file := map[string]any{"path": "/x", "content": content}
		if mode != "" {
			file["mode"] = mode
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig",
			"metadata": map[string]any{"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": content}},
			"spec":     map[string]any{"resources": []any{map[string]any{"name": "x", "file": file}}}}}
	}
	user := func(hash string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig",
			"spec": map[string]any{"resources": []any{map[string]any{"name": "x", "user": map[string]any{"passwordHash": hash}}}}}}
	}
	secret := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"key": value}}}
	}
	for _, c := range []struct {
		name          string
		before, after *unstructured.Unstructured
		hidden, shown bool // whether "hidden" may be there, whether the diff must not be empty
	}{
		{"a secret that changes", secret("hidden-1"), secret("hidden-2"), false, true},
		{"a secret that stays", secret("hidden"), secret("hidden"), false, false},
		{"a new secret", nil, secret("hidden"), false, true},
		{"a secret that goes", secret("hidden"), nil, false, true},
		{"a private file", config("0600", "hidden-1"), config("0600", "hidden-2"), false, true},
		{"a file that is opened", config("0600", "hidden"), config("", "hidden"), false, true},
		{"a file that is closed", config("0644", "hidden"), config("600", "hidden"), false, true},
		{"a password", user("hidden-1"), user("hidden-2"), false, true},
		{"an open file", config("", "hidden-1"), config("", "hidden-2"), true, true},
	} {
		before, after := Secrets(c.before, c.after)
		a, b := text(t, before), text(t, after)
		if got := strings.Contains(a+b, "hidden"); got != c.hidden {
			t.Errorf("%s: what is secret is shown: %v\n%s%s", c.name, got, a, b)
		}
		if (a != b) != c.shown {
			t.Errorf("%s: the change is shown: %v\n%s%s", c.name, a != b, a, b)
		}
		for _, o := range []*unstructured.Unstructured{c.before, c.after} {
			if o != nil && !strings.Contains(text(t, o), "hidden") {
				t.Errorf("%s: the object itself was changed", c.name)
			}
		}
	}
}

func text(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	if o == nil {
		return ""
	}
	b, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
