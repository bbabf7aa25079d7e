package load

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// password is what may stand nowhere but in memory.
const password = "correct horse battery staple"

// vault opens what seal has sealed, as long as it has the key. Upside down is no cipher, but it is not the text.
type vault map[string]bool

func seal(key, text string) *catalog.Sealed {
	return &catalog.Sealed{Key: key, Text: upsideDown([]byte(text))}
}

func upsideDown(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = ^b[i]
	}
	return out
}

func (v vault) open(s catalog.Sealed) ([]byte, error) {
	if !v[s.Key] {
		return nil, &reason.Error{Code: reason.SecretKeyMissing, Doing: "open", Cause: errors.New("there is no key " + s.Key)}
	}
	return upsideDown(s.Text), nil
}

func secretFile(name string) declare.Resource {
	return declare.Resource{Name: name, OnRemove: declare.OnRemoveDelete,
		File: &declare.File{Path: "/srv/" + name, ContentFrom: &declare.ContentSource{Secret: &declare.KeySelector{Name: "db", Key: "password"}}}}
}

func plainFile(name string, more ...string) declare.Resource {
	return declare.Resource{Name: name, Require: more, File: &declare.File{Path: "/srv/" + name, Content: "text of " + name}}
}

// layer is a config as it comes to a host. sealed is the content of its secrets.
func layer(t testing.TB, id string, priority int, sealed *catalog.Sealed, resources ...declare.Resource) catalog.DecodedLayer {
	t.Helper()
	items, err := catalog.CompileWith(resources, func(*declare.Resource) (catalog.Content, error) { return catalog.Content{Sealed: sealed}, nil })
	must(t, err)
	return decoded(t, id, priority, items...)
}

func decoded(t testing.TB, id string, priority int, items ...catalog.Item) catalog.DecodedLayer {
	t.Helper()
	l, err := catalog.DecodeLayer(catalog.Layer{ID: id, Priority: priority}, func(yield func(catalog.Digest, []byte) bool) {
		for i := range items {
			if !yield(items[i].Row().Key, items[i].Body) {
				return
			}
		}
	})
	must(t, err)
	return l
}

// takes makes layers the active state under a root, and returns it with what is sealed in it opened.
func takes(t testing.TB, st *store.Store, root byte, open Open, layers ...catalog.DecodedLayer) *State {
	t.Helper()
	d, err := Layers(catalog.Digest{root}, layers, catalog.Proof{}, st, lookup, one)
	must(t, err)
	d.Unseal(open)
	must(t, d.Commit(st))
	return d
}

func (d *State) item(t testing.TB, title string) (*core.Item, converge.Digest) {
	t.Helper()
	for i := range d.Compiled.Items {
		if d.Compiled.Items[i].Title == title {
			return &d.Compiled.Items[i], d.Compiled.Graph.Vertices[i].Digest
		}
	}
	t.Fatalf("there is no %s", title)
	return nil, converge.Digest{}
}

// hasText reports whether a file below a directory holds a text.
func hasText(t testing.TB, dir, text string) bool {
	t.Helper()
	found := false
	must(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		found = found || bytes.Contains(b, []byte(text))
		return err
	}))
	return found
}

// TestSecretsDoNotStay: a file from a Secret that leaves is deleted unless something else was said; others stay unless something was. The
// key to it, which the host has no more then, is not needed for that.
func TestSecretsDoNotStay(t *testing.T) {
	st := open(t, t.TempDir())
	said := func(name string, how declare.OnRemove) declare.Resource {
		r := secretFile(name)
		r.OnRemove = how
		return r
	}
	takes(t, st, 1, vault{"k1": true}.open, layer(t, "NodeConfig/a", 1, seal("k1", password), said("unsaid", ""), said("kept", declare.OnRemoveKeep), said("restored", declare.OnRemoveRestore),
		plainFile("f"), plainFile("stays")))
	next := takes(t, st, 2, vault{}.open, layer(t, "NodeConfig/b", 1, nil, plainFile("stays")))
	got := map[string]declare.OnRemove{}
	for _, r := range next.Removals {
		got[r.Title] = r.OnRemove
	}
	if want := map[string]declare.OnRemove{"file/unsaid": declare.OnRemoveDelete, "file/restored": declare.OnRemoveRestore}; !maps.Equal(got, want) {
		t.Errorf("removed are %v, want %v", got, want)
	}
}

