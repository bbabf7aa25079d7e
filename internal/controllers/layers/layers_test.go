package layers_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const web = "NodeConfig/prod/web"

// bodies are the decoded bodies of a layer, by claim; each is found by its digest, alone and among all.
func (r *rig) bodies(l *layers.Layer) map[string]catalog.Desired {
	r.Helper()
	all, read := map[string]catalog.Desired{}, l.Reader()
	for row := range l.Trie.From(catalog.Digest{}) {
		body, ok := l.Body(row.Digest)
		if !ok {
			r.Fatalf("there is no body for %s", row.Digest)
		}
		if same, ok := read(row.Digest); !ok || !bytes.Equal(same, body) {
			r.Fatalf("among all, %s is the digest of something else", row.Digest)
		}
		d, err := catalog.DecodeBody(row.Key, body)
		if err != nil {
			r.Fatal(err)
		}
		all[d.Claim] = d
	}
	return all
}

func TestLayerOfPlainFiles(t *testing.T) {
	r := newRig(t)
	revision := r.revise("web", file("a", "1"), file("b", "2"))
	l := r.of(web, revision)
	if l.Entries != 2 || l.Trie.Len() != 2 || l.Root != l.Trie.Root() || l.Bytes == 0 || len(l.Keys) != 0 {
		t.Errorf("layer %+v", l)
	}
	if got := r.bodies(l)["path:/etc/a"].Resource.File.Content; got != "1" {
		t.Errorf("content %q", got)
	}
	if again := r.of(web, revision); again != l || r.objects.readsOf("Revision") != 1 {
		t.Errorf("compiled again, after %d reads", r.objects.readsOf("Revision"))
	}
	if at, ok := r.At(web, l.Root); !ok || at != l {
		t.Error("not found by its root")
	}
}

func TestValuesOfSecretsAndConfigMaps(t *testing.T) {
	r := newRig(t)
	const plain = "the plain text of it"
	r.objects.put(secret("tls", map[string]string{"key": plain, "same": plain}))
	r.objects.put(configMap("site", map[string]string{"index": "hello"}))
	l := r.of(web, r.revise("web", fromSecret("a", "tls", "key"), fromSecret("b", "tls", "key"), fromSecret("c", "tls", "same"), fromConfigMap("d", "site", "index")))
	all := r.bodies(l)
	if d := all["path:/etc/d"]; d.Resource.File.Content != "hello" || d.Resource.File.ContentFrom != nil || d.Sealed != nil {
		t.Errorf("of a ConfigMap: %+v", d.Resource.File)
	}
	a, b, c := all["path:/etc/a"].Sealed, all["path:/etc/b"].Sealed, all["path:/etc/c"].Sealed
	if a == nil || !bytes.Equal(a.Text, b.Text) || a.Key != b.Key || a.Key == c.Key || len(l.Keys) != 2 || l.Keys[0].ID >= l.Keys[1].ID {
		t.Errorf("sealed %v, %v, %v under %v", a, b, c, l.Keys)
	}
	for row := range l.Trie.From(catalog.Digest{}) {
		if body, _ := l.Body(row.Digest); bytes.Contains(body, []byte(plain)) {
			t.Errorf("the secret stands in a body: %q", body)
		}
	}
	// A host with the wrapped key reads it, and another one does not.
	host, other := trust.NewSealingKey(), trust.NewSealingKey()
	use := l.Keys[slices.IndexFunc(l.Keys, func(k layers.KeyUse) bool { return k.ID == a.Key })]
	if want := "prod/tls/key"; use.Secret != want {
		t.Errorf("the key is of %s, want %s", use.Secret, want)
	}
	wrapped, err := r.WrapFor(layers.Recipient{UID: "node-1", SealingKey: host.Public()}, use)
	if err != nil {
		t.Fatal(err)
	}
	envelope := trust.Envelope{Cluster: r.keys.Cluster(), NodeUID: "node-1", KeyID: use.ID}
	key, err := host.Open(envelope, wrapped)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := key.OpenText(a.Key, a.Text); err != nil || string(text) != plain {
		t.Errorf("%v: opened %q", err, text)
	}
	if _, err := other.Open(envelope, wrapped); err == nil {
		t.Error("another host has opened it")
	}
	if text := fmt.Sprintf("%v %+v %#v %s", use, use, use, use); strings.Contains(text, plain) || strings.Contains(text, "[") || strings.Contains(text, "{") {
		t.Errorf("a key prints as %s", text)
	}
	if _, err := r.WrapFor(layers.Recipient{UID: "node-1", SealingKey: []byte("none")}, use); err == nil {
		t.Error("sealed to what is no key")
	}
}

