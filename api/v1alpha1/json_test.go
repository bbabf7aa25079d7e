package v1alpha1

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"pgregory.net/rapid"

	"tako.dev/tako/declare"
)

// strictDecoder decodes as a server does that was asked for strict validation.
func strictDecoder(t testing.TB) runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// TestJSONMeansWhatFilesMean takes random documents through the reader of files on the one side, and on the other through JSON into
// the API's type: both ways must end at the same declaration. JSON is made in both ways that happen: by a program that has
// read the file with package declare, and by one that knows YAML only, as kubectl does.
func TestJSONMeansWhatFilesMean(t *testing.T) {
	decoder := strictDecoder(t)
	rapid.Check(t, func(t *rapid.T) {
		text, bare := drawDocument(t)
		documents, faults := declare.Read("f", []byte(text))
		if len(faults) > 0 || len(documents) != 1 {
			t.Fatalf("the reader of files refuses %s: %v", text, faults)
		}
		want := documents[0].Config

		typed, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeConfig(decoder, typed)
		if err != nil || !equality.Semantic.DeepEqual(got, want) {
			t.Fatalf("%s\nis, from JSON, %+v, %v\nand from a file %+v", typed, got, err, want)
		}

		converted, err := yaml.ToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err = decodeConfig(decoder, converted)
		switch {
		case bare && (err == nil || !strings.Contains(err.Error(), "in quotes")):
			t.Fatalf("a mode or maxUnavailable without quotes is read as %+v, %v", got, err)
		case !bare && (err != nil || !equality.Semantic.DeepEqual(got, want)):
			t.Fatalf("%s\nis, from JSON, %+v, %v\nand from a file %+v", converted, got, err, want)
		}
	})
}

// decodeConfig decodes JSON of a NodeConfig or ClusterNodeConfig.
func decodeConfig(decoder runtime.Decoder, b []byte) (*declare.NodeConfig, error) {
	obj, _, err := decoder.Decode(b, nil, nil)
	if err != nil {
		return nil, err
	}
	return obj.(interface{ Declaration() *declare.NodeConfig }).Declaration(), nil
}

// drawDocument draws a document, and whether a mode or maxUnavailable stands in it without quotes.
func drawDocument(t *rapid.T) (text string, bare bool) {
	config := declare.NodeConfig{
		APIVersion: declare.APIVersion,
		Kind:       rapid.SampledFrom([]string{KindNodeConfig, KindClusterNodeConfig}).Draw(t, "kind"),
		Metadata:   declare.Metadata{Name: "web", Labels: drawLabels(t), Annotations: drawLabels(t)},
	}
	spec := &config.Spec
	spec.Selector = drawSelector(t)
	spec.Priority = rapid.Ptr(rapid.IntRange(0, 2000), true).Draw(t, "priority")
	spec.Rollout = declare.Rollout{
		MaxUnavailable: declare.IntOrPercent(rapid.SampledFrom([]string{"", "1", "25", "10%"}).Draw(t, "maxUnavailable")),
		Pause:          rapid.Bool().Draw(t, "pause"),
		HaltOnFailed:   rapid.Ptr(rapid.IntRange(1, 9), true).Draw(t, "haltOnFailed"),
		Try:            drawText(t),
	}
	for range rapid.IntRange(0, 2).Draw(t, "waves") {
		spec.Rollout.Waves = append(spec.Rollout.Waves, declare.Wave{Selector: drawSelector(t), Nodes: declare.IntOrPercent(rapid.SampledFrom([]string{"", "1", "10%"}).Draw(t, "nodes")), Pause: drawText(t)})
	}
	spec.Resources = []declare.Resource{}
	for range rapid.IntRange(0, 4).Draw(t, "resources") {
		spec.Resources = append(spec.Resources, drawResource(t))
	}
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	text = "---\n" + string(b) // JSON is YAML; the marker keeps programs from taking it for JSON
	quoted := text
	if rapid.Bool().Draw(t, "numbers without quotes") {
		for _, n := range []string{"1", "25"} {
			text = strings.ReplaceAll(text, `"maxUnavailable":"`+n+`"`, `"maxUnavailable": `+n)
		}
	}
	if rapid.Bool().Draw(t, "modes without quotes") {
		for _, mode := range modes {
			text = strings.ReplaceAll(text, `"mode":"`+mode+`"`, `"mode": `+mode)
		}
	}
	return text, text != quoted
}