func TestSecretIsOpenedInMemoryOnly(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	v := vault{"k1": true}
	bodies := NewBodies(st)
	bodies.OpenWith(v.open)
	sees := func(what string, d *State, want string, code reason.Code) {
		t.Helper()
		it, digest := d.item(t, "file/key")
		r, err := bodies.Read(core.Key(it.Claim), digest)
		if code != 0 {
			if it.Err == nil || it.Err.Code != code || !reason.Is(err, code) || !strings.Contains(it.Err.Error(), "file/key") {
				t.Errorf("%s: %v, and read %v; want %s", what, it.Err, err, code)
			}
			return
		}
		if it.Err != nil || err != nil || it.Resource.File.Content != want || r.File.Content != want || r.File.ContentFrom == nil {
			t.Errorf("%s: %+v (%v), read %+v (%v)", what, it.Resource.File, it.Err, r.File, err)
		}
	}
	first := takes(t, st, 1, v.open, layer(t, "NodeConfig/a", 1, seal("k1", password), secretFile("key"), plainFile("f")))
	bodies.Swap(first)
	sees("at first", first, password, 0)
	if r, err := bodies.Read("path:/srv/f", first.Compiled.Graph.Vertices[first.Compiled.Graph.ID("path:/srv/f")].Digest); err != nil || r.File.Content != "text of f" {
		t.Errorf("the plain one: %+v, %v", r.File, err)
	}

	st = reopen(t, st, dir)
	bodies = NewBodies(st)
	good, err := LastGood(st, lookup, one)
	must(t, err)
	bodies.Swap(good)
	sees("before it is opened", good, "", reason.SecretKeyMissing)
	bodies.OpenWith(v.open)
	good.Unseal(v.open)
	good.Unseal(v.open)
	sees("after a restart", good, password, 0)
	if !good.Wants(first.Compiled.Graph) || good.root != first.root {
		t.Error("the last good state is another one")
	}

	// Another value, whose key has not come yet.
	next := takes(t, st, 2, v.open, layer(t, "NodeConfig/a", 1, seal("k2", "another "+password), secretFile("key"), plainFile("f")))
	bodies.Swap(next)
	sees("without its key", next, "", reason.SecretKeyMissing)
	if it, _ := next.item(t, "file/f"); it.Err != nil {
		t.Errorf("another resource is concerned: %v", it.Err)
	}
	v["k2"] = true
	_, before := good.item(t, "file/key")
	_, now := next.item(t, "file/key")
	if before == now {
		t.Error("another value is no change")
	}
	if r, err := bodies.Read("path:/srv/key", now); err != nil || r.File.Content != "another "+password {
		t.Errorf("when the key has come: %+v, %v", r.File, err)
	}

	gone := takes(t, st, 3, v.open, layer(t, "NodeConfig/a", 1, nil, plainFile("f")))
	want(t, "what is to be undone", listed(gone.Removals), "/srv/key delete")
	if hasText(t, dir, password) || !hasText(t, dir, "text of f") {
		t.Error("the state directory holds the secret, or not even what is in clear")
	}
}

// TestAloneThereAreNoSecrets: a declaration that names an object of a server fails for that resource alone, with a hint.
func TestAloneThereAreNoSecrets(t *testing.T) {
	st := open(t, t.TempDir())
	bodies := NewBodies(st)
	d := commit(t, st, file("f"), "    - name: key\n      file: {path: /srv/key, contentFrom: {secret: {name: db, key: password}}}\n",
		"    - name: conf\n      file: {path: /srv/conf, contentFrom: {configMap: {name: web, key: conf}}}\n")
	bodies.Swap(d)
	for _, name := range []string{"key", "conf"} {
		it, digest := d.item(t, "file/"+name)
		_, err := bodies.Read(core.Key(it.Claim), digest)
		if it.Err == nil || it.Err.Code != reason.ContentNeedsServer || it.Err.Hint == "" || !reason.Is(err, reason.ContentNeedsServer) {
			t.Errorf("%s: %v, read %v", name, it.Err, err)
		}
	}
	if it, _ := d.item(t, "file/f"); it.Err != nil {
		t.Errorf("another resource is concerned: %v", it.Err)
	}
}

