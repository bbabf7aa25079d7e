package schema

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const description = `{"components": {"schemas": {
 "dev.tako.Config": {"type": "object", "description": "Config says what a host has.", "required": ["spec"],
   "x-kubernetes-group-version-kind": [{"group": "tako.dev", "version": "v1", "kind": "Config"}],
   "properties": {
     "spec": {"description": "Spec is what is declared.", "allOf": [{"$ref": "#/components/schemas/Spec"}]},
     "loop": {"$ref": "#/components/schemas/Loop"},
     "hole": {"$ref": "#/components/schemas/Nowhere"}}},
 "Spec": {"type": "object", "description": "SpecType.", "properties": {
     "mode": {"type": "string", "enum": ["a", "b"], "default": "a", "description": "Mode."},
     "count": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
     "labels": {"type": "object", "additionalProperties": {"type": "string"}},
     "items": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/Item"}]}},
     "nothing": null}},
 "Item": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "description": "Name of it."}, "self": {"$ref": "#/components/schemas/Item"}}},
 "Loop": {"$ref": "#/components/schemas/Loop"}
}}}`

func explain(t *testing.T, path string, recursive bool) (string, error) {
	t.Helper()
	d, err := Parse([]byte(description))
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	if path != "" {
		fields = strings.Split(path, ".")
	}
	f, ok, err := d.Explain(schema.GroupVersionKind{Group: "tako.dev", Version: "v1", Kind: "Config"}, fields)
	if !ok || err != nil {
		return "", err
	}
	var b strings.Builder
	if err := f.Write(&b, recursive); err != nil {
		t.Fatal(err)
	}
	return b.String(), nil
}

func TestExplain(t *testing.T) {
	for path, wants := range map[string][]string{
		"":                               {"KIND:     Config", "Config says what a host has.", "spec\t<Object> -required-", "Spec is what is declared."},
		"spec":                           {"FIELD:    spec <Object>", "Spec is what is declared.", "items\t<[]Object>", "labels\t<map[string]string>", "count\t<integer or string>", "one of: a, b", "default: a"},
		"spec.mode":                      {"<string>", "Mode.", "one of: a, b"},
		"spec.items":                     {"<[]Object>", "name\t<string> -required-"},
		"spec.items.name":                {"Name of it."},
		"spec.items.self.self.self.name": {"Name of it."},
		"loop":                           {"FIELD:    loop <any>"},
		"hole":                           {"FIELD:    hole <any>"},
	} {
		text, err := explain(t, path, false)
		if err != nil {
			t.Errorf("%q: %v", path, err)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %q:\n%s", path, want, text)
			}
		}
	}
	// An item is within itself; it is told once.
	text, err := explain(t, "", true)
	if n := strings.Count(text, "self\t"); n != 1 {
		t.Errorf("an object within itself is told %d times", n)
	}
	if err != nil || !strings.Contains(text, "    items\t<[]Object>\n      name\t<string> -required-\n") {
		t.Errorf("the tree (%v):\n%s", err, text)
	}
}

func TestNoField(t *testing.T) {
	for path, parent := range map[string]string{"x": "", "spec.x": "spec", "spec.mode.x": "spec.mode", "spec.nothing": "spec"} {
		_, err := explain(t, path, false)
		var none *NoField
		if !errors.As(err, &none) || none.Parent != parent {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func FuzzExplain(f *testing.F) {
	f.Add([]byte(description), "spec.items.name")
	f.Add([]byte(`{"components": {"schemas": {"a": null}}}`), "x")
	f.Add([]byte(`{"components": {"schemas": {"a": {"x-kubernetes-group-version-kind": [{"kind": "K"}], "properties": {"p": {"items": {"$ref": "a"}}}}}}}`), "p")
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		field, ok, err := d.Explain(schema.GroupVersionKind{Kind: "K"}, strings.Split(path, "."))
		if ok && err == nil && field.Write(&strings.Builder{}, true) != nil {
			t.Error("a field that was found cannot be written")
		}
	})
}