var modes = []string{"0644", "600", "04755", "0", "8"} // the last one is no mode, which is for Validate to say

func drawText(t *rapid.T) string {
	return rapid.StringOfN(rapid.SampledFrom(slices.Concat([]rune("abc XYZ019:#-_'\"\\{}[],&*!%@`|>?\n\té€"))), 0, 12, -1).Draw(t, "text")
}

func drawTexts(t *rapid.T) []string {
	var out []string
	for range rapid.IntRange(0, 2).Draw(t, "texts") {
		out = append(out, drawText(t))
	}
	return out
}

func drawLabels(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"role", "example.com/zone", "yes"}), rapid.SampledFrom([]string{"", "web", "on", "1"}), 0, 2).Draw(t, "labels")
}

func drawSelector(t *rapid.T) declare.Selector {
	s := declare.Selector{MatchLabels: drawLabels(t)}
	for range rapid.IntRange(0, 2).Draw(t, "expressions") {
		s.MatchExpressions = append(s.MatchExpressions, declare.SelectorRequirement{
			Key: drawText(t), Operator: rapid.SampledFrom([]declare.SelectorOperator{declare.OpIn, declare.OpExists, "else"}).Draw(t, "operator"), Values: drawTexts(t),
		})
	}
	return s
}

func drawResource(t *rapid.T) declare.Resource {
	mode := declare.Mode(rapid.SampledFrom(append([]string{""}, modes...)).Draw(t, "mode"))
	r := declare.Resource{
		Name: drawText(t), Require: drawTexts(t), Notify: drawTexts(t), When: drawText(t), Expand: rapid.Bool().Draw(t, "expand"),
		OnRemove: rapid.SampledFrom([]declare.OnRemove{"", declare.OnRemoveDelete, "else"}).Draw(t, "onRemove"),
	}
	switch rapid.IntRange(0, 5).Draw(t, "type") {
	case 0:
		r.File = &declare.File{Path: drawText(t), Content: drawText(t), Owner: drawText(t), Group: drawText(t), Mode: mode, Check: drawTexts(t), Force: rapid.Bool().Draw(t, "force"), InPlace: true}
		if rapid.Bool().Draw(t, "from elsewhere") {
			of := &declare.KeySelector{Namespace: drawText(t), Name: drawText(t), Key: drawText(t)}
			r.File.ContentFrom = rapid.SampledFrom([]*declare.ContentSource{{}, {Secret: of}, {ConfigMap: of}}).Draw(t, "source")
		}
	case 1:
		r.Directory = &declare.Directory{Path: drawText(t), Owner: drawText(t), Mode: mode, Force: true}
	case 2:
		r.Symlink = &declare.Symlink{Path: drawText(t), Target: drawText(t), Group: drawText(t)}
	case 3:
		r.Package = &declare.Package{Package: drawText(t), State: declare.PackageAbsent, Version: drawText(t)}
	case 4:
		r.Service = &declare.Service{Unit: drawText(t), Enabled: rapid.Ptr(rapid.Bool(), true).Draw(t, "enabled"), OnNotify: declare.NotifyReload}
	}
	return r
}