func TestMissingValues(t *testing.T) {
	big := strings.Repeat("x", declare.BodyBytesMax)
	for name, c := range map[string]struct {
		resource declare.Resource
		want     string // in the error
		code     reason.Code
	}{
		"no secret":      {fromSecret("a", "none", "key"), "Secret prod/none", reason.LayerReference},
		"no config map":  {fromConfigMap("a", "none", "key"), "ConfigMap prod/none", reason.LayerReference},
		"no key":         {fromSecret("a", "tls", "none"), "key none", reason.LayerReference},
		"no text":        {fromConfigMap("a", "site", "binary"), "key binary", reason.LayerReference},
		"too long":       {fromSecret("a", "tls", "big"), "a", reason.BodyTooLarge},
		"much too long":  {fromConfigMap("a", "site", "bigger"), "key bigger", reason.LayerReference},
		"too long a map": {fromConfigMap("a", "site", "big"), "a", reason.BodyTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.objects.put(secret("tls", map[string]string{"key": "hush", "big": big}))
			m := configMap("site", map[string]string{"index": "hello", "big": big, "bigger": big + "x"})
			m.BinaryData = map[string][]byte{"binary": {0xff}}
			r.objects.put(m)
			revision := r.revise("web", c.resource)
			for range 2 {
				_, err := r.Of(t.Context(), web, revision)
				var e *reason.Error
				if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Error(), c.want) || strings.Contains(e.Error(), "hush") || len(e.Error()) > 500 {
					t.Errorf("error %v", err)
				}
			}
			if n := r.objects.readsOf("Revision"); n != 1 {
				t.Errorf("compiled %d times", n)
			}
		})
	}
}

