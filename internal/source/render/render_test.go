package render

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/render/kustomize"
)

// TestMain makes of the test's program the child that builds kustomizations.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		if err := kustomize.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		syscall.Exit(0) // not os.Exit, before which the race detector sleeps for a second
	}
	os.Exit(m.Run())
}

// commit is a view that knows the identity of its contents, and counts what is opened.
type commit struct {
	fstest.MapFS
	opened map[string]int
}

func (c commit) BlobID(name string) (string, error) {
	f, ok := c.MapFS[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return string(f.Data), nil
}

func (c commit) Open(name string) (fs.File, error) {
	if _, ok := c.MapFS[name]; ok {
		c.opened[name]++
	}
	return c.MapFS.Open(name)
}

// ReadFile is hidden: files are read up to a limit only.
func (c commit) ReadFile(string) ([]byte, error) { return nil, errors.New("read without a limit") }

func treeOf(files map[string]string) commit {
	c := commit{fstest.MapFS{}, map[string]int{}}
	for name, text := range files {
		c.MapFS[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return c
}

func object(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
}

func renderer(t testing.TB, limits Limits) *Renderer {
	t.Helper()
	builder, err := kustomize.New(kustomize.Options{Command: []string{os.Args[0], "serve"}})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Builder: builder, Limits: limits})
}

// list names the documents of a result with their places.
func list(r *Result) string {
	var names []string
	for i := range r.Documents {
		d := &r.Documents[i]
		p := d.Place("metadata.name")
		names = append(names, fmt.Sprintf("%s@%s:%d", d.Object.GetName(), p.File, p.Line))
	}
	return strings.Join(names, " ")
}

func TestRender(t *testing.T) {
	files := map[string]string{
		"README.md":                   "text",
		"a.yaml":                      object("a") + "---\n" + object("a2"),
		"deep/er/b.json":              `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}`,
		"deep/.hidden/x.yaml":         "not: [read",
		".x.yaml":                     "not: [read",
		"draft/c.yaml":                object("c"),
		"draft/keep.yml":              object("keep"),
		".takoignore":                 "draft/c.*\n",
		"k/kustomization.yaml":        "resources: [d.yaml]\nnameSuffix: -x\nsecretGenerator:\n- name: s\n  literals: [a=b]\n  options: {disableNameSuffixHash: true}\n",
		"k/d.yaml":                    "# first\n" + object("other") + "---\n" + object("d"),
		"k/not/named.yaml":            "not: [read",
		"component/Kustomization":     "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nnamePrefix: x\n",
		"component/not.yaml":          "not: [read",
		"over/lay/kustomization.yaml": "resources: [../../base]\nnamespace: prod\ncomponents: [../../component]\n",
		"base/kustomization.yml":      "resources: [e.yaml]\n",
		"base/e.yaml":                 object("e"),
	}
	for _, c := range []struct {
		request Request
		want    string
	}{
		{Request{}, "a@a.yaml:4 a2@a.yaml:9 e@base/e.yaml:4 b@deep/er/b.json:1 keep@draft/keep.yml:4 other-x@k/d.yaml:5 d-x@k/d.yaml:10 s-x@k/kustomization.yaml:3 xe@base/e.yaml:4"},
		{Request{Path: "deep/"}, "b@deep/er/b.json:1"},
		{Request{Path: "/over/lay"}, "xe@base/e.yaml:4"},
		{Request{Path: "a.yaml"}, "a@a.yaml:4 a2@a.yaml:9"},
		{Request{Path: ".", Ignore: "*/\n!draft/\n"}, "a@a.yaml:4 a2@a.yaml:9 keep@draft/keep.yml:4"},
		{Request{Path: "draft", Ignore: "/c.yaml"}, "keep@draft/keep.yml:4"},
		{Request{Path: "draft", Ignore: "*", AllowEmpty: true}, ""},
	} {
		r, err := renderer(t, Limits{}).Render(t.Context(), treeOf(files), c.request, nil)
		if err != nil {
			t.Errorf("%+v: %v", c.request, err)
			continue
		}
		if got := list(r); got != c.want {
			t.Errorf("%+v:\n%s, want\n%s", c.request, got, c.want)
		}
	}
}

// TestFaults: every mistake of every file at once, each with its place.
func TestFaults(t *testing.T) {
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", 'b'+i, 'b'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i)
	}
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	node := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: n\nspec:\n  resources:\n  - name: a\n    file:\n      path: /a\n      content: x\n      mode: "
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // places with codes
	}{
		{"two files", map[string]string{"a.yaml": "apiVersion: v1\nkind: [\n", "b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n"}, "a.yaml:2 TK0401, b.yaml:3 TK0413"},
		{"twice", map[string]string{"a.yaml": object("x"), "b.yaml": object("x") + "  namespace: prod\n"}, "b.yaml:4 TK0430 a.yaml:4"},
		{"twice, of a base", map[string]string{"base/kustomization.yaml": "resources: [a.yaml]", "base/a.yaml": object("x"), "o/kustomization.yaml": "resources: [../base]"}, "base/a.yaml:4 TK0430 base/a.yaml:4"},
		{"empty", map[string]string{"a.yaml": "# nothing\n"}, ".:0 TK0408"},
		{"nothing", map[string]string{}, ".:0 TK0408"},
		{"bomb", map[string]string{"a.yaml": bomb}, "a.yaml:1 TK1132"},
		{"rules", map[string]string{".takoignore": "a\n" + strings.Repeat("b", 5000), "a.yaml": object("a")}, ".takoignore:2 TK0414"},
		{"kustomization", map[string]string{"k/kustomization.yaml": "resources:\n- https://example.com\n", "a.yaml": "["}, "a.yaml:1 TK0401, k/kustomization.yaml:2 TK1130"},
		{"two kustomizations", map[string]string{"k/kustomization.yaml": "namePrefix: a\n", "k/kustomization.yml": "namePrefix: b\n"}, "k:0 TK1131"},
		{"a library's mistake", map[string]string{"k/kustomization.yaml": "resources: [a.yaml]\npatches: [{path: a.yaml}, {path: b.yaml}]\n", "k/a.yaml": object("a"), "k/b.yaml": object("b")}, "k/kustomization.yaml:1 TK1131"},
		{"built", map[string]string{"kustomization.yaml": "resources: [n.yaml]", "n.yaml": "# comment\n" + node + "0999\n"}, "n.yaml:12 TK0414"},
		{"number", map[string]string{"kustomization.yaml": "resources: [n.yaml]\npatches: [{target: {kind: NodeConfig}, patch: '[{\"op\": \"add\", \"path\": \"/metadata/labels\", \"value\": {\"a\": \"b\"}}]'}]\n", "n.yaml": node + "0644\n"}, "n.yaml:11 TK0411"},
		{"a pointer", map[string]string{"a.yaml": pointer, "README": pointer, "b.yaml": object("b")}, "a.yaml:0 TK0407"},
		{"a pointer in a generator", map[string]string{"kustomization.yaml": "configMapGenerator:\n- name: a\n  files: [logo.png]\n", "logo.png": pointer}, "logo.png:0 TK0407"},
		{"a pointer for rules", map[string]string{".takoignore": pointer, "a.yaml": object("a")}, ".takoignore:0 TK0407"},
		{"a component", map[string]string{"kustomization.yaml": "kind: Component\n"}, "kustomization.yaml:1 TK1131"},
	} {
		_, err := renderer(t, Limits{}).Render(t.Context(), treeOf(c.files), Request{Namespace: "prod"}, nil)
		if got := places(err); got != c.want {
			t.Errorf("%s: %s, want %s\n%v", c.name, got, c.want, err)
		}
	}
	_, err := renderer(t, Limits{}).Render(t.Context(), treeOf(nil), Request{Path: "gone", AllowEmpty: true}, nil)
	if got := places(err); got != "gone:0 TK0407" {
		t.Errorf("a path that is gone: %s", got)
	}
}

