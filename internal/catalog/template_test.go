package catalog

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/spectest"
)

// declared reads a Workload, and makes the template of it that hosts get. What it takes from Secrets is sealed with what it is called.
func declared(t testing.TB, path string) Template {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, _, faults := workload.Read(path, text)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	tpl := Template{Namespace: d.Metadata.Namespace, Revision: d.Metadata.Name + "-" + workload.Hash(&d.Spec.Template, 0), Spec: d.Spec.Template}
	sealed := func(s *declare.KeySelector) Sealed {
		return Sealed{Key: strings.Repeat("5a", 16), Text: []byte(s.Name + "/" + s.Key)}
	}
	for i := range tpl.Spec.Tasks {
		task := &tpl.Spec.Tasks[i]
		for _, e := range task.Env {
			if e.ValueFrom != nil && e.ValueFrom.Secret != nil {
				tpl.Secrets = append(tpl.Secrets, TemplateSecret{Task: task.Name, Env: e.Name, Sealed: sealed(e.ValueFrom.Secret)})
			}
		}
		for _, f := range task.Files {
			if f.Secret != nil {
				tpl.Secrets = append(tpl.Secrets, TemplateSecret{Task: task.Name, File: f.Path, Sealed: sealed(f.Secret)})
			}
		}
	}
	slices.SortFunc(tpl.Secrets, func(a, b TemplateSecret) int { return a.compare(&b) })
	return tpl
}

func webTemplate(t testing.TB) Template {
	t.Helper()
	return declared(t, "testdata/template/web.yaml")
}

func itemOf(t testing.TB, tpl Template) Item {
	t.Helper()
	item, err := tpl.Item()
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// TestTemplatesKeepRoots: as TestCompileKeepsRoots. A host gets a root that moves, and so would every instance's node at once.
func TestTemplatesKeepRoots(t *testing.T) {
	files, err := filepath.Glob("testdata/template/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v: %d files", err, len(files))
	}
	for _, path := range files {
		item := itemOf(t, declared(t, path))
		spectest.Golden(t, strings.TrimSuffix(path, ".yaml")+".root", []byte(TrieOf([]Item{item}).Root().String()+"\n"))
	}
}

func TestTemplateComesBack(t *testing.T) {
	for _, name := range []string{"least", "web", "image"} {
		tpl := declared(t, "testdata/template/"+name+".yaml")
		item, id := itemOf(t, tpl), TemplateLayer(tpl.Namespace, tpl.Revision)
		other := tpl
		other.Secrets = slices.Clone(tpl.Secrets)
		slices.Reverse(other.Secrets)
		if again := itemOf(t, other); !bytes.Equal(again.Body, item.Body) {
			t.Errorf("%s: in another order it is another body", name)
		}
		at, ok := TemplateOf(id)
		if !ok || at.Key() != item.Row().Key {
			t.Errorf("%s is not where it is looked for", name)
		}
		back, err := DecodeTemplate(id, item.Body)
		if err != nil || back.Unsupported != nil || !reflect.DeepEqual(back, tpl) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, back, tpl)
		}
		if workload.Hash(&back.Spec, 0) != workload.Hash(&tpl.Spec, 0) {
			t.Errorf("%s is another revision on its host", name)
		}
		if again := itemOf(t, back); !bytes.Equal(again.Body, item.Body) {
			t.Errorf("%s: written again it is another body", name)
		}
	}
}

func TestTemplateLayer(t *testing.T) {
	for id, want := range map[string][2]string{
		"Revision/shop/web-abc": {"shop", "web-abc"}, "NodeConfig/shop/web": {}, "Revision/shop": {}, "Revision//web": {}, "Revision/shop/": {}, "own": {}, "Revision/a/b/c": {},
	} {
		tpl, ok := TemplateOf(id)
		if ok != (want[0] != "") || ok && (tpl.Namespace != want[0] || tpl.Revision != want[1] || TemplateLayer(tpl.Namespace, tpl.Revision) != id) {
			t.Errorf("%s is read as %+v, %v", id, tpl, ok)
		}
	}
}

