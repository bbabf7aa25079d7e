package openapi

import (
	"strings"
	"testing"

	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// ourDefinitions are those of our own types, by name.
func ourDefinitions() map[string]openapicommon.OpenAPIDefinition {
	out := map[string]openapicommon.OpenAPIDefinition{}
	all := GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef(name) })
	for name, d := range all {
		if strings.HasPrefix(name, "dev.tako.") {
			out[name] = d
		}
	}
	return out
}

// TestNoSentenceTwice: a client that explains a field shows its own words and then those of its type, which must be others.
func TestNoSentenceTwice(t *testing.T) {
	all, looked := ourDefinitions(), 0
	for name, d := range all {
		for field, property := range d.Schema.Properties {
			of, is := all[property.Ref.String()]
			if !is {
				continue
			}
			looked++
			if sentence, _, _ := strings.Cut(of.Schema.Description, "."); strings.Contains(property.Description, sentence) {
				t.Errorf("%s.%s and its type both say %q", name, field, sentence)
			}
		}
	}
	if looked < 10 {
		t.Errorf("only %d fields are of types of ours", looked)
	}
}

// TestNoDefaultOfWhatMustBeGiven: a number that must be given has no default.
func TestNoDefaultOfWhatMustBeGiven(t *testing.T) {
	looked := 0
	for name, d := range ourDefinitions() {
		for _, field := range d.Schema.Required {
			looked++
			if p := d.Schema.Properties[field]; p.Type.Contains("integer") && p.Default != nil {
				t.Errorf("%s.%s must be given, and defaults to %v", name, field, p.Default)
			}
		}
	}
	if looked < 10 {
		t.Errorf("only %d fields must be given", looked)
	}
}
