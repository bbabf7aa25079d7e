package declare

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidateFragment(t *testing.T) {
	const at = "spec.resources"
	no := false
	piece := Resource{Name: "one", Fragment: &Fragment{Path: "/etc/f", Content: "x"}}
	file := func(f File) Resource {
		f.Path = "/etc/f"
		return Resource{Name: "f", File: &f}
	}
	from := func(source ContentSource, own string) Resource {
		return Resource{Name: "one", Fragment: &Fragment{Path: "/etc/f", Content: own, ContentFrom: &source}}
	}
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"alone", []Resource{piece}, ""},
		{"with its file", []Resource{piece, file(File{Fragments: true, Content: "head", Check: []string{"true", "{}"}})}, ""},
		{"two", []Resource{piece, {Name: "two", Fragment: &Fragment{Path: "/etc/f", Order: -fragmentOrderMax}}}, ""},
		{"path", []Resource{{Name: "a", Fragment: &Fragment{Path: "f"}}}, "TK0414 " + at + "[0].fragment.path"},
		{"no path", []Resource{{Name: "a", Fragment: &Fragment{}}}, "TK0413 " + at + "[0].fragment.path"},
		{"order", []Resource{{Name: "a", Fragment: &Fragment{Path: "/f", Order: fragmentOrderMax + 1}}}, "TK0414 " + at + "[0].fragment.order"},
		{"a long name", []Resource{{Name: "a" + strings.Repeat("b", 252), Fragment: &Fragment{Path: "/" + strings.Repeat("d/", 2000) + "f"}}}, "TK0414 " + at + "[0].name"},
		{"of a whole file", []Resource{piece, file(File{})}, "TK0421 " + at + "[0].fragment.path"},
		{"of a directory", []Resource{{Name: "d", Directory: &Directory{Path: "/etc/f"}}, piece}, "TK0421 " + at + "[1].fragment.path"},
		{"content from elsewhere", []Resource{file(File{Fragments: true, ContentFrom: &ContentSource{Secret: &KeySelector{Name: "a", Key: "k"}}})}, "TK0415 " + at + "[0].file.contentFrom"},
		{"a piece of a ConfigMap", []Resource{from(ContentSource{ConfigMap: &KeySelector{Name: "a", Key: "k"}}, "")}, ""},
		{"a piece of a ConfigMap and its own", []Resource{from(ContentSource{ConfigMap: &KeySelector{Name: "a", Key: "k"}}, "x")}, "TK0415 " + at + "[0].fragment.contentFrom"},
		{"a piece of nothing", []Resource{from(ContentSource{}, "")}, "TK0413 " + at + "[0].fragment.contentFrom"},
		{"a piece of a Secret", []Resource{from(ContentSource{Secret: &KeySelector{Name: "a", Key: "k"}}, "")}, "TK0415 " + at + "[0].fragment.contentFrom.secret"},
		{"a piece of an object", []Resource{from(ContentSource{Object: &ObjectReference{}}, "")}, "TK0415 " + at + "[0].fragment.contentFrom.object"},
		{"a piece of a path", []Resource{from(ContentSource{Path: "/etc/g"}, "")}, "TK0415 " + at + "[0].fragment.contentFrom.path"},
		{"content that may be others'", []Resource{file(File{Fragments: true, Replace: &no})}, "TK0415 " + at + "[0].file.replace"},
	} {
		if got := summary(Validate(config(c.resources...))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestAssembled: the content depends on what the pieces are, and not on the order in which they come.
func TestAssembled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,2}`), 0, 6, rapid.ID[string]).Draw(t, "names")
		f := &File{Path: "/f", Fragments: true, Content: rapid.SampledFrom([]string{"", "head", "head\n"}).Draw(t, "head")}
		var pieces []Piece
		length := 0
		for _, name := range names {
			p := &Fragment{Path: "/f", Order: rapid.IntRange(-1, 1).Draw(t, "order"), Content: rapid.SampledFrom([]string{"", name, name + "\n"}).Draw(t, "content")}
			pieces = append(pieces, Piece{p.claim(name), p})
			length += len(p.Content)
		}
		want := f.Assembled(pieces).Content
		if got := f.Assembled(rapid.Permutation(pieces).Draw(t, "others")).Content; got != want {
			t.Fatalf("%q and %q of the same pieces", got, want)
		}
		if len(want) < length || want != "" && !strings.HasSuffix(want, "\n") || strings.Contains(want, "\n\n") {
			t.Fatalf("%q of %v", want, names)
		}
	})
}