func TestTemplateRefuses(t *testing.T) {
	tpl := webTemplate(t)
	large := tpl
	large.Secrets = slices.Clone(tpl.Secrets)
	large.Secrets[0].Sealed.Text = make([]byte, declare.BodyBytesMax)
	with := func(s TemplateSecret) Template {
		other := tpl
		other.Secrets = append(slices.Clone(tpl.Secrets), s)
		return other
	}
	for name, test := range map[string]struct {
		template Template
		code     reason.Code
	}{
		"too large":         {large, reason.BodyTooLarge},
		"twice":             {with(tpl.Secrets[0]), reason.InvalidValue},
		"no such task":      {with(TemplateSecret{Task: "none", Env: "PASSWORD"}), reason.InvalidValue},
		"no such variable":  {with(TemplateSecret{Task: "api", Env: "BASE"}), reason.InvalidValue},
		"no such file":      {with(TemplateSecret{Task: "api", File: "/etc/api.conf"}), reason.InvalidValue},
		"two places":        {with(TemplateSecret{Task: "api", Env: "PASSWORD", File: "/etc/api.key"}), reason.InvalidValue},
		"no place":          {with(TemplateSecret{Task: "api"}), reason.InvalidValue},
		"of another's task": {with(TemplateSecret{Task: "side", Env: "PASSWORD"}), reason.InvalidValue},
	} {
		if _, err := test.template.Item(); !reason.Is(err, test.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTemplateOfALaterVersion: what this version does not know all of is not run, and is no reason to refuse a state; what cannot be is.
func TestTemplateOfALaterVersion(t *testing.T) {
	tpl := webTemplate(t)
	id, spec := TemplateLayer(tpl.Namespace, tpl.Revision), func(v any) []byte {
		b, err := encoding.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	claim := tpl.Claim()
	for name, test := range map[string]struct {
		body  any
		later bool // else it is refused
	}{
		"another schema":             {map[string]any{"v": templateSchema + 1, "c": claim, "t": 7, "x": "sealed otherwise"}, true},
		"a field more":               {map[string]any{"v": 1, "c": claim, "t": spec(tpl.Spec), "new": true}, true},
		"a field more of the tasks":  {map[string]any{"v": 1, "c": claim, "t": spec(map[string]any{"tasks": []any{map[string]any{"name": "a", "new": 1}}})}, true},
		"another revision":           {map[string]any{"v": 1, "c": claim + "x", "t": spec(tpl.Spec)}, false},
		"another form":               {map[string]any{"v": 1, "c": claim, "t": "text"}, false},
		"no template":                {map[string]any{"v": 1, "c": claim}, false},
		"tasks of another form":      {map[string]any{"v": 1, "c": claim, "t": spec(map[string]any{"tasks": 1})}, false},
		"a secret that nobody takes": {templateBody{Schema: 1, Claim: claim, Spec: spec(tpl.Spec), Secrets: []TemplateSecret{{Task: "api", Env: "BASE"}}}, false},
		"a text":                     {claim, false},
	} {
		got, err := DecodeTemplate(id, spec(test.body))
		if test.later && (err != nil || got.Unsupported == nil || got.Unsupported.Code != reason.LaterVersion || len(got.Spec.Tasks)+len(got.Secrets) > 0 || got.Revision != tpl.Revision) ||
			!test.later && !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := DecodeTemplate("NodeConfig/shop/web", itemOf(t, tpl).Body); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("as another layer: %v", err)
	}
	if _, err := DecodeTemplate(id, make([]byte, declare.BodyBytesMax+1)); !reason.Is(err, reason.BodyTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// TestTemplateForAnOlderHost: one that knows no templates takes one for a resource of a later version, and keeps on.
func TestTemplateForAnOlderHost(t *testing.T) {
	item := itemOf(t, webTemplate(t))
	d, err := DecodeBody(item.Row().Key, item.Body)
	if err != nil || d.Unsupported == nil {
		t.Errorf("it is refused: %+v, %v", d, err)
	}
}

// FuzzDecodeTemplate: what is read of a body is what would be written; and a body of a later version is that on every host.
func FuzzDecodeTemplate(f *testing.F) {
	f.Fuzz(func(t *testing.T, id string, data []byte) {
		tpl, err := DecodeTemplate(id, data)
		if err != nil || tpl.Unsupported != nil {
			if len(tpl.Spec.Tasks)+len(tpl.Secrets) > 0 {
				t.Errorf("something is read of what is not known: %+v", tpl)
			}
			return
		}
		item, err := tpl.Item()
		if err != nil {
			t.Fatalf("%+v is read, and cannot be written: %v", tpl, err)
		}
		again, err := DecodeTemplate(id, item.Body)
		if err != nil || again.Unsupported != nil {
			t.Fatalf("it does not come back: %v, %v", err, again.Unsupported)
		}
		if third := itemOf(t, again); !bytes.Equal(third.Body, item.Body) {
			t.Errorf("%x is written, and then %x", item.Body, third.Body)
		}
	})
}
