package sources

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// TestWouldBe: what is declared stands over what there is, what the source declares no more goes, and what others have stays.
func TestWouldBe(t *testing.T) {
	const before = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  uid: u
  managedFields:
  - {manager: tako-source, operation: Apply, fieldsV1: {"f:data": {"f:kept": {}, "f:gone": {}}, "f:spec": {"f:resources": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:old": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}}}
  - {manager: somebody, operation: Update, fieldsV1: {"f:data": {"f:theirs": {}}}}
data: {kept: "1", gone: "1", theirs: "1"}
spec:
  resources:
  - {name: a, old: 1, default: 1}
  - {name: b}
  - {name: theirs}
`
	for what, c := range map[string]struct{ before, declared, want string }{
		"changed": {before, `{data: {kept: "2", new: "2"}, spec: {resources: [{name: new}, {name: a, x: 1}]}}`,
			`{data: {kept: "2", new: "2", theirs: "1"}, spec: {resources: [{name: new}, {name: a, x: 1, default: 1}, {name: theirs}]}}`},
		"a list without names": {`{spec: {resources: [1, 2]}}`, `{spec: {resources: [2]}}`, `{spec: {resources: [2]}}`},
		"another type":         {`{data: {a: {b: c}}}`, `{data: {a: d}}`, `{data: {a: d}}`},
		"a secret":             {`{data: {a: "eA==", b: "eA=="}}`, `{apiVersion: v1, kind: Secret, data: {b: "eQ=="}, stringData: {a: "y"}}`, `{data: {a: "eQ==", b: "eQ=="}}`},
	} {
		was := object(t, c.before)
		kept := was.DeepCopy()
		got, want := wouldBe(was, object(t, c.declared)), object(t, c.want)
		for _, field := range []string{"data", "spec", "stringData"} {
			if !reflect.DeepEqual(got.Object[field], want.Object[field]) {
				t.Errorf("%s: %s is %v, want %v", what, field, got.Object[field], want.Object[field])
			}
		}
		if !reflect.DeepEqual(was, kept) {
			t.Errorf("%s: what there is was changed", what)
		}
	}
	if got := wouldBe(nil, object(t, `{apiVersion: v1, kind: Secret, stringData: {a: "y"}}`)); got.Object["stringData"] != nil {
		t.Errorf("%v", got)
	}
}