func TestStrictDecoding(t *testing.T) {
	decoder := strictDecoder(t)
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", `{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "spec": {"resources": [{"name": "a", "fil": {}}]}}`, `unknown field "spec.resources[0].fil"`},
		{"letter case", `{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "spec": {"Resources": []}}`, `unknown field "spec.Resources"`},
		{"key twice", `{"apiVersion": "tako.dev/v1alpha1", "kind": "Node", "spec": {"environment": "a", "environment": "b"}}`, `duplicate field "spec.environment"`},
		{"wrong type", `{"apiVersion": "tako.dev/v1alpha1", "kind": "Token", "spec": {"type": 1}}`, "cannot unmarshal number"},
		{"a number for a percentage", `{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "spec": {"rollout": {"maxUnavailable": 1.5}, "resources": []}}`, "read number or percentage 1.5"},
	} {
		if _, _, err := decoder.Decode([]byte(c.text), nil, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

// TestEmptyFieldsAreLeftOut checks what a person sees of an object that nobody has filled in.
func TestEmptyFieldsAreLeftOut(t *testing.T) {
	for _, c := range []struct {
		obj  runtime.Object
		want string
	}{
		{&NodeConfig{Spec: declare.NodeConfigSpec{Resources: []declare.Resource{}}}, `{"metadata":{},"spec":{"resources":[]}}`},
		{&Revision{Spec: RevisionSpec{Resources: []declare.Resource{{Name: "a"}}}}, `{"metadata":{},"spec":{"resources":[{"name":"a"}]}}`},
		{&Node{}, `{"metadata":{}}`},
		{&Node{Status: NodeStatus{Promises: PromiseCounts{Kept: 1}}}, `{"metadata":{},"status":{"promises":{"kept":1}}}`},
		{&Token{Spec: TokenSpec{Type: TokenUser}}, `{"metadata":{},"spec":{"type":"user"}}`},
		{&NodeList{Items: []Node{}}, `{"metadata":{},"items":[]}`},
	} {
		got, err := json.Marshal(c.obj)
		if err != nil || string(got) != c.want {
			t.Errorf("%T: got %s, %v, want %s", c.obj, got, err, c.want)
		}
		unstructured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.obj)
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if b, _ := json.Marshal(unstructured); json.Compact(&compact, b) != nil || !sameJSON(t, compact.Bytes(), []byte(c.want)) {
			t.Errorf("%T: server-side apply sees %s, want %s", c.obj, compact.Bytes(), c.want)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return equality.Semantic.DeepEqual(x, y)
}

// TestTypesAreRegistered checks that every kind has its list, that a deep copy shares nothing with the original, and that the
// kinds that are declared in files are those of package declare.
func TestTypesAreRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if got := SchemeGroupVersion.String(); got != declare.APIVersion {
		t.Errorf("the API is %s, declarations are %s", got, declare.APIVersion)
	}
	kinds := []string{KindNodeConfig, KindClusterNodeConfig, KindRevision, KindClusterRevision, KindNode, KindAssignment, KindToken, KindSource, KindServer, KindWorkload, KindInstance}
	for _, kind := range kinds {
		for _, name := range []string{kind, kind + "List"} {
			if !scheme.Recognizes(SchemeGroupVersion.WithKind(name)) {
				t.Errorf("%s is not registered", name)
			}
		}
	}
	if !scheme.Recognizes(SchemeGroupVersion.WithKind(KindPlan)) { // which is asked, and never listed
		t.Errorf("%s is not registered", KindPlan)
	}
	if n := 2*len(kinds) + 1; len(Types()) != n {
		t.Errorf("%d types, want %d", len(Types()), n)
	}
	original := &NodeConfig{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       declare.NodeConfigSpec{Priority: new(int), Resources: []declare.Resource{{Name: "a", File: &declare.File{Path: "/a", Check: []string{"x"}}}}},
	}
	before, _ := json.Marshal(original)
	clone := original.DeepCopy()
	clone.Labels["a"] = "c"
	*clone.Spec.Priority = 7
	clone.Spec.Resources[0].File.Check[0] = "y"
	if after, _ := json.Marshal(original); string(after) != string(before) {
		t.Errorf("changing a copy made %s of %s", after, before)
	}
}
