package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// layersOf compiles documents and reads them back, as they come to a host: in the order of a List.
func layersOf(t fataler, documents []declare.Document) []DecodedLayer {
	t.Helper()
	var layers []DecodedLayer
	for i := range documents {
		c := documents[i].Config
		items, err := Compile(c.Spec.Resources)
		if err != nil {
			t.Fatal(err)
		}
		l, err := DecodeLayer(Layer{ID: ConfigName(c), Priority: c.Priority()}, stored(items))
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, l)
	}
	slices.SortFunc(layers, func(a, b DecodedLayer) int {
		return compareLayers(Layer{Priority: a.Priority, ID: a.ID}, Layer{Priority: b.Priority, ID: b.ID})
	})
	return layers
}

// anyDocuments draws configs of small files that get into each other's way, with references among them.
func anyDocuments(t *rapid.T) []declare.Document {
	var all []declare.Document
	for i := range rapid.IntRange(1, 5).Draw(t, "configs") {
		priority := rapid.IntRange(1, 3).Draw(t, "priority")
		c := &declare.NodeConfig{APIVersion: "tako.dev/v1alpha1", Kind: declare.KindNodeConfig, Metadata: declare.Metadata{Name: string(rune('a' + i))}}
		c.Spec.Priority = &priority
		for _, p := range rapid.SliceOfNDistinct(rapid.IntRange(0, 4), 0, 4, rapid.ID[int]).Draw(t, "paths") {
			r := declare.Resource{Name: fmt.Sprint("r", p), File: &declare.File{Path: fmt.Sprint("/", p), Content: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "content")}}
			for _, other := range c.Spec.Resources {
				switch rapid.IntRange(0, 3).Draw(t, "reference") {
				case 0:
					r.Require = append(r.Require, other.Name)
				case 1:
					r.Notify = append(r.Notify, other.Name)
				}
			}
			c.Spec.Resources = append(c.Spec.Resources, r)
		}
		all = append(all, declare.Document{Config: c})
	}
	return all
}

// TestResolveAgainstModel: the obvious way to pick winners comes to the same, for documents and for layers.
func TestResolveAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		documents := anyDocuments(t)
		winners, conflict := map[string]*declare.NodeConfig{}, map[string]bool{}
		content := func(c *declare.NodeConfig, path string) string {
			for _, r := range c.Spec.Resources {
				if r.File.Path == path {
					return r.File.Content
				}
			}
			return "absent"
		}
		for p := range 5 {
			path, top := fmt.Sprint("/", p), -1
			for i := range documents {
				c := documents[i].Config
				if content(c, path) == "absent" || c.Priority() < top {
					continue
				}
				if c.Priority() > top {
					top, winners[path], conflict[path] = c.Priority(), c, false
					continue
				}
				conflict[path] = conflict[path] || content(winners[path], path) != content(c, path)
			}
		}
		want := 0
		for _, bad := range conflict {
			if bad {
				want = 1
			}
		}
		entries, faults := Resolve(documents)
		inLayers, conflicts := ResolveLayers(layersOf(t, documents))
		if min(len(faults), 1) != want || min(len(conflicts), 1) != want || len(faults) != len(conflicts) {
			t.Fatalf("%d faults, %d conflicts, of %v", len(faults), len(conflicts), conflict)
		}
		if want == 1 {
			if entries != nil || inLayers != nil || !reason.Is(conflicts[0].Reason(), reason.PriorityConflict) {
				t.Fatal("entries beside a conflict")
			}
			return
		}
		if len(entries) != len(winners) || len(inLayers) != len(winners) {
			t.Fatalf("%d and %d entries, want %d", len(entries), len(inLayers), len(winners))
		}
		for i := range entries {
			path := entries[i].Resource.File.Path
			if got := entries[i].Resource.File.Content; got != content(winners[path], path) {
				t.Fatalf("%s has %q of %s", path, got, entries[i].Config)
			}
			if entries[i].Config != ConfigName(winners[path]) || inLayers[i].Config != entries[i].Config {
				t.Fatalf("%s is of %s, and in layers of %s", path, entries[i].Config, inLayers[i].Config)
			}
			references(t, documents, winners, &entries[i])
			references(t, documents, winners, &inLayers[i])
		}
	})
}

