package core

import (
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// item finds a vertex by its title.
func (c *Compiled) item(t testing.TB, title string) *Item {
	t.Helper()
	for i := range c.Items {
		if c.Items[i].Title == title {
			return &c.Items[i]
		}
	}
	t.Fatalf("there is no %s", title)
	return nil
}

const pieced = `  resources:
  - name: app.conf
    file: {path: /etc/app.conf, content: "# head", fragments: true}
  - name: last
    fragment: {path: /etc/app.conf, order: 90, content: "last"}
  - name: b
    fragment: {path: /etc/app.conf, content: "b of $(node.name)\n"}
    expand: true
    notify: [app]
  - name: not-here
    when: facts.cpu.count > 64
    fragment: {path: /etc/app.conf, content: "not here\n"}
  - name: app
    service: {}
  - name: after
    file: {path: /after}
    require: [b]
`

const pieceOfOther = `  resources:
  - name: a
    fragment: {path: /etc/app.conf, order: -5, content: "first\n"}
    notify: [other]
    require: [made]
  - name: made
    directory: {path: /made}
  - name: other
    service: {}
`

func TestCompileFragments(t *testing.T) {
	c := compile(t, input(t, pieced, pieceOfOther))
	if got := c.item(t, "file/app.conf").Resource.File.Content; got != "# head\nfirst\nb of web-1\nlast\n" {
		t.Errorf("content %q", got)
	}
	for title, want := range map[string][]string{
		"file/app.conf": {"fragment/a (automatic)", "fragment/b (automatic)", "fragment/last (automatic)", "fragment/not-here (automatic)"},
		"fragment/a":    {"directory/made (require)"},
		"service/app":   {"file/app.conf (notify)"},
		"service/other": {"file/app.conf (notify)"},
		"file/after":    {"file/app.conf (require)"},
	} {
		if got := c.edges(title); !slices.Equal(got, want) {
			t.Errorf("%s comes after %v, want %v", title, got, want)
		}
	}
	digest := func(specs ...string) string {
		c := compile(t, input(t, specs...))
		for i := range c.Items {
			if c.Items[i].Title == "file/app.conf" {
				d := c.Graph.Vertices[i].Digest
				return string(d[:])
			}
		}
		return ""
	}
	both := digest(pieced, pieceOfOther)
	if digest(pieced) == both || digest(pieced, strings.Replace(pieceOfOther, "first", "1st", 1)) == both || digest(pieced, pieceOfOther) != both {
		t.Error("what is desired of the file does not follow from its pieces")
	}
	if digest(pieced, strings.Replace(pieceOfOther, "order: -5", "order: -6", 1)) != both {
		t.Error("what is desired of the file is more than its content")
	}
}

func TestFragmentsThatCannotBe(t *testing.T) {
	c := compile(t, input(t, `  resources:
  - name: nobodys
    fragment: {path: /etc/none.conf}
`, `  priority: 500
  resources:
  - name: whole
    file: {path: /etc/whole.conf, content: x}
`, `  resources:
  - name: pieced
    file: {path: /etc/whole.conf, fragments: true}
  - name: lost
    fragment: {path: /etc/whole.conf}
`, `  resources:
  - name: half
    file: {path: /etc/half.conf, fragments: true}
  - name: unknown
    expand: true
    fragment: {path: /etc/half.conf, content: "$(facts.os.codename)"}
  - name: taken
    file: {path: /etc/taken.conf, fragments: true}
  - name: shared
    fragment: {path: /etc/taken.conf, contentFrom: {configMap: {name: shared, key: piece}}}
  - name: large
    file: {path: /etc/large.conf, fragments: true}
  - name: one
    fragment: {path: /etc/large.conf, content: `+strings.Repeat("x", declare.BodyBytesMax/2)+`}
  - name: two
    fragment: {path: /etc/large.conf, content: `+strings.Repeat("y", declare.BodyBytesMax/2)+`}
`))
	for title, want := range map[string]reason.Code{
		"fragment/nobodys": reason.FragmentUntaken, "fragment/lost": reason.FragmentUntaken, "file/whole": 0, "file/large": reason.BodyTooLarge, "fragment/one": 0,
		"fragment/shared": reason.ContentNeedsServer, "file/taken": reason.ContentNeedsServer, // there is no server
	} {
		it := c.item(t, title)
		if want == 0 && it.Err != nil || want != 0 && (it.Err == nil || it.Err.Code != want) {
			t.Errorf("%s: %v, want %v", title, it.Err, want)
		}
	}
	if piece, file := c.item(t, "fragment/unknown").Err, c.item(t, "file/half").Err; piece == nil || file == nil || file.Code != piece.Code {
		t.Errorf("the piece: %v, its file: %v", piece, file)
	}
}
