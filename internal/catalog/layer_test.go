package catalog

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// TestCompileKeepsRoots: what is declared in testdata/compile has the roots that stand beside it. A host would take a root that
// moves for a change of everything; if one has to, the schema number goes up first.
func TestCompileKeepsRoots(t *testing.T) {
	files, err := filepath.Glob("testdata/compile/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v: %d files", err, len(files))
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		docs, faults := declare.Read(path, text)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if faults := docs[0].Validate(); len(faults) > 0 {
			t.Fatal(faults)
		}
		items, err := Compile(docs[0].Config.Spec.Resources)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(path, ".yaml") + ".root")
		if err != nil {
			t.Fatal(err)
		}
		if got := TrieOf(items).Root().String(); got != strings.TrimSpace(string(want)) {
			t.Errorf("%s has the root %s, and had %s", path, got, want)
		}
	}
}

// TestCompileDecode: a host reads what was declared, and the order in which it was written changes nothing.
func TestCompileDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var resources []declare.Resource
		taken := map[declare.Claim]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "resources") {
			r := anyEntry(t).Resource
			if taken[r.Claim()] || slices.ContainsFunc(resources, func(o declare.Resource) bool { return o.Name == r.Name }) {
				continue
			}
			taken[r.Claim()] = true
			for _, other := range resources {
				if rapid.Bool().Draw(t, "requires") {
					r.Require = append(r.Require, other.Name)
				}
			}
			resources = append(resources, r)
		}
		items, err := Compile(resources)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resources {
			at := slices.IndexFunc(items, func(i Item) bool { return i.Claim == r.Claim().String() })
			d, err := DecodeBody(items[at].Row().Key, items[at].Body)
			if err != nil || d.Unsupported != nil {
				t.Fatalf("%v, %v", err, d.Unsupported)
			}
			var want []string
			for _, name := range r.Require {
				i := slices.IndexFunc(resources, func(o declare.Resource) bool { return o.Name == name })
				want = append(want, resources[i].Claim().String())
			}
			slices.Sort(want)
			if !slices.Equal(d.Require, want) {
				t.Fatalf("requires %v, want %v", d.Require, want)
			}
			r.Require = nil
			if !reflect.DeepEqual(d.Resource, r) {
				t.Fatalf("read %+v, want %+v", d.Resource, r)
			}
		}
		slices.Reverse(resources)
		for i := range resources {
			slices.Reverse(resources[i].Require)
		}
		again, err := Compile(resources)
		if err != nil || TrieOf(again).Root() != TrieOf(items).Root() {
			t.Fatalf("%v: the order has changed the root", err)
		}
	})
}

// TestBodyOfALaterVersion: what a host does not know is told as such, keeps its claim, and is no reason to refuse the rest.
func TestBodyOfALaterVersion(t *testing.T) {
	resource := func(v any) []byte {
		b, err := encoding.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	known := resource(declare.Resource{Name: "a", File: &declare.File{Path: "/a"}})
	type body struct {
		layerBody
		New string `json:"new,omitempty"`
	}
	for name, b := range map[string]body{
		"another schema":     {layerBody: layerBody{Schema: Schema + 1, Claim: "path:/a", Resource: known}},
		"a field of a body":  {layerBody: layerBody{Schema: Schema, Claim: "path:/a", Resource: known}, New: "x"},
		"a resource type":    {layerBody: layerBody{Schema: Schema, Claim: "path:/a", Resource: resource(map[string]any{"name": "a", "socket": map[string]any{"path": "/a"}})}},
		"a field of a type":  {layerBody: layerBody{Schema: Schema, Claim: "path:/a", Resource: resource(map[string]any{"name": "a", "file": map[string]any{"path": "/a", "immutable": true}})}},
		"a sealed package":   {layerBody: layerBody{Schema: Schema, Claim: "package:a", Resource: resource(declare.Resource{Name: "a", Package: &declare.Package{}}), Sealed: &Sealed{Key: "k"}}},
		"a sealed text":      {layerBody: layerBody{Schema: Schema, Claim: "path:/a", Resource: known, Sealed: &Sealed{Key: "k"}}},
		"a kind of claim":    {layerBody: layerBody{Schema: Schema, Claim: "socket:/a", Resource: resource(map[string]any{"name": "a", "socket": map[string]any{}})}},
		"no resource at all": {layerBody: layerBody{Schema: Schema, Claim: "data:/a", Resource: resource(map[string]any{})}},
	} {
		data := resource(b)
		d, err := DecodeBody(KeyOf(b.Claim), data)
		if err != nil || d.Claim != b.Claim || !reason.Is(d.Unsupported, reason.LaterVersion) || d.Resource.Type() != "" {
			t.Errorf("%s: %v, read %+v", name, err, d)
		}
	}
	good := layerBody{Schema: Schema, Claim: "path:/b", Resource: known}
	for name, test := range map[string]struct {
		key  string
		data []byte
	}{
		"at another key":             {"path:/other", resource(good)},
		"about something else":       {"path:/b", resource(good)},
		"without a claim":            {"", resource(layerBody{Schema: Schema, Resource: known})},
		"no CBOR":                    {"path:/a", []byte("{}")},
		"a list instead of an entry": {"path:/a", resource([]string{"path:/a"})},
	} {
		if _, err := DecodeBody(KeyOf(test.key), test.data); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeBody(f *testing.F) {
	items, err := Compile([]declare.Resource{{Name: "a", File: &declare.File{Path: "/a"}, Require: []string{"b"}}, {Name: "b", Package: &declare.Package{}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, i := range items {
		f.Add(i.Claim, i.Body)
	}
	f.Fuzz(func(t *testing.T, claim string, data []byte) {
		d, err := DecodeBody(KeyOf(claim), data)
		if err == nil && (d.Claim != claim || d.Unsupported == nil && d.Resource.Claim().String() != claim) {
			t.Errorf("at %q something was read about %q", claim, d.Claim)
		}
	})
}