// references compares the order of an entry with what each config that wants the winner's content says.
func references(t *rapid.T, documents []declare.Document, winners map[string]*declare.NodeConfig, e *Entry) {
	type edge struct {
		to     string
		notify bool
	}
	want, got := map[edge]bool{}, map[edge]bool{}
	winner := winners[e.Resource.File.Path]
	for i := range documents {
		c := documents[i].Config
		if c.Priority() != winner.Priority() {
			continue
		}
		for _, r := range c.Spec.Resources {
			if r.File.Path != e.Resource.File.Path {
				continue
			}
			for _, name := range r.Require {
				want[edge{"/" + name[1:], false}] = true
			}
			for _, name := range r.Notify {
				want[edge{"/" + name[1:], true}] = true
			}
		}
	}
	for _, ref := range e.Require {
		got[edge{ref.Claim.ID, false}] = true
		if higher := winners[ref.Claim.ID].Priority() > winner.Priority(); ref.Cross != higher {
			t.Fatalf("%s requires %+v, which %s has won", e.Resource.File.Path, ref, winners[ref.Claim.ID].Metadata.Name)
		}
	}
	for _, ref := range e.Notify {
		got[edge{ref.Claim.ID, true}] = true
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s has the order %v, want %v", e.Resource.File.Path, got, want)
	}
}

// fataler is a test or a property.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// fromDatabase is a resource whose content is a secret.
func fromDatabase(name, path string) declare.Resource {
	return declare.Resource{Name: name, File: &declare.File{Path: path, ContentFrom: &declare.ContentSource{Secret: &declare.KeySelector{Name: "db", Key: "password"}}}}
}

func sealedAs(s Sealed) func(*declare.Resource) (Content, error) {
	return func(*declare.Resource) (Content, error) { return Content{Sealed: &s}, nil }
}

// TestCompileWith: a text takes the place of its contentFrom, a sealed content stands beside it; it moves the root when it changes, and
// only then.
func TestCompileWith(t *testing.T) {
	fromMap := declare.Resource{Name: "conf", File: &declare.File{Path: "/conf", Mode: "0640", ContentFrom: &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "c", Key: "k"}}}}
	resources := []declare.Resource{{Name: "plain", File: &declare.File{Path: "/plain"}, Require: []string{"conf"}}, fromMap, fromDatabase("key", "/key")}
	with := func(text string, s Sealed) []Item {
		items, err := CompileWith(resources, func(r *declare.Resource) (Content, error) {
			if r.File.ContentFrom.Secret != nil {
				return Content{Sealed: &s}, nil
			}
			return Content{Text: text}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	first := Sealed{Key: "k1", Text: []byte("ciphertext")}
	items := with("text", first)
	l, err := DecodeLayer(Layer{ID: "NodeConfig/a", Priority: 1}, stored(items))
	if err != nil {
		t.Fatal(err)
	}
	conf, key := l.Entries[0], l.Entries[1]
	if conf.Resource.File.Content != "text" || conf.Resource.File.ContentFrom != nil || conf.Sealed != nil || conf.Resource.File.Mode != "0640" {
		t.Errorf("read %+v", conf.Resource.File)
	}
	if !reflect.DeepEqual(key.Resource, resources[2]) || !reflect.DeepEqual(key.Sealed, &first) || key.Unsupported != nil {
		t.Errorf("read %+v with %+v", key.Resource.File, key.Sealed)
	}
	if fromMap.File.ContentFrom == nil || fromMap.File.Content != "" {
		t.Error("what was declared has changed")
	}
	plain, err := Compile([]declare.Resource{{Name: "conf", File: &declare.File{Path: "/conf", Mode: "0640", Content: "text"}}})
	if err != nil || !bytes.Equal(plain[0].Body, items[0].Body) {
		t.Errorf("%v: a text from elsewhere is another body than one of its own", err)
	}
	root := TrieOf(items).Root()
	for name, same := range map[string]bool{
		"again":       TrieOf(with("text", Sealed{Key: "k1", Text: []byte("ciphertext")})).Root() == root,
		"other text":  TrieOf(with("other", first)).Root() != root,
		"other value": TrieOf(with("text", Sealed{Key: "k2", Text: []byte("other")})).Root() != root,
	} {
		if !same {
			t.Errorf("%s: the root is not as it should be", name)
		}
	}
}

// TestCompilePieceFromConfigMap: what a host gets of a piece from a ConfigMap is what it gets of one with that text, so it puts it together
// as any other, also in an earlier version.
func TestCompilePieceFromConfigMap(t *testing.T) {
	piece := func(f declare.Fragment) []declare.Resource {
		f.Path = "/etc/app.conf"
		return []declare.Resource{{Name: "app", File: &declare.File{Path: f.Path, Fragments: true}}, {Name: "shared", Fragment: &f}}
	}
	from := &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "c", Key: "k"}}
	items, err := CompileWith(piece(declare.Fragment{ContentFrom: from}), func(*declare.Resource) (Content, error) { return Content{Text: "text"}, nil })
	if err != nil {
		t.Fatal(err)
	}
	own, err := Compile(piece(declare.Fragment{Content: "text"}))
	if err != nil || TrieOf(items).Root() != TrieOf(own).Root() {
		t.Errorf("%v: a piece from a ConfigMap is another than one with that text", err)
	}
}

