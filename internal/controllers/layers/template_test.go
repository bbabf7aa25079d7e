package layers_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// api is a template that takes values from everywhere.
func api() *workload.Template {
	key := func(name, key string) *declare.KeySelector { return &declare.KeySelector{Name: name, Key: key} }
	return &workload.Template{Tasks: []workload.Task{{
		Name: "api", Command: []string{"/bin/api"},
		Env: []workload.EnvVar{
			{Name: "BASE", Value: "/srv"}, {Name: "ROOT", Value: "$(BASE)/www"}, {Name: "NODE", ValueFrom: &workload.EnvSource{Field: "node.name"}},
			{Name: "GREETING", ValueFrom: &workload.EnvSource{ConfigMap: key("site", "greeting")}}, {Name: "PASSWORD", ValueFrom: &workload.EnvSource{Secret: key("db", "password")}},
		},
		Files: []workload.File{{Path: "/etc/a", Content: "a"}, {Path: "/etc/site", ConfigMap: key("site", "greeting")}, {Path: "/etc/key", Secret: key("db", "password")}},
	}, {Name: "side", Command: []string{"/bin/side"}, Files: []workload.File{{Path: "/etc/other", Secret: key("db", "other")}}}}}
}

// stage stores a revision of a workload in namespace prod, and returns its name and that of its layer.
func (r *rig) stage(t *workload.Template) (revision, id string) {
	name := "web-" + workload.Hash(t, 0)
	r.objects.put(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
		Spec: v1alpha1.RevisionSpec{Source: &v1alpha1.RevisionSource{Kind: workload.Kind, Name: "web", UID: "w"}, Template: t}})
	return name, catalog.TemplateLayer("prod", name)
}

// template is the one that is in a layer.
func (r *rig) template(id string, l *layers.Layer) catalog.Template {
	r.Helper()
	at, _ := catalog.TemplateOf(id)
	digest, there, err := l.Trie.Get(at.Key())
	if err != nil || !there || l.Entries != 1 || l.Trie.Len() != 1 {
		r.Fatalf("%v: no template in a layer of %d", err, l.Entries)
	}
	body, _ := l.Body(digest)
	t, err := catalog.DecodeTemplate(id, body)
	if err != nil || t.Unsupported != nil {
		r.Fatal(err, t.Unsupported)
	}
	return t
}

func TestTemplateTakesValues(t *testing.T) {
	r := newRig(t)
	const plain, greeting = "the plain text of it", "hello $(BASE) and $$(BASE)"
	r.objects.put(secret("db", map[string]string{"password": plain, "other": plain}))
	r.objects.put(configMap("site", map[string]string{"greeting": greeting}))
	declared := api()
	revision, id := r.stage(declared)
	l := r.of(id, revision)
	made := r.template(id, l)
	if made.Namespace != "prod" || made.Revision != revision || len(made.Secrets) != 3 || len(l.Keys) != 2 {
		t.Errorf("%+v with %d keys", made, len(l.Keys))
	}
	env := made.Spec.Tasks[0].Env
	if e := env[3]; e.ValueFrom != nil {
		t.Errorf("%+v is not filled in", e)
	} else if text, unknown := workload.ExpandEnv(e.Value, func(string) (string, bool) { return "expanded", true }); text != greeting || unknown != "" {
		t.Errorf("a host makes %q of it, want %q", text, greeting)
	}
	if env[1].Value != "$(BASE)/www" || env[2].ValueFrom.Field != "node.name" || env[4].ValueFrom.Secret.Name != "db" {
		t.Errorf("something else has changed: %+v", env)
	}
	files := made.Spec.Tasks[0].Files
	if files[1].Content != greeting || files[1].ConfigMap != nil || files[2].Secret == nil || files[2].ModeOrDefault() != 0o400 {
		t.Errorf("files %+v", files)
	}
	for row := range l.Trie.From(catalog.Digest{}) {
		if body, _ := l.Body(row.Digest); bytes.Contains(body, []byte(plain)) {
			t.Error("the secret stands in the body")
		}
	}
	// A host with the wrapped keys reads them.
	host := trust.NewSealingKey()
	for _, s := range made.Secrets {
		use := l.Keys[slices.IndexFunc(l.Keys, func(k layers.KeyUse) bool { return k.ID == s.Sealed.Key })]
		wrapped, err := r.WrapFor(layers.Recipient{UID: "node-1", SealingKey: host.Public()}, use)
		if err != nil {
			t.Fatal(err)
		}
		key, err := host.Open(trust.Envelope{Cluster: r.keys.Cluster(), NodeUID: "node-1", KeyID: use.ID}, wrapped)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := key.OpenText(s.Sealed.Key, s.Sealed.Text); err != nil || string(text) != plain {
			t.Errorf("%v: %s of %s is opened to %q", err, s.Env+s.File, s.Task, text)
		}
	}
	if workload.Hash(api(), 0) != workload.Hash(declared, 0) {
		t.Error("what was declared has changed")
	}
	// Another server comes to the same root.
	if other := rigOver(t, r.objects, r.keys).of(id, revision); other.Root != l.Root {
		t.Errorf("another server makes %s of it, and this one %s", other.Root, l.Root)
	}
}

