package main

import (
	"strings"
	"testing"
)

// sample is what openapi-gen writes, with little in it.
const sample = `package openapi

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	common "k8s.io/kube-openapi/pkg/common"
	ours "tako.dev/tako/declare"
)

func GetOpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	return map[string]common.OpenAPIDefinition{
		corev1.Secret{}.OpenAPIModelName(): schema_Secret(ref),
		corev1.Pod{}.OpenAPIModelName():    schema_Pod(ref),
		corev1.Volume{}.OpenAPIModelName(): schema_Volume(ref),
		rbacv1.Role{}.OpenAPIModelName():   schema_Role(ref),
		ours.Rollout{}.OpenAPIModelName():  schema_Rollout(ref),
	}
}

func schema_Secret(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{}
}

func schema_Pod(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{
		Dependencies: []string{
			corev1.Volume{}.OpenAPIModelName(), corev1.Pod{}.OpenAPIModelName()},
	}
}

func schema_Volume(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{}
}

func schema_Role(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{}
}

func schema_Rollout(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{
		"first":          {Type: "integer", Format: ""},
		"maxUnavailable": {Type: "string", Format: ""},
	}
}
`

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		roots     string
		has, lack string
	}{
		{"k8s.io/api/core/v1.Pod", "schema_Pod( schema_Volume( corev1. k8s.io/api/core/v1", "schema_Secret schema_Role rbacv1 tako.dev"},
		{"k8s.io/api/core/v1.Secret k8s.io/api/rbac/v1", "schema_Secret( schema_Role( rbacv1.", "schema_Pod schema_Volume tako.dev"},
		{"tako.dev/tako/declare", "schema_Rollout(", "schema_Pod corev1 rbacv1"},
	} {
		got, err := filter([]byte(sample), strings.Fields(c.roots))
		if err != nil {
			t.Errorf("%s: %v", c.roots, err)
			continue
		}
		for _, s := range strings.Fields(c.has) {
			if !strings.Contains(string(got), s) {
				t.Errorf("%s: %s is gone:\n%s", c.roots, s, got)
			}
		}
		for _, s := range strings.Fields(c.lack) {
			if strings.Contains(string(got), s) {
				t.Errorf("%s: %s is still there:\n%s", c.roots, s, got)
			}
		}
	}
}

func TestFilterRefuses(t *testing.T) {
	for _, c := range []struct{ name, src, root, want string }{
		{"a root that is not defined", sample, "k8s.io/api/core/v1.Node", "nothing is defined for k8s.io/api/core/v1.Node"},
		{"a reference to nothing", strings.Replace(sample, "\t\tcorev1.Volume{}.OpenAPIModelName(): schema_Volume(ref),\n", "", 1), "k8s.io/api/core/v1.Pod", "referred to and not defined"},
		{"a type without a model name", strings.Replace(sample, "corev1.Volume{}.OpenAPIModelName(): ", `"volume": `, 1), "k8s.io/api/core/v1.Pod", "no definition of a type"},
		{"another file", "package openapi\n", "k8s.io/api/core/v1.Pod", "no GetOpenAPIDefinitions"},
	} {
		if _, err := filter([]byte(c.src), []string{c.root}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}