func TestCompileWithRefuses(t *testing.T) {
	gone := errors.New("gone")
	fromMap := declare.Resource{Name: "conf", File: &declare.File{Path: "/conf", ContentFrom: &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "c", Key: "k"}}}}
	if _, err := Compile([]declare.Resource{fromMap}); !reason.Is(err, reason.InternalFault) {
		t.Errorf("compiled without the content: %v", err)
	}
	for name, test := range map[string]struct {
		resource declare.Resource
		content  Content
		err      error
		code     reason.Code
	}{
		"what is gone":             {resource: fromMap, err: gone},
		"no UTF-8":                 {resource: fromMap, content: Content{Text: "\xff"}, code: reason.InvalidValue},
		"a sealed ConfigMap":       {resource: fromMap, content: Content{Sealed: &Sealed{}}, code: reason.InternalFault},
		"a secret in clear":        {resource: fromDatabase("key", "/key"), content: Content{Text: "password"}, code: reason.InternalFault},
		"a secret, also in clear":  {resource: fromDatabase("key", "/key"), content: Content{Text: "password", Sealed: &Sealed{}}, code: reason.InternalFault},
		"a secret that is nothing": {resource: fromDatabase("key", "/key"), code: reason.InternalFault},
		"a large text":             {resource: fromMap, content: Content{Text: strings.Repeat("x", declare.BodyBytesMax)}, code: reason.BodyTooLarge},
		"a large secret":           {resource: fromDatabase("key", "/key"), content: Content{Sealed: &Sealed{Text: make([]byte, declare.BodyBytesMax)}}, code: reason.BodyTooLarge},
	} {
		_, err := CompileWith([]declare.Resource{test.resource}, func(*declare.Resource) (Content, error) { return test.content, test.err })
		if test.err != nil && err != test.err || test.err == nil && !reason.Is(err, test.code) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("%s: it tells the secret", name)
		}
	}
}

