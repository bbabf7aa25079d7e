package registry

import (
	"bytes"
	stdjson "encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"tako.dev/tako/api/v1alpha1"
)

// FuzzStored: what it is, is what the library finds out.
func FuzzStored(f *testing.F) {
	stored, err := stdjson.Marshal(benchInstance(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stored)
	for _, text := range []string{
		`{"kind":"Node","apiVersion":"tako.dev/v1alpha1","metadata":{"name":"a"}}`, `{"apiVersion":"v1","kind":"Secret"}`, `{"kind":"No\u0064e","apiVersion":"v1"}`,
		`{"kind":"Node","apiVersion":"a/b/c"}`, `{"kind":"Node"}`, `{"kind":"","apiVersion":""}`, `{"kind":"Node`, `{"kind":"Node","apiVersion":"v1`, `[]`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, wantErr := json.DefaultMetaFactory.Interpret(data)
		got, err := storedMeta{}.Interpret(data)
		if wantErr != nil {
			return // what is no JSON is refused where the rest of it is read
		}
		var fields map[string]stdjson.RawMessage
		if stdjson.Unmarshal(data, &fields) != nil || repeated(data) {
			return
		}
		if err != nil || *got != *want {
			t.Errorf("%q is %v, %v, want %v", data, got, err, want)
		}
	})
}

// repeated: a member is there twice, in some letters or others, which we never store.
func repeated(data []byte) bool {
	d := stdjson.NewDecoder(bytes.NewReader(data))
	_, _ = d.Token()
	seen := 0
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return true
		}
		if s, _ := name.(string); strings.EqualFold(s, "kind") || strings.EqualFold(s, "apiVersion") {
			seen++
		}
		var value stdjson.RawMessage
		if d.Decode(&value) != nil {
			return true
		}
	}
	return seen > 2
}

// TestStoredReadsNoMore: it does not look at what is behind.
func TestStoredReadsNoMore(t *testing.T) {
	got, err := storedMeta{}.Interpret([]byte(`{"kind":"Instance","apiVersion":"tako.dev/v1alpha1","spec":`))
	if err != nil || *got != v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindInstance) {
		t.Errorf("%v, %v", got, err)
	}
}
