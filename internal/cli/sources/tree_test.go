package sources

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
)

// repository makes one with two commits, a branch, tags and a ref as forges have them for pull requests.
func repository(t *testing.T) (url string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=Ann", "-c", "user.email=ann@example.com"}, args...)...)
		c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q", "-b", "main")
	write("one")
	git("add", ".")
	git("commit", "-qm", "first")
	git("tag", "-am", "a version", "v1.0.0")
	write("two")
	git("commit", "-qam", "second")
	git("tag", "v1.1.0")
	git("checkout", "-qb", "work")
	write("three")
	git("commit", "-qam", "third")
	git("update-ref", "refs/pull/3/head", "HEAD")
	git("checkout", "-qb", "modules")
	if err := os.WriteFile(filepath.Join(dir, ".gitmodules"), []byte("[submodule \"a\"]\n\tpath = a\n\turl = ../a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("add", ".gitmodules")
	git("commit", "-qm", "fourth")
	git("checkout", "-q", "main")
	return "file://" + dir
}

// TestFromRepository: the ref that is named is what is read, or the one that the source means, and nothing stays here.
func TestFromRepository(t *testing.T) {
	url := repository(t)
	t.Setenv("TMPDIR", t.TempDir())
	for _, c := range []struct {
		ref  string
		spec v1alpha1.SourceRef
		want string
	}{
		{"", v1alpha1.SourceRef{}, "two"},
		{"", v1alpha1.SourceRef{Branch: "work"}, "three"},
		{"", v1alpha1.SourceRef{Tag: "v1.0.0"}, "one"},
		{"", v1alpha1.SourceRef{Semver: "1.x"}, "two"},
		{"", v1alpha1.SourceRef{Semver: "~1.0.0"}, "one"},
		{"work", v1alpha1.SourceRef{}, "three"},
		{"v1.0.0", v1alpha1.SourceRef{Branch: "work"}, "one"},
		{"refs/pull/3/head", v1alpha1.SourceRef{}, "three"},
	} {
		src := &v1alpha1.Source{Spec: v1alpha1.SourceSpec{URL: url, Ref: c.spec}}
		got := ""
		err := fromRepository(t.Context(), src, c.ref, func(tree tree) error {
			text, err := fs.ReadFile(tree, "a.yaml")
			got = string(text)
			if !strings.Contains(tree.from, "by Ann") {
				t.Errorf("%q %+v: it is from %q", c.ref, c.spec, tree.from)
			}
			return err
		})
		if err != nil || got != c.want {
			t.Errorf("%q %+v: %q, %v; want %q", c.ref, c.spec, got, err, c.want)
		}
	}
	modules := &v1alpha1.Source{Spec: v1alpha1.SourceSpec{URL: url, Submodules: true}}
	if err := fromRepository(t.Context(), modules, "main", func(tree) error { return nil }); err != nil {
		t.Errorf("a commit without submodules: %v", err)
	}
	if err := fromRepository(t.Context(), modules, "modules", nil); err == nil || !strings.Contains(err.Error(), "submodules") {
		t.Errorf("a commit with submodules: %v", err)
	}
	src := &v1alpha1.Source{Spec: v1alpha1.SourceSpec{URL: url}}
	for ref, code := range map[string]reason.Code{"nothing": reason.RefUnknown, "a:b": reason.Usage, "--upload-pack=x": reason.Usage} {
		if err := fromRepository(t.Context(), src, ref, nil); reason.Of(err).Code != code && !strings.Contains(err.Error(), "no branch") {
			t.Errorf("%q: %v", ref, err)
		}
	}
	src.Spec.URL = "file:///nowhere"
	if err := fromRepository(t.Context(), src, "", nil); !reason.Is(err, reason.RepositoryUnreachable) {
		t.Errorf("nowhere: %v", err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestFromDirectory: a directory is read as it is, and no link leads out of it.
func TestFromDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("a"), 0o644), os.Symlink("/etc/passwd", filepath.Join(dir, "b.yaml"))); err != nil {
		t.Fatal(err)
	}
	err := fromDirectory(dir, func(t tree) error {
		if _, err := fs.ReadFile(t, "b.yaml"); err == nil {
			return errors.New("a link out of it is followed")
		}
		_, err := fs.ReadFile(t, "a.yaml")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := fromDirectory(filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a directory that is not there is read")
	}
}

// TestEndOf: a suspension ends at a time or after one, in whole seconds.
func TestEndOf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	for _, c := range []struct {
		length time.Duration
		until  string
		want   string // empty: it is refused
	}{
		{time.Hour, "", "2026-01-02T04:04:05Z"},
		{0, "2026-02-01T00:00:00+01:00", "2026-01-31T23:00:00Z"},
		{0, "", ""},
		{-time.Hour, "", ""},
		{time.Millisecond, "", ""},
		{0, "tomorrow", ""},
	} {
		end, err := endOf(now, c.length, c.until)
		if got := end.Format(time.RFC3339); (err != nil) != (c.want == "") || err == nil && got != c.want {
			t.Errorf("%v %q: %s, %v; want %q", c.length, c.until, got, err, c.want)
		}
	}
}
