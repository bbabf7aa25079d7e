package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// The name of a directory is not decoded a second time, out of the directories that may be read.
func TestLocalName(t *testing.T) {
	outer := t.TempDir()
	allowed := filepath.Join(outer, "allowed")
	const name = "repo # ü?"
	inside, outside := newOriginAt(t, filepath.Join(allowed, "%2e%2e", name)), newOriginAt(t, filepath.Join(outer, name))
	id, hidden := inside.commit(map[string]string{"a": "inside"}), outside.commit(map[string]string{"a": "outside"})
	g := newGit(t, Limits{})
	g.local = []string{allowed}
	r := g.Repository("k")
	const escaped = "/repo%20%23%20%C3%BC%3F"
	if _, err := r.Fetch(t.Context(), Remote{URL: "file://" + allowed + "/%252e%252e" + escaped}, Ref{ID: id}, nil); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"file://" + allowed + "/%252e%252e" + escaped, "file://" + allowed + "/%2e%2e" + escaped} {
		if _, err := r.Fetch(t.Context(), Remote{URL: url}, Ref{ID: hidden}, nil); err == nil {
			t.Errorf("%s leads out of what is allowed", url)
		}
	}
}

// Whoever may write to a repository on disk reads with it no more than his own files: by links, by alternates, by what git quotes.
func TestLocalReader(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give a repository to somebody else")
	}
	const canary = "root:c4n4ry-of-this-machine:19000"
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	private := filepath.Join(dir, "private")
	must(t, os.Mkdir(private, 0o700))
	secretFile := filepath.Join(private, "secret")
	must(t, os.WriteFile(secretFile, []byte(canary+"\n"), 0o600))
	other := newOriginAt(t, filepath.Join(private, "repo"))
	hidden := other.commit(map[string]string{"a": "hidden"})
	link := func(to, name string) func(string) error {
		return func(dir string) error { return os.Symlink(to, filepath.Join(dir, ".git", name)) }
	}
	file := func(name, content string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, ".git", name), []byte(content), 0o644) }
	}
	g := newGit(t, Limits{})
	for _, a := range []struct {
		name string
		do   func(dir string) error
	}{
		{"harmless", func(string) error { return nil }},
		{"packed-refs", link(secretFile, "packed-refs")},
		{"shallow", link(secretFile, "shallow")},
		{"alternates", file("objects/info/alternates", other.dir+"/.git/objects\n")},
		{"linked-alternates", link(secretFile, "objects/info/alternates")},
		{"configuration", file("config", "[include]\n\tpath = "+secretFile+"\n")},
		{"directory", func(dir string) error {
			if err := os.Rename(filepath.Join(dir, ".git"), filepath.Join(dir, "away")); err != nil {
				return err
			}
			return os.Symlink(other.dir+"/.git", filepath.Join(dir, ".git"))
		}},
	} {
		for _, whose := range []string{"of-somebody", "of-all"} {
			o := newOriginAt(t, filepath.Join(dir, a.name+"-"+whose))
			id := o.commit(map[string]string{"a": "own"})
			must(t, a.do(o.dir))
			must(t, filepath.WalkDir(o.dir, func(p string, d os.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case whose == "of-somebody":
					return os.Lchown(p, 4242, 4242)
				case d.IsDir():
					return os.Chmod(p, 0o777)
				}
				return nil
			}))
			quotes := func(err error) bool {
				return err != nil && strings.Contains(err.Error()+reason.Of(err).Evidence, "c4n4ry")
			}
			if r, err := readerOf(o.dir, 4711); (err == nil) != (a.name == "harmless" || a.name == "configuration") || !r.foreign || r.command != "" {
				t.Errorf("%s: for a server that is not root: %+v, %v", o.dir, r, err)
			}
			r, remote := g.Repository(o.dir), Remote{URL: "file://" + o.dir}
			_, errList := g.List(t.Context(), remote, Everything)
			_, errOwn := r.Fetch(t.Context(), remote, Ref{ID: id}, nil)
			_, errHidden := r.Fetch(t.Context(), remote, Ref{ID: hidden}, nil)
			if quotes(errList) || quotes(errOwn) || quotes(errHidden) {
				t.Errorf("%s: a file is quoted: %v, %v, %v", o.dir, errList, errOwn, errHidden)
			}
			if errHidden == nil {
				t.Errorf("%s: another repository is read", o.dir)
			}
			if a.name == "harmless" && (errList != nil || errOwn != nil) {
				t.Errorf("%s: %v, %v: %s", o.dir, errList, errOwn, reason.Of(errOwn).Evidence)
			}
		}
	}
	if r, err := readerOf(private, 0); err != nil || r != (localReader{}) {
		t.Errorf("a directory of one's own: %+v, %v", r, err)
	}
}

// A server that may not change its user reads what others write, and shows nothing of what git says about it.
func TestLocalWords(t *testing.T) {
	o := newOrigin(t)
	o.commit(map[string]string{"a": "1"})
	write(t, filepath.Join(o.dir, ".git/packed-refs"), "c4n4ry of a linked file\n")
	g := newGit(t, Limits{})
	own, err := g.target(o.remote())
	must(t, err)
	list := command{doing: "list", target: own, args: []string{"ls-remote", remoteName}}
	if err := g.run(t.Context(), list); err == nil || !strings.Contains(err.Error()+reason.Of(err).Evidence, "c4n4ry") {
		t.Errorf("git does not quote it, and this test is about nothing: %v", err)
	}
	own.reader = localReader{foreign: true}
	if err := g.run(t.Context(), list); err == nil || strings.Contains(err.Error()+reason.Of(err).Evidence, "c4n4ry") {
		t.Errorf("it is shown: %v", err)
	}
}