func TestUnusableRevision(t *testing.T) {
	r := newRig(t)
	want := func(config, revision string, code reason.Code) {
		t.Helper()
		_, err := r.Of(t.Context(), config, revision)
		if e := reason.Of(err); e == nil || e.Code != code {
			t.Errorf("%s %s: %v", config, revision, err)
		}
	}
	want(web, "web-0123456789", reason.RevisionUnusable)
	r.objects.put(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web-0123456789"}, Spec: v1alpha1.RevisionSpec{Resources: []declare.Resource{file("a", "")}}})
	want(web, "web-0123456789", reason.RevisionUnusable)
	want("Other/web", "web-0123456789", reason.InternalFault)
	// What is missing is looked for again.
	revision := nameOf(t, "web", []declare.Resource{file("a", "1")})
	want(web, revision, reason.RevisionUnusable)
	r.revise("web", file("a", "1"))
	r.of(web, revision)
	// An error of the moment is none of the revision's.
	r.objects.failWith = errors.New("away")
	other := r.revise("web", file("a", "2"))
	if _, err := r.Of(t.Context(), web, other); err == nil {
		t.Error("compiled without a store")
	}
	r.objects.failWith = nil
	r.of(web, other)
}

func TestClusterRevision(t *testing.T) {
	r := newRig(t)
	r.objects.put(secret("tls", map[string]string{"key": "hush"}))
	res := fromSecret("a", "tls", "key")
	res.File.ContentFrom.Secret.Namespace = "prod"
	name := nameOf(t, "all", []declare.Resource{res})
	r.objects.put(&v1alpha1.ClusterRevision{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RevisionSpec{Resources: []declare.Resource{res}}})
	if l := r.of("ClusterNodeConfig/all", name); len(l.Keys) != 1 || l.Keys[0].Secret != "prod/tls/key" {
		t.Errorf("keys %v", l.Keys)
	}
	// A NodeConfig takes from its own namespace, whatever it says.
	foreign := fromSecret("a", "tls", "key")
	foreign.File.ContentFrom.Secret.Namespace = "other"
	if l := r.of(web, r.revise("web", foreign)); l.Keys[0].Secret != "prod/tls/key" {
		t.Errorf("keys %v", l.Keys)
	}
}

func TestRotation(t *testing.T) {
	r := newRig(t)
	r.objects.put(secret("tls", map[string]string{"key": "one"}))
	revision := r.revise("web", fromSecret("a", "tls", "key"), file("b", "2"))
	plain := r.revise("plain", file("c", "3"))
	first, untouched := r.of(web, revision), r.of("NodeConfig/prod/plain", plain)
	changes := r.Subscribe()
	defer changes.Close()
	r.run()

	told := func() {
		t.Helper()
		<-changes.C()
		if got := changes.Take(); !slices.Equal(got, []string{web}) {
			t.Errorf("told of %v", got)
		}
	}
	r.objects.put(secret("tls", map[string]string{"key": "two"}))
	told()
	second := r.of(web, revision)
	if second.Root == first.Root || second.Keys[0].ID == first.Keys[0].ID {
		t.Error("another value has the same root")
	}
	if at, ok := r.At(web, first.Root); !ok || at != first {
		t.Error("the layer before is not kept")
	}
	// What changed beside the value changes nothing.
	beside := secret("tls", map[string]string{"key": "two", "more": "x"})
	r.objects.put(beside)
	told()
	if third := r.of(web, revision); third.Root != second.Root {
		t.Error("the same value has another root")
	}
	r.objects.remove(beside)
	told()
	if _, err := r.Of(t.Context(), web, revision); reason.Of(err) == nil || reason.Of(err).Code != reason.LayerReference {
		t.Errorf("without the secret: %v", err)
	}
	r.objects.put(secret("tls", map[string]string{"key": "two"}))
	told()
	// The Secret is another one, and so is its key.
	if fourth := r.of(web, revision); fourth.Root == second.Root {
		t.Error("the value of another Secret has the same key")
	}
	if r.of("NodeConfig/prod/plain", plain) != untouched {
		t.Error("a layer that names nothing was compiled again")
	}
	select {
	case <-changes.C():
		t.Errorf("told of %v, and nothing has changed", changes.Take())
	default:
	}
}

// What changes while nobody watches is found when everything is listed again.
func TestChangesThatNoWatchTells(t *testing.T) { synctest.Test(t, testChangesThatNoWatchTells) } // listing again has pauses

func testChangesThatNoWatchTells(t *testing.T) {
	r := newRig(t)
	was := secret("tls", map[string]string{"key": "one"})
	r.objects.put(was)
	revision := r.revise("web", fromSecret("a", "tls", "key"))
	first := r.of(web, revision)
	changes := r.Subscribe()
	defer changes.Close()
	r.run()
	r.objects.deaf = true
	r.objects.put(secret("tls", map[string]string{"key": "two"}))
	if r.of(web, revision) != first {
		t.Fatal("who told?")
	}
	r.objects.breakWatches()
	<-changes.C()
	second := r.of(web, revision)
	if second.Root == first.Root {
		t.Error("the old value is there still")
	}
	changes.Take()
	r.objects.remove(was)
	synctest.Wait() // until it watches again, so that there is something to break
	r.objects.breakWatches()
	<-changes.C()
	if _, err := r.Of(t.Context(), web, revision); err == nil {
		t.Error("the secret is gone, and its layer is not")
	}
}

// Many ask at once while values change; in the end everybody has the last one, and nothing was compiled for each of them.
func TestManyAskAtOnce(t *testing.T) {
	r := newRig(t)
	r.objects.put(configMap("site", map[string]string{"index": "0"}))
	revision := r.revise("web", fromConfigMap("a", "site", "index"))
	r.run()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if _, err := r.Of(t.Context(), web, revision); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 20 {
		r.objects.put(configMap("site", map[string]string{"index": fmt.Sprint(i)}))
	}
	all.Wait()
	r.eventually("the last value is there", func() bool {
		return r.bodies(r.of(web, revision))["path:/etc/a"].Resource.File.Content == "19"
	})
	if n := r.objects.readsOf("ConfigMap"); n > 200 {
		t.Errorf("the value was read %d times", n)
	}
}

// Two servers over one store make the same roots, whatever they have compiled before, and bodies that they share with earlier layers
// are right.
func TestDeterministic(t *testing.T) {
	keys, err := trust.NewKeys(trust.NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		store := newObjects()
		one, two := rigOver(t, store, keys), rigOver(t, store, keys)
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			value := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "value")
			store.put(secret("tls", map[string]string{"key": value}))
			store.put(configMap("site", map[string]string{"index": value}))
			resources := []declare.Resource{fromSecret("s", "tls", "key"), fromConfigMap("m", "site", "index")}
			for i := range rapid.IntRange(0, 100).Draw(rt, "files") {
				resources = append(resources, file(fmt.Sprint("f", i), value+rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "content")))
			}
			revision := one.revise("web", rapid.Permutation(resources).Draw(rt, "order")...)
			a := one.of(web, revision)
			if rapid.Bool().Draw(rt, "both") {
				two.of(web, revision)
			}
			fresh := rigOver(t, store, keys).of(web, revision)
			if b := two.of(web, revision); a.Root != b.Root || a.Root != fresh.Root || a.Bytes != b.Bytes || a.Entries != len(resources) {
				rt.Fatalf("roots %s, %s and %s", a.Root, b.Root, fresh.Root)
			}
			one.bodies(a)
			// They do not watch here, so what they know of values is forgotten by hand.
			one, two = rigOver(t, store, keys), rigOver(t, store, keys)
		}
	})
}
