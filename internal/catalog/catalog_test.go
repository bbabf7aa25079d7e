package catalog

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// documents reads declarations that must be right.
func documents(t testing.TB, texts ...string) []declare.Document {
	t.Helper()
	var all []declare.Document
	for i, text := range texts {
		docs, faults := declare.Read(string(rune('a'+i))+".yaml", []byte("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\n"+text))
		if len(faults) > 0 {
			t.Fatalf("read %d: %v", i, faults)
		}
		for j := range docs {
			if faults := docs[j].Validate(); len(faults) > 0 {
				t.Fatalf("validate %d: %v", i, faults)
			}
		}
		all = append(all, docs...)
	}
	return all
}

func motd(name, spec, content string) string {
	return "metadata: {name: " + name + "}\nspec:\n" + spec + "  resources:\n  - name: motd\n    file: {path: /etc/motd, content: " + content + "}\n"
}

func TestResolveHigherPriorityWinsWhole(t *testing.T) {
	low := "metadata: {name: low}\nspec:\n  priority: 10\n  resources:\n  - name: motd\n    file: {path: /etc/motd, content: low, mode: \"0600\"}\n"
	entries, faults := Resolve(documents(t, low, motd("high", "  priority: 20\n", "high")))
	if len(faults) > 0 || len(entries) != 1 {
		t.Fatalf("%d entries, faults %v", len(entries), faults)
	}
	got := entries[0]
	if got.Config != "NodeConfig/high" || got.Resource.File.Content != "high" || got.Resource.File.Mode != "" {
		t.Errorf("won by %s with %+v: want all of high and nothing of low", got.Config, got.Resource.File)
	}
	if place := got.Place.String(); place != "b.yaml:7:5" {
		t.Errorf("declared at %s, want b.yaml:7:5", place)
	}
}

func TestResolveEqualDesiresAreOne(t *testing.T) {
	entries, faults := Resolve(documents(t, motd("one", "", "same"), motd("two", "", "same")))
	if len(faults) > 0 || len(entries) != 1 || entries[0].Config != "NodeConfig/one" {
		t.Errorf("entries %+v, faults %v: want one entry, of the first", entries, faults)
	}
}

func TestResolveConflictNamesBothPlaces(t *testing.T) {
	entries, faults := Resolve(documents(t, motd("one", "", "a"), motd("two", "", "b")))
	if entries != nil || len(faults) != 1 {
		t.Fatalf("entries %v, faults %v: want one fault and nothing else", entries, faults)
	}
	f := faults[0]
	if f.Code != reason.PriorityConflict || f.File != "b.yaml" || f.Line == 0 || len(f.Related) != 1 || f.Related[0].File != "a.yaml" || f.Related[0].Line == 0 {
		t.Errorf("fault %+v: want %s at b.yaml, related to a.yaml, with lines", f, reason.PriorityConflict)
	}
	for _, word := range []string{"file/motd", "NodeConfig/one", "NodeConfig/two", "/etc/motd", "100"} {
		if !strings.Contains(f.Message, word) {
			t.Errorf("message %q does not name %q", f.Message, word)
		}
	}
}

// A reference stays inside its config; that another config has won the claim referred to makes it a cross reference.
func TestResolveReferences(t *testing.T) {
	app := `metadata: {name: app}
spec:
  priority: 10
  resources:
  - name: conf
    file: {path: /etc/app.conf}
    require: [dir]
    notify: [app]
  - name: dir
    directory: {path: /etc}
  - name: app
    service: {}
`
	site := "metadata: {name: site}\nspec:\n  priority: 20\n  resources:\n  - name: etc\n    directory: {path: /etc, mode: \"0755\"}\n"
	entries, faults := Resolve(documents(t, app, site))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.Resource.Name == "conf" })
	conf := entries[at]
	want := []Ref{{Claim: declare.Claim{Kind: declare.ClaimPath, ID: "/etc"}, Cross: true}}
	if !slices.Equal(conf.Require, want) {
		t.Errorf("requires %+v, want %+v", conf.Require, want)
	}
	want = []Ref{{Claim: declare.Claim{Kind: declare.ClaimUnit, ID: "app.service"}}}
	if !slices.Equal(conf.Notify, want) {
		t.Errorf("notifies %+v, want %+v", conf.Notify, want)
	}
}

func anyEntry(t *rapid.T) Entry {
	text := rapid.StringMatching(`[ -~\n\x{80}-\x{2fff}]{0,40}`)
	name := rapid.StringMatching(`[a-z][a-z0-9.-]{0,12}`)
	e := Entry{Resource: declare.Resource{Name: name.Draw(t, "name"), When: rapid.SampledFrom([]string{"", "facts.cpu.count > 1"}).Draw(t, "when"),
		Expand: rapid.Bool().Draw(t, "expand")}}
	path := "/" + name.Draw(t, "path")
	switch rapid.IntRange(0, 4).Draw(t, "type") {
	case 0:
		e.Resource.File = &declare.File{Path: path, Content: text.Draw(t, "content"), Mode: "0640", Check: []string{"true", "{}"}}
	case 1:
		e.Resource.Directory = &declare.Directory{Path: path, Owner: "root"}
	case 2:
		e.Resource.Symlink = &declare.Symlink{Path: path, Target: text.Draw(t, "target")}
	case 3:
		e.Resource.Package = &declare.Package{State: declare.PackageAbsent}
	case 4:
		enabled := rapid.Bool().Draw(t, "enabled")
		e.Resource.Service = &declare.Service{Enabled: &enabled}
	}
	for range rapid.IntRange(0, 3).Draw(t, "refs") {
		e.Require = append(e.Require, Ref{Claim: declare.Claim{Kind: declare.ClaimPath, ID: "/" + name.Draw(t, "ref")}, Cross: rapid.Bool().Draw(t, "cross")})
	}
	return e
}

func TestEncodeDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEntry(t)
		data, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(data)
		if err != nil {
			t.Fatalf("decode %x: %v", data, err)
		}
		if !reflect.DeepEqual(back, e) {
			t.Fatalf("got  %+v\nwant %+v", back, e)
		}
		again, err := back.Encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("encoded again it is %x, not %x (%v)", again, data, err)
		}
	})
}

// A desire is what is wanted of a claim: not what it is called, nor when its turn is.
func TestDesire(t *testing.T) {
	base := declare.Resource{Name: "a", File: &declare.File{Path: "/a", Content: "x"}}
	same, err := Desire(declare.Resource{Name: "b", File: &declare.File{Path: "/a", Content: "x"}, Require: []string{"c"}, Notify: []string{"d"}})
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := Desire(base); same != want {
		t.Error("the name or the order changed the desire")
	}
	for what, r := range map[string]declare.Resource{
		"content":  {File: &declare.File{Path: "/a", Content: "y"}},
		"mode":     {File: &declare.File{Path: "/a", Content: "x", Mode: "0600"}},
		"type":     {Directory: &declare.Directory{Path: "/a"}},
		"when":     {File: &declare.File{Path: "/a", Content: "x"}, When: "facts.cpu.count > 1"},
		"onRemove": {File: &declare.File{Path: "/a", Content: "x"}, OnRemove: declare.OnRemoveDelete},
	} {
		if d, err := Desire(r); err != nil || d == same {
			t.Errorf("another %s is the same desire (%v)", what, err)
		}
	}
}

// The root of this declaration must not move: an agent would take an upgrade for a change of everything. If it has to,
// the entries get a schema number first.
func TestRootStays(t *testing.T) {
	entries, faults := Resolve(documents(t, motd("one", "", "hello")))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	body, err := entries[0].Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = "4dd3c9d53c350aea99c6abde1f1a0c76fa18796090e4e75a74a634155cad0fb4"
	if got := Root([]declare.Claim{entries[0].Claim()}, [][]byte{body}).String(); got != want {
		t.Errorf("root %s, want %s", got, want)
	}
}

func TestRootIsOfTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "n")
		claims, bodies := make([]declare.Claim, n), make([][]byte, n)
		for i := range n {
			claims[i] = declare.Claim{Kind: declare.ClaimPath, ID: "/" + string(rune('a'+i))}
			bodies[i] = rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "body")
		}
		root := Root(claims, bodies)
		i, j := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.IntRange(0, n-1).Draw(t, "j")
		claims[i], claims[j], bodies[i], bodies[j] = claims[j], claims[i], bodies[j], bodies[i]
		if Root(claims, bodies) != root {
			t.Fatal("the order changed the root")
		}
		bodies[i] = append(slices.Clone(bodies[i]), 1)
		if Root(claims, bodies) == root {
			t.Fatal("another body left the root as it was")
		}
		if Root(claims[1:], bodies[1:]) == root {
			t.Fatal("a missing entry left the root as it was")
		}
	})
}

func FuzzDecode(f *testing.F) {
	good, err := (&Entry{Resource: declare.Resource{Name: "a", File: &declare.File{Path: "/a"}}}).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	later := laterBody(f, "a", "/a", nil)
	for _, e := range []Entry{
		{Resource: fromDatabase("key", "/key"), Sealed: &Sealed{Key: "k", Text: []byte("ciphertext")}},
		{Unsupported: &reason.Error{}, unread: &Desired{Claim: later.Claim, body: later.Body}},
	} {
		data, err := e.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0xbf, 0xff})
	f.Add([]byte{0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Decode(data)
		if err != nil {
			return
		}
		if _, err := e.Encode(); err != nil {
			t.Errorf("decoded, but cannot be encoded: %v", err)
		}
		if _, err := e.DesireOf(e.Resource); err != nil || e.Claim().ID == "" && e.Unsupported != nil {
			t.Errorf("decoded, but is about %q (%v)", e.Claim(), err)
		}
	})
}

// TestParseDigest: a digest has one text.
func TestParseDigest(t *testing.T) {
	d := KeyOf("a")
	if got, ok := ParseDigest(d.String()); !ok || got != d {
		t.Errorf("%s is read as %s, %v", d, got, ok)
	}
	for _, text := range []string{"", d.String()[1:], d.String() + "0", strings.ToUpper(d.String()), " " + d.String()[1:], d.String()[:63] + "g", "sha256:" + d.String()} {
		if got, ok := ParseDigest(text); ok || got != (Digest{}) {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}