func TestLayersRefused(t *testing.T) {
	st := open(t, t.TempDir())
	takes(t, st, 1, nil, layer(t, "NodeConfig/a", 1, nil, plainFile("f")))
	many := make([]catalog.Desired, declare.ResourcesMax+1)
	for i := range many {
		r := plainFile(fmt.Sprint("f", i))
		many[i] = catalog.Desired{Claim: r.Claim().String(), Resource: r}
	}
	half := len(many) / 2
	for name, test := range map[string]struct {
		layers []catalog.DecodedLayer
		code   reason.Code
	}{
		"too many": {[]catalog.DecodedLayer{{ID: "NodeConfig/a", Entries: many[:half]}, {ID: "NodeConfig/b", Entries: many[half:]}}, reason.TooManyResources},
		"conflict": {[]catalog.DecodedLayer{layer(t, "NodeConfig/a", 1, nil, plainFile("f")),
			layer(t, "NodeConfig/b", 1, nil, declare.Resource{Name: "g", File: &declare.File{Path: "/srv/f", Content: "another"}})}, reason.PriorityConflict},
		"cycle": {[]catalog.DecodedLayer{layer(t, "NodeConfig/a", 1, nil, plainFile("f", "g"), plainFile("g", "f"))}, reason.DependencyCycle},
	} {
		_, err := Layers(catalog.Digest{2}, test.layers, catalog.Proof{}, st, lookup, one)
		var faults declare.Faults
		if !reason.Is(err, test.code) && (!errors.As(err, &faults) || faults[0].Code != test.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st.Active().Root() != (converge.Digest{1}) {
		t.Error("what was refused has changed the store")
	}
}

// TestUnknownEntryStaysOnDisk: what this version does not know is kept as it came, and undone by nobody.
func TestUnknownEntryStaysOnDisk(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	body := append([]byte{0xa2, 0x61, 'c', 0x6d}, "socket:/run/x"...)
	body = append(body, 0x61, 'v', 0x18, 99)
	d := takes(t, st, 1, nil, decoded(t, "NodeConfig/a", 1, catalog.Item{Claim: "socket:/run/x", Body: body}))
	st = reopen(t, st, dir)
	good, err := LastGood(st, lookup, one)
	must(t, err)
	it, digest := good.item(t, "socket:/run/x")
	if it.Err == nil || it.Err.Code != reason.LaterVersion || !good.Wants(d.Compiled.Graph) {
		t.Errorf("read back as %+v", it)
	}
	bodies := NewBodies(st)
	bodies.Swap(good)
	bodies.OpenWith(vault{}.open)
	if _, err := bodies.Read("socket:/run/x", digest); !reason.Is(err, reason.LaterVersion) {
		t.Errorf("read: %v", err)
	}
	if !hasText(t, dir, string(body)) {
		t.Error("the body is not there as it came")
	}
	next := takes(t, st, 2, nil, layer(t, "NodeConfig/a", 1, nil, plainFile("f")))
	want(t, "what is to be undone", listed(next.Removals), "")
}

// TestLastGoodIsWhatWasTaken: for any layers, the graph that is read back after a restart is the one that was committed.
func TestLastGoodIsWhatWasTaken(t *testing.T) {
	base := t.TempDir()
	v := vault{"k": true}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		st, err := store.Open(dir, time.Now())
		must(t, err)
		defer func() { st.Close() }()
		var last *State
		for round := range rapid.IntRange(1, 3).Draw(rt, "states") {
			var layers []catalog.DecodedLayer
			for i, id := range []string{"NodeConfig/a", "NodeConfig/b"} {
				var resources []declare.Resource
				for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(rt, id) {
					r := plainFile(name)
					if rapid.Bool().Draw(rt, "secret") {
						r = secretFile(name)
					}
					if len(resources) > 0 && rapid.Bool().Draw(rt, "ordered") {
						r.Require = []string{resources[0].Name}
					}
					resources = append(resources, r)
				}
				layers = append(layers, layer(t, id, 2-i, seal("k", rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "value")), resources...))
			}
			last = takes(t, st, byte(round+1), v.open, layers...)
		}
		must(t, st.Close())
		st, err = store.Open(dir, time.Now())
		must(t, err)
		good, err := LastGood(st, lookup, one)
		if err != nil {
			rt.Fatal(err)
		}
		if got, want := shape(good), shape(last); got != want || !good.Wants(last.Compiled.Graph) {
			rt.Fatalf("read back:\n%swant:\n%s", got, want)
		}
	})
}
