package observe

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/reason"
)

// site is a directory with the real type of files.
type site struct {
	dir   string
	files *file.Type
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	root, err := disk.OpenRoot(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	s.files = file.New(file.Options{Root: root})
	return s
}

func (s *site) look(t *testing.T, r declare.Resource) ([]Difference, error) {
	t.Helper()
	clean := func(text string) string { return strings.ReplaceAll(text, "hunter2", "[secret]") }
	return Resource(context.Background(), s.files, host.Declared{Title: "x", Body: func() (declare.Resource, error) { return r, nil }}, clean)
}

// TestFile: of a file that differs its text is told where it may be, and otherwise why it is not.
func TestFile(t *testing.T) {
	for _, c := range []struct {
		name, have     string
		mode           os.FileMode
		declared       declare.File
		field, content string
		hidden         string
		differences    int
	}{
		{name: "as declared", have: "a\n", mode: 0o644, declared: declare.File{Content: "a\n"}},
		{name: "changed", have: "theirs\n", mode: 0o644, declared: declare.File{Content: "a\n"}, field: "content", content: "theirs\n", differences: 1},
		{name: "emptied", have: "", mode: 0o644, declared: declare.File{Content: "a\n"}, field: "content", differences: 1},
		{name: "mode", have: "a\n", mode: 0o755, declared: declare.File{Content: "a\n"}, field: "mode", differences: 1},
		{name: "declared private", have: "theirs\n", mode: 0o644, declared: declare.File{Content: "a\n", Mode: "0600"}, field: "content", hidden: "private", differences: 2},
		{name: "made private", have: "theirs\n", mode: 0o600, declared: declare.File{Content: "a\n"}, field: "content", hidden: "private", differences: 2},
		{name: "declared for a group", have: "theirs\n", mode: 0o644, declared: declare.File{Content: "a\n", Mode: "0640"}, field: "content", hidden: "not everybody", differences: 2},
		{name: "made a group's", have: "theirs\n", mode: 0o640, declared: declare.File{Content: "a\n"}, field: "content", hidden: "not everybody", differences: 2},
		{name: "of a secret", have: "theirs\n", mode: 0o644, field: "content", hidden: "private", differences: 2,
			declared: declare.File{Content: "a\n", ContentFrom: &declare.ContentSource{Secret: &declare.KeySelector{Name: "db", Key: "password"}}}},
		{name: "with a secret in it", have: "password=hunter2\n", mode: 0o644, declared: declare.File{Content: "a\n"}, field: "content", hidden: "Secret", differences: 1},
		{name: "no text", have: "\xff\xfe", mode: 0o644, declared: declare.File{Content: "a\n"}, field: "content", hidden: "no text", differences: 1},
		{name: "as long as is told", have: strings.Repeat("x", contentMax), mode: 0o644, declared: declare.File{Content: "a\n"}, field: "content",
			content: strings.Repeat("x", contentMax), differences: 1},
		{name: "longer", have: strings.Repeat("x", contentMax+1), mode: 0o644, declared: declare.File{Content: "a\n"}, field: "content", hidden: "256 KiB", differences: 1},
		{name: "much longer", have: strings.Repeat("x", 2<<20), mode: 0o644, declared: declare.File{Content: "a\n"}, field: "content", hidden: "too long", differences: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			path := filepath.Join(s.dir, "f")
			if err := os.WriteFile(path, []byte(c.have), c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			c.declared.Path = "/f"
			got, err := s.look(t, declare.Resource{Name: "f", File: &c.declared})
			if err != nil || len(got) != c.differences {
				t.Fatalf("%d differences (%v), want %d: %+v", len(got), err, c.differences, got)
			}
			if len(got) == 0 {
				return
			}
			d := got[0]
			told := ""
			if d.Content != nil {
				told = *d.Content
			}
			if d.Field != c.field || told != c.content || (d.Hidden == "") != (c.hidden == "") || !strings.Contains(d.Hidden, c.hidden) {
				t.Errorf("%s with %d bytes, hidden because %q", d.Field, len(told), d.Hidden)
			}
			if told == "" && c.hidden == "" && c.field == "content" && d.Content == nil {
				t.Error("an empty text is not told")
			}
		})
	}
}

// TestOthers: what is not a file is told in few words.
func TestOthers(t *testing.T) {
	s := newSite(t)
	if err := os.Symlink("theirs", filepath.Join(s.dir, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := s.look(t, declare.Resource{Name: "link", Symlink: &declare.Symlink{Path: "/link", Target: "ours"}})
	if err != nil || len(got) != 1 || got[0] != (Difference{Field: "target", Have: "theirs", Want: "ours"}) {
		t.Errorf("a symlink: %+v (%v)", got, err)
	}
	got, err = s.look(t, declare.Resource{Name: "gone", File: &declare.File{Path: "/gone", Content: "a\n"}})
	if err != nil || len(got) == 0 || got[0].Field != "" || got[0].Have != "absent" {
		t.Errorf("nothing at all: %+v (%v)", got, err)
	}
	for _, d := range got {
		if d.Content != nil || d.Hidden != "" {
			t.Errorf("of nothing: %+v", d)
		}
	}
	_, err = s.look(t, declare.Resource{Name: "link", File: &declare.File{Path: "/link", Content: "a\n"}})
	if !reason.Is(err, reason.TypeInTheWay) || !strings.Contains(Problem(err), reason.TypeInTheWay.String()+": ") {
		t.Errorf("another type: %v", err)
	}
}

// undecided is a type that cannot say without running something.
type undecided struct{ host.Type }

func (undecided) Bind(context.Context, host.Declared) (host.Resource, error) { return nil, nil }

func (undecided) Check(context.Context, []host.Resource, host.Depth) []host.Plan {
	return []host.Plan{{Unknown: "cannot say without running: hunter2"}}
}

func TestUnknown(t *testing.T) {
	d := host.Declared{Title: "exec/x", Body: func() (declare.Resource, error) { return declare.Resource{}, nil }}
	_, err := Resource(t.Context(), undecided{}, d, func(text string) string { return strings.ReplaceAll(text, "hunter2", "[secret]") })
	if !reason.Is(err, reason.NotChecked) || !strings.HasSuffix(Problem(err), "cannot say without running: [secret]") {
		t.Errorf("%v", err)
	}
}
