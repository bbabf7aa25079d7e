package v1alpha1

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// The rules of names, in the words that package declare has for them.
const (
	environmentRule = "up to 63 of a-z, 0-9 and -, with a letter or digit first and last"
	nameRule        = "up to 253 of a-z, 0-9, - and ., with a letter or digit first and last"
	labelKeyRule    = "up to 63 letters, digits and any of - _ . with a letter or digit first and last; a domain and / may stand before it"
	labelValueRule  = "empty, or up to 63 letters, digits and any of - _ . with a letter or digit first and last"
)

// ValidateNodeConfig returns every mistake of a config that can be seen in it alone: what declare.Validate finds, in the same
// words.
func ValidateNodeConfig(c *NodeConfig) []declare.Fault { return validateConfig(c.Declaration()) }

// ValidateClusterNodeConfig returns every mistake of a config that can be seen in it alone: what declare.Validate finds, in
// the same words.
func ValidateClusterNodeConfig(c *ClusterNodeConfig) []declare.Fault {
	return validateConfig(c.Declaration())
}

// validateConfig adds what others find elsewhere: the reader, that resources were left out; the agent, that resources wait for
// one another in a circle.
func validateConfig(c *declare.NodeConfig) []declare.Fault {
	var v validator
	v.resourcesGiven(c.Spec.Resources)
	if faults := append(v.faults, declare.Validate(c)...); len(faults) > 0 {
		return faults
	}
	return declare.Cycles(&c.Spec) // as on a host: when nothing else is wrong
}

// validator collects the mistakes of one object.
//
// +k8s:openapi-gen=false
type validator struct{ faults []declare.Fault }

func (v *validator) fault(path string, code reason.Code, message, hint string) {
	v.faults = append(v.faults, declare.Fault{Code: code, Path: path, Message: message, Hint: hint})
}

func (v *validator) invalid(path, message, hint string) {
	v.fault(path, reason.InvalidValue, message, hint)
}

// clip keeps a message readable, whatever was declared.
func clip(text string) string {
	const shown = 80 // bytes: a line
	if len(text) > shown {
		text = text[:shown] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// given refuses an empty text where one must stand.
func (v *validator) given(parent, field, value string) {
	if value == "" {
		v.fault(parent+"."+field, reason.MissingField, fmt.Sprintf("%s has no %q", parent, field), "")
	}
}

// resourcesGiven tells an empty list, which declares nothing, from a list that was forgotten.
func (v *validator) resourcesGiven(resources []declare.Resource) {
	if resources == nil {
		v.fault("spec.resources", reason.MissingField, `spec has no "resources"`, "write resources: [] to declare nothing")
	}
}

func (v *validator) environment(path, name string) {
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		v.invalid(path, fmt.Sprintf("%q is not the name of an environment, which is a namespace", clip(name)), environmentRule)
	}
}

// labelCount has the limit of a config's labels.
func (v *validator) labelCount(path string, labels map[string]string) bool {
	if len(labels) > declare.LabelsMax {
		v.invalid(path, fmt.Sprintf("there are %d labels, at most %d are allowed", len(labels), declare.LabelsMax), "")
		return false
	}
	return true
}

func (v *validator) labels(path string, labels map[string]string) {
	if !v.labelCount(path, labels) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := path + "['" + key + "']"
		v.labelKey(at, key)
		v.labelValue(at, labels[key])
	}
}

func (v *validator) labelKey(path, key string) {
	if len(validation.IsQualifiedName(key)) > 0 {
		v.invalid(path, fmt.Sprintf("%q is not a label key", clip(key)), labelKeyRule)
	}
}

func (v *validator) labelValue(path, value string) {
	if len(validation.IsValidLabelValue(value)) > 0 {
		v.invalid(path, fmt.Sprintf("%q is not a label value", clip(value)), labelValueRule)
	}
}