// TestWhatFitsALayerFitsAHost: a host writes an entry down in another form, which is never too large.
func TestWhatFitsALayerFitsAHost(t *testing.T) {
	for _, references := range []int{0, 1, 2000} {
		r := fromDatabase("key", "/key")
		var resources []declare.Resource
		for i := range references {
			name := fmt.Sprint("f", i)
			resources = append(resources, declare.Resource{Name: name, File: &declare.File{Path: "/" + name}})
			r.Require, r.Notify = append(r.Require, name), append(r.Notify, name)
		}
		resources = append(resources, r)
		compiled := func(size int) ([]Item, error) {
			return CompileWith(resources, sealedAs(Sealed{Key: strings.Repeat("0", 32), Text: make([]byte, size)}))
		}
		tooLarge := sort.Search(declare.BodyBytesMax, func(size int) bool {
			_, err := compiled(size)
			if err != nil && !reason.Is(err, reason.BodyTooLarge) {
				t.Fatal(err)
			}
			return err != nil
		})
		items, err := compiled(tooLarge - 1)
		if err != nil {
			t.Fatal(err)
		}
		entries, _ := ResolveLayers([]DecodedLayer{layerOf(t, "NodeConfig/a", 1, items...)})
		for i := range items {
			entries = append(entries, Entry{Unsupported: &reason.Error{}, unread: &Desired{Claim: items[i].Claim, body: items[i].Body}}) // to an older agent
		}
		for i := range entries {
			if _, err := entries[i].Encode(); err != nil {
				t.Errorf("%d references: %v", references, err)
			}
		}
		if tooLarge < declare.BodyBytesMax/2 {
			t.Errorf("%d references leave %d bytes", references, tooLarge)
		}
	}
}

// laterBody is a body that this version cannot read.
func laterBody(t testing.TB, name, path string, more map[string]any) Item {
	t.Helper()
	file := map[string]any{"path": path, "immutable": true}
	for k, v := range more {
		file[k] = v
	}
	data, err := encoding.Marshal(map[string]any{"v": Schema, "c": "path:" + path, "q": []string{"path:/x" + name}, "r": map[string]any{"name": name, "file": file}, "new": 1})
	if err != nil {
		t.Fatal(err)
	}
	return Item{Claim: "path:" + path, Body: data}
}

