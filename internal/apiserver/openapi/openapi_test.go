package openapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"tako.dev/tako/api/v1alpha1"
)

// build makes the models of objects as the server does when it installs their kinds.
func build(t *testing.T, objects ...runtime.Object) map[string]*spec.Schema {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := &common.OpenAPIV3Config{GetDefinitions: GetOpenAPIDefinitions, GetDefinitionName: openapinamer.NewDefinitionNamer(scheme).GetDefinitionName}
	var names []string
	for _, obj := range objects {
		names = append(names, util.GetCanonicalTypeName(obj))
	}
	models, err := builder3.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		t.Fatal(err)
	}
	return models
}

// TestEveryKindHasADefinition checks that the server finds the model of each of our kinds, under the name that it looks for, and that
// the model says which kind it is.
func TestEveryKindHasADefinition(t *testing.T) {
	models := build(t, v1alpha1.Types()...)
	for _, obj := range v1alpha1.Types() {
		kind := reflect.TypeOf(obj).Elem().Name()
		model := models["dev.tako.v1alpha1."+kind]
		if model == nil {
			t.Errorf("%s has no model", kind)
			continue
		}
		b, err := json.Marshal(model.Extensions["x-kubernetes-group-version-kind"])
		if want := `{"group":"tako.dev","kind":"` + kind + `","version":"v1alpha1"}`; err != nil || string(b) != "["+want+"]" {
			t.Errorf("%s says that it is %s, %v", kind, b, err)
		}
	}
}

// TestDefinitionsAreComplete checks that no definition refers to one that is not there, and that what the server does not serve was
// left out.
func TestDefinitionsAreComplete(t *testing.T) {
	definitions := GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + path) })
	for name, d := range definitions {
		for _, other := range d.Dependencies {
			if _, ok := definitions[other]; !ok {
				t.Errorf("%s refers to %s", name, other)
			}
		}
	}
	if _, ok := definitions["io.k8s.api.core.v1.Pod"]; ok {
		t.Error("there is a definition of Pod, which nobody serves")
	}
}

// TestFieldsSayWhatTheyAre wants a description for every field of ours: people read them with explain.
func TestFieldsSayWhatTheyAre(t *testing.T) {
	for name, model := range build(t, v1alpha1.Types()...) {
		if !strings.HasPrefix(name, "dev.tako.") {
			continue
		}
		for field, property := range model.Properties {
			if property.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}

// applier is the part of server-side apply that the definitions decide about.
type applier struct {
	managedfieldstest.TestFieldManager
	t *testing.T
}

func newApplier(t *testing.T, obj runtime.Object, kind string) applier {
	converter, err := managedfields.NewTypeConverter(build(t, obj), false)
	if err != nil {
		t.Fatal(err)
	}
	gvk := schema.GroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	return applier{managedfieldstest.NewTestFieldManager(converter, gvk), t}
}

// apply applies an object with a spec for a manager, and returns the spec that comes of it.
func (a applier) apply(manager, kind, spec string) (string, error) {
	obj := &unstructured.Unstructured{}
	text := `{"apiVersion": "tako.dev/v1alpha1", "kind": "` + kind + `", "metadata": {"name": "a"}, "spec": ` + spec + `}`
	if err := json.Unmarshal([]byte(text), &obj.Object); err != nil {
		a.t.Fatal(err)
	}
	if err := a.Apply(obj, manager, false); err != nil {
		return "", err
	}
	b, err := json.Marshal(a.Live().(*unstructured.Unstructured).Object["spec"])
	if err != nil {
		a.t.Fatal(err)
	}
	return string(b), nil
}

// TestResourcesMergeByName lets two managers apply to one config.
func TestResourcesMergeByName(t *testing.T) {
	a := newApplier(t, &v1alpha1.NodeConfig{}, v1alpha1.KindNodeConfig)
	for _, step := range []struct{ manager, spec, want, refused string }{
		{manager: "ann", spec: `{"resources": [{"name": "b", "file": {"path": "/b", "mode": "0644"}, "require": ["a"]}, {"name": "a", "file": {"path": "/a"}}]}`,
			want: `{"resources":[{"file":{"mode":"0644","path":"/b"},"name":"b","require":["a"]},{"file":{"path":"/a"},"name":"a"}]}`},
		{manager: "bob", spec: `{"rollout": {"maxUnavailable": "3"}, "resources": [{"name": "c", "file": {"path": "/c"}}]}`,
			want: `{"resources":[{"file":{"mode":"0644","path":"/b"},"name":"b","require":["a"]},{"file":{"path":"/a"},"name":"a"},{"file":{"path":"/c"},"name":"c"}],"rollout":{"maxUnavailable":"3"}}`},
		{manager: "bob", spec: `{"resources": [{"name": "a", "file": {"path": "/elsewhere"}}]}`, refused: `conflict with "ann": .spec.resources[name="a"].file.path`},
		{manager: "bob", spec: `{"resources": [{"name": "b", "require": ["c"]}]}`, refused: `.spec.resources[name="b"].require`},
		{manager: "bob", spec: `{"resources": [{"name": "c"}, {"name": "c"}]}`, refused: `duplicate entries for key [name="c"]`},
		{manager: "bob", spec: `{"resources": [{"name": "c", "file": {"path": "/c", "mode": 420}}]}`, refused: `.spec.resources[name="c"].file.mode: expected string`},
		{manager: "bob", spec: `{"rollout": {"maxUnavailable": 3}}`, refused: `.spec.rollout.maxUnavailable: expected string`},
		{manager: "bob", spec: `{"resources": [{"name": "c", "fil": {}}]}`, refused: `.spec.resources[name="c"].fil: field not declared in schema`},
		{manager: "bob", spec: `{"rollout": {"maxUnavailable": "10%"}}`,
			want: `{"resources":[{"file":{"mode":"0644","path":"/b"},"name":"b","require":["a"]},{"file":{"path":"/a"},"name":"a"}],"rollout":{"maxUnavailable":"10%"}}`},
		// A list that loses its last item goes, and is not empty: the server must not take that for a list that was forgotten.
		{manager: "ann", spec: `{"resources": []}`, want: `{"rollout":{"maxUnavailable":"10%"}}`},
	} {
		got, err := a.apply(step.manager, v1alpha1.KindNodeConfig, step.spec)
		switch {
		case step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)):
			t.Errorf("%s applies %s: got %s, %v, want an error with %s", step.manager, step.spec, got, err, step.refused)
		case step.refused == "" && (err != nil || got != step.want):
			t.Errorf("%s applies %s:\ngot  %s, %v\nwant %s", step.manager, step.spec, got, err, step.want)
		}
	}
}

func TestTaintsMergeByKeyAndEffect(t *testing.T) {
	a := newApplier(t, &v1alpha1.Node{}, v1alpha1.KindNode)
	if _, err := a.apply("ann", v1alpha1.KindNode, `{"taints": [{"key": "a", "effect": "NoSchedule"}]}`); err != nil {
		t.Fatal(err)
	}
	got, err := a.apply("bob", v1alpha1.KindNode, `{"taints": [{"key": "a", "effect": "NoExecute", "value": "x"}]}`)
	if want := `{"taints":[{"effect":"NoSchedule","key":"a"},{"effect":"NoExecute","key":"a","value":"x"}]}`; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