// TestTemplateFollowsValues: another value moves the root, and whoever subscribed is told of the revision.
func TestTemplateFollowsValues(t *testing.T) {
	r := newRig(t)
	r.objects.put(secret("db", map[string]string{"password": "one", "other": "x"}))
	r.objects.put(configMap("site", map[string]string{"greeting": "hello"}))
	revision, id := r.stage(api())
	first := r.of(id, revision)
	changes := r.Subscribe()
	defer changes.Close()
	r.run()
	for _, change := range []object{secret("db", map[string]string{"password": "two", "other": "x"}), configMap("site", map[string]string{"greeting": "bye"})} {
		r.objects.put(change)
		<-changes.C()
		if got := changes.Take(); !slices.Equal(got, []string{id}) {
			t.Errorf("told of %v", got)
		}
		next := r.of(id, revision)
		if next.Root == first.Root {
			t.Error("another value has the same root")
		}
		if _, kept := r.At(id, first.Root); !kept {
			t.Error("the layer before is not kept")
		}
		first = next
	}
}

func TestTemplateMisses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rig)
		want   []string
	}{
		"no secret":     {func(r *rig) { r.objects.remove(secret("db", nil)) }, []string{"variable PASSWORD of task api", "key password of Secret prod/db", "no such Secret"}},
		"no key":        {func(r *rig) { r.objects.put(secret("db", map[string]string{"password": "x"})) }, []string{"file /etc/other of task side", "key other of Secret prod/db"}},
		"no config map": {func(r *rig) { r.objects.remove(configMap("site", nil)) }, []string{"variable GREETING of task api", "ConfigMap prod/site"}},
		"no text":       {func(r *rig) { r.objects.put(configMap("site", map[string]string{"greeting": "\xff"})) }, []string{"no UTF-8"}},
		"a NUL":         {func(r *rig) { r.objects.put(secret("db", map[string]string{"password": "hush\x00", "other": ""})) }, []string{"variable PASSWORD", "NUL byte"}},
		"a long variable": {func(r *rig) {
			r.objects.put(configMap("site", map[string]string{"greeting": strings.Repeat("x", workload.EnvBytesMax)}))
		}, []string{"variable GREETING", "at most 65536"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.objects.put(secret("db", map[string]string{"password": "hush", "other": "x"}))
			r.objects.put(configMap("site", map[string]string{"greeting": "hello"}))
			c.change(r)
			revision, id := r.stage(api())
			for range 2 {
				_, err := r.Of(t.Context(), id, revision)
				if !layers.Lasting(err) || !reason.Is(err, reason.LayerReference) || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "workload prod/web") {
					t.Fatalf("error %v", err)
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v does not say %q", err, want)
					}
				}
			}
			if n := r.objects.readsOf("Revision"); n != 1 {
				t.Errorf("compiled %d times", n)
			}
		})
	}
	r := newRig(t)
	r.objects.put(secret("db", map[string]string{"password": "hush", "other": strings.Repeat("x", declare.BodyBytesMax)}))
	r.objects.put(configMap("site", map[string]string{"greeting": "hello"}))
	revision, id := r.stage(api())
	if _, err := r.Of(t.Context(), id, revision); !reason.Is(err, reason.BodyTooLarge) || !layers.Lasting(err) {
		t.Errorf("too large: %v", err)
	}
}

func TestUnusableTemplate(t *testing.T) {
	r := newRig(t)
	plain := &workload.Template{Tasks: []workload.Task{{Name: "a", Command: []string{"/bin/a"}}}}
	put := func(name string, spec v1alpha1.RevisionSpec) string {
		r.objects.put(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Spec: spec})
		return name
	}
	for what, name := range map[string]string{
		"missing":        "web-aaaaaaaaaa",
		"of a config":    put("web-0123456789", v1alpha1.RevisionSpec{Resources: []declare.Resource{file("a", "1")}}),
		"of others":      put("web-bbbbbbbbbb", v1alpha1.RevisionSpec{Template: plain}),
		"without a hash": put("web", v1alpha1.RevisionSpec{Template: plain}),
	} {
		if _, err := r.Of(t.Context(), catalog.TemplateLayer("prod", name), name); !reason.Is(err, reason.RevisionUnusable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for collisions := range 3 {
		name := put("web-"+workload.Hash(plain, collisions), v1alpha1.RevisionSpec{Template: plain})
		r.of(catalog.TemplateLayer("prod", name), name)
		if _, err := r.Of(t.Context(), catalog.TemplateLayer("prod", name), "web-"+workload.Hash(plain, collisions+1)); !reason.Is(err, reason.RevisionUnusable) {
			t.Errorf("another revision in its layer: %v", err)
		}
		if _, err := r.Of(t.Context(), "NodeConfig/prod/web", name); !reason.Is(err, reason.RevisionUnusable) {
			t.Errorf("as a revision of a config: %v", err)
		}
	}
	r.objects.failWith = errors.New("away")
	name := put("web-"+workload.Hash(api(), 0), v1alpha1.RevisionSpec{Template: api()})
	if _, err := r.Of(t.Context(), catalog.TemplateLayer("prod", name), name); !reason.Is(err, reason.StoreUnreachable) {
		t.Errorf("without a store: %v", err)
	}
}