func places(err error) string {
	var faults declare.Faults
	errors.As(err, &faults)
	var b []string
	for _, f := range faults {
		text := fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Code)
		for _, r := range f.Related {
			text += fmt.Sprintf(" %s:%d", r.File, r.Line)
		}
		b = append(b, text)
	}
	return strings.Join(b, ", ")
}

func TestLimits(t *testing.T) {
	files := map[string]string{"a/b/c.yaml": object("c"), "a/b/d.yaml": object("d"), "e.yaml": object("e")}
	for name, limits := range map[string]Limits{"entries": {Entries: 3}, "bytes": {FileBytes: 50}, "all bytes": {TreeBytes: 100}, "documents": {Documents: 2}, "depth": {Depth: 1}} {
		_, err := renderer(t, limits).Render(t.Context(), treeOf(files), Request{}, nil)
		if !reason.Is(err, reason.RenderLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := renderer(t, Limits{Entries: 5, FileBytes: 57, TreeBytes: 171, Documents: 3, Depth: 2}).Render(t.Context(), treeOf(files), Request{}, nil); err != nil {
		t.Errorf("just within: %v", err)
	}
}

// TestLinks: on a real directory, which nothing leads out of.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "d"), 0o755),
		os.WriteFile(filepath.Join(dir, "d", "a.yaml"), []byte(object("a")), 0o644),
		os.WriteFile(filepath.Join(dir, "text"), []byte(object("b")), 0o644),
		os.Symlink("text", filepath.Join(dir, "b.yaml")),
		os.Symlink("nowhere", filepath.Join(dir, "broken")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r, err := renderer(t, Limits{}).Render(t.Context(), root.FS(), Request{}, nil)
	if err != nil || list(r) != "b@b.yaml:4 a@d/a.yaml:4" {
		t.Errorf("%v (%v)", list(r), err)
	}
	for name, to := range map[string]string{"e": "d", "f.yaml": "/etc/passwd", "g.yaml": "nowhere", "h": "/etc", "i": "../..", "j": "j", "k": "/etc/hostname"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = renderer(t, Limits{}).Render(t.Context(), root.FS(), Request{}, nil)
	if got := places(err); got != "e:0 TK0414, f.yaml:0 TK0407, g.yaml:0 TK0407, h:0 TK0407, i:0 TK0407, j:0 TK0407, k:0 TK0407" {
		t.Errorf("%s\n%v", got, err)
	}
	if _, err := renderer(t, Limits{}).Render(t.Context(), root.FS(), Request{Ignore: "/e/\n/[fg].yaml\n/[hijk]"}, nil); err != nil {
		t.Errorf("with what is wrong left out: %v", err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, IgnoreFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := renderer(t, Limits{}).Render(t.Context(), root.FS(), Request{}, nil); places(err) != ".takoignore:0 TK0407" {
		t.Errorf("rules behind a link that leads nowhere: %v", err)
	}
}

// TestReused: what has not changed is neither opened nor read again, nor built again.
func TestReused(t *testing.T) {
	files := map[string]string{"a.yaml": object("a"), "b.yaml": object("b"), "k/kustomization.yaml": "resources: [c.yaml]\nnamePrefix: x-\n", "k/c.yaml": object("c")}
	r := renderer(t, Limits{})
	first, err := r.Render(t.Context(), treeOf(files), Request{}, nil)
	if err != nil || first.Read != 3 || first.Reused != 0 {
		t.Fatalf("%+v (%v)", first, err)
	}
	files["b.yaml"] = object("b2")
	view := treeOf(files)
	second, err := r.Render(t.Context(), view, Request{}, first)
	if err != nil || second.Read != 1 || second.Reused != 2 || list(second) != "a@a.yaml:4 b2@b.yaml:4 x-c@k/c.yaml:4" {
		t.Errorf("%s, %d read, %d reused (%v)", list(second), second.Read, second.Reused, err)
	}
	if view.opened["a.yaml"] > 0 && view.opened["k/c.yaml"] > 0 {
		t.Errorf("opened: %v", view.opened)
	}
	files["k/c.yaml"], files["a.yaml"] = object("d"), "["
	broken, err := r.Render(t.Context(), treeOf(files), Request{}, second)
	if places(err) != "a.yaml:1 TK0401" {
		t.Errorf("%v", err)
	}
	files["a.yaml"] = object("a")
	if last, err := r.Render(t.Context(), treeOf(files), Request{}, broken); err != nil || last.Reused != 2 || list(last) != "a@a.yaml:4 b2@b.yaml:4 x-d@k/c.yaml:4" {
		t.Errorf("%s, %d reused (%v)", list(last), last.Reused, err)
	}
	if plain, err := r.Render(t.Context(), treeOf(files).MapFS, Request{}, nil); err != nil || len(plain.Documents) != 3 {
		t.Errorf("a view without identities: %v", err)
	}
}

// TestWithout: a Renderer that has no builder says so, and one that is cancelled ends.
func TestWithout(t *testing.T) {
	_, err := New(Options{}).Render(t.Context(), treeOf(map[string]string{"kustomization.yaml": "namePrefix: a"}), Request{}, nil)
	if places(err) != "kustomization.yaml:1 TK1131" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := renderer(t, Limits{}).Render(ctx, treeOf(map[string]string{"a.yaml": object("a")}), Request{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func FuzzRender(f *testing.F) {
	f.Add("a: &x [*x]\n", "*.yaml\n!a\n")
	f.Add(object("a")+"---\n"+object("a"), "[")
	f.Fuzz(func(t *testing.T, text, rules string) {
		r, err := New(Options{}).Render(t.Context(), treeOf(map[string]string{"a.yaml": text, "d/b.yml": text, ".takoignore": rules}), Request{}, nil)
		var faults declare.Faults
		if err != nil && !errors.As(err, &faults) {
			t.Errorf("no place: %v", err)
		}
		if err == nil && len(r.Documents) == 0 {
			t.Error("nothing, and no mistake")
		}
	})
}

// benchmarkTree is one of 10,000 documents in as many files.
func benchmarkTree() map[string]string {
	files := map[string]string{}
	for i := range 10_000 {
		files[fmt.Sprintf("d%d/f%d.yaml", i%100, i)] = fmt.Sprintf("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: n%d\nspec:\n  resources:\n"+
			"  - name: motd\n    file: {path: /etc/motd, content: hello %d, mode: 0644}\n  - name: nginx\n    package: {}\n", i, i)
	}
	return files
}

func BenchmarkRender(b *testing.B) {
	files := benchmarkTree()
	r := renderer(b, Limits{})
	view := treeOf(files)
	first, err := r.Render(b.Context(), view, Request{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Render(b.Context(), view, Request{}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one-changed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			view.MapFS["d0/f0.yaml"].Data = append(view.MapFS["d0/f0.yaml"].Data, '\n')
			if _, err := r.Render(b.Context(), view, Request{}, first); err != nil {
				b.Fatal(err)
			}
		}
	})
	names, few := "resources:\n", map[string]string{}
	for i := range 1000 {
		name := fmt.Sprintf("d%d/f%d.yaml", i%100, i)
		names, few[name] = names+"- "+name+"\n", files[name]
	}
	few["kustomization.yaml"] = names
	kustomized := treeOf(few)
	b.Run("kustomized-1000", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Render(b.Context(), kustomized, Request{}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