func layerOf(t testing.TB, id string, priority int, items ...Item) DecodedLayer {
	t.Helper()
	l, err := DecodeLayer(Layer{ID: id, Priority: priority}, stored(items))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestTransferCase51_UnknownEntryKind: an old agent takes what it does not know whole: the root is the server's, the claim is taken, and
// all others go on.
func TestTransferCase51_UnknownEntryKind(t *testing.T) {
	c := casetest.Start(t)
	known, err := Compile([]declare.Resource{{Name: "a", File: &declare.File{Path: "/a", Content: "low"}}, {Name: "b", File: &declare.File{Path: "/b"}}})
	if err != nil {
		t.Fatal(err)
	}
	body, err := encoding.Marshal(map[string]any{"v": 7, "c": "socket:/run/x", "anything": []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	high := []Item{laterBody(t, "a", "/a", nil), {Claim: "socket:/run/x", Body: body}}
	var rows []Row
	for i := range high {
		rows = append(rows, high[i].Row())
	}
	c.Equal(Build(rows).Root(), TrieOf(high).Root(), "the root of what came")
	entries, conflicts := ResolveLayers([]DecodedLayer{layerOf(t, "NodeConfig/high", 2, high...), layerOf(t, "NodeConfig/low", 1, known...)})
	if len(conflicts) > 0 || len(entries) != 3 {
		t.Fatalf("%d entries, conflicts %v", len(entries), conflicts)
	}
	for i, want := range []struct {
		claim, title, config string
		supported            bool
	}{{"path:/a", "path:/a", "NodeConfig/high", false}, {"path:/b", "file/b", "NodeConfig/low", true}, {"socket:/run/x", "socket:/run/x", "NodeConfig/high", false}} {
		e := &entries[i]
		c.Check(e.Claim().String() == want.claim && e.Title() == want.title && e.Config == want.config && (e.Unsupported == nil) == want.supported && len(e.Require) == 0,
			"%d: %s %s of %s, %v", i, e.Claim(), e.Title(), e.Config, e.Unsupported)
		data, err := e.Encode()
		c.NoError(err, "encode")
		back, err := Decode(data)
		c.NoError(err, "decode")
		again, err := back.Encode()
		c.Check(err == nil && bytes.Equal(again, data) && back.Claim() == e.Claim() && (back.Unsupported == nil) == want.supported, "%d: came back as %+v (%v)", i, back, err)
		a, errA := e.DesireOf(e.Resource)
		b, errB := back.DesireOf(back.Resource)
		c.Check(a == b && errA == nil && errB == nil, "%d: what is desired has changed on the way to the disk (%v, %v)", i, errA, errB)
	}
}

// TestUnknownEntriesMeet: two configs may want the same of a claim in a way that this host does not know. That is told by all but their
// names and their order.
func TestUnknownEntriesMeet(t *testing.T) {
	one := layerOf(t, "NodeConfig/one", 1, laterBody(t, "one", "/a", nil))
	for name, test := range map[string]struct {
		other Item
		want  int
	}{
		"the same":       {laterBody(t, "two", "/a", nil), 0},
		"another":        {laterBody(t, "one", "/a", map[string]any{"mode": "0600"}), 1},
		"one that it is": {mustCompile(t, declare.Resource{Name: "one", File: &declare.File{Path: "/a"}}), 1},
	} {
		_, conflicts := ResolveLayers([]DecodedLayer{one, layerOf(t, "NodeConfig/two", 1, test.other)})
		if len(conflicts) != test.want {
			t.Errorf("%s: %v", name, conflicts)
		}
	}
}

func mustCompile(t testing.TB, r declare.Resource) Item {
	t.Helper()
	items, err := Compile([]declare.Resource{r})
	if err != nil {
		t.Fatal(err)
	}
	return items[0]
}

// TestUnreadIsReadLater: an agent that is brought up to date reads from its own disk what the one before could not.
func TestUnreadIsReadLater(t *testing.T) {
	r := fromDatabase("key", "/key")
	r.Require = []string{"conf"}
	sealed := Sealed{Key: "k", Text: []byte("ciphertext")}
	items, err := CompileWith([]declare.Resource{{Name: "conf", File: &declare.File{Path: "/conf"}}, r}, sealedAs(sealed))
	if err != nil {
		t.Fatal(err)
	}
	e := Entry{Unsupported: &reason.Error{Code: reason.LaterVersion}, unread: &Desired{Claim: items[1].Claim, body: items[1].Body}}
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(data)
	want := []Ref{{Claim: declare.Claim{Kind: declare.ClaimPath, ID: "/conf"}, Cross: true}}
	if err != nil || back.Unsupported != nil || !reflect.DeepEqual(back.Sealed, &sealed) || back.Resource.Name != "key" || !slices.Equal(back.Require, want) {
		t.Errorf("read %+v (%v)", back, err)
	}
}

// TestSecretsMeet: the same content of the same secret is one desire, another one is not.
func TestSecretsMeet(t *testing.T) {
	layer := func(id, name string, s Sealed) DecodedLayer {
		items, err := CompileWith([]declare.Resource{fromDatabase(name, "/key")}, sealedAs(s))
		if err != nil {
			t.Fatal(err)
		}
		return layerOf(t, id, 1, items...)
	}
	one := layer("NodeConfig/one", "one", Sealed{Key: "k", Text: []byte("x")})
	entries, conflicts := ResolveLayers([]DecodedLayer{one, layer("NodeConfig/two", "two", Sealed{Key: "k", Text: []byte("x")})})
	if len(entries) != 1 || len(conflicts) != 0 {
		t.Errorf("%d entries, conflicts %v", len(entries), conflicts)
	}
	_, conflicts = ResolveLayers([]DecodedLayer{one, layer("NodeConfig/two", "two", Sealed{Key: "k2", Text: []byte("x")})})
	if len(conflicts) != 1 || conflicts[0].IDs != [2]string{"NodeConfig/one", "NodeConfig/two"} || conflicts[0].Claim.ID != "/key" {
		t.Errorf("conflicts %+v", conflicts)
	}
}
