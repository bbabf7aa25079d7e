package git

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"tako.dev/tako/internal/reason"
)

func TestListAndFetch(t *testing.T) {
	o := newOrigin(t)
	one := o.commit(map[string]string{"apps/web.yaml": "kind: Web\n", "README": "hello\n"})
	o.git("tag", "light")
	o.git("tag", "-a", "v1.0.0", "-m", "first release")
	o.git("branch", "other")
	g := newGit(t, Limits{})
	refs, err := g.List(t.Context(), o.remote(), Everything)
	if err != nil {
		t.Fatal(err)
	}
	if head := find(t, refs, "HEAD"); head.Target != "refs/heads/main" || head.ID != one {
		t.Errorf("HEAD is %+v", head)
	}
	tag := find(t, refs, "refs/tags/v1.0.0")
	if tag.Peeled != one || tag.ID == one || tag.Commit() != one || find(t, refs, "refs/tags/light").Commit() != one {
		t.Errorf("tag is %+v", tag)
	}
	if some, err := g.List(t.Context(), o.remote(), Tags); err != nil || len(some) != 2 {
		t.Errorf("tags are %v (%v)", some, err)
	}

	r := g.Repository("ns/name")
	c, err := r.Fetch(t.Context(), o.remote(), find(t, refs, "refs/heads/main"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != one || c.Author.Name != "Ada" || c.Committer.Email != "bob@example.org" || c.Author.Time.Unix() != 1700000000 || c.Subject != "change 2 files" || len(c.Parents) != 0 || !c.Tree.Valid() {
		t.Errorf("commit is %+v", c)
	}
	want := map[string]string{"apps/web.yaml": "kind: Web\n", "README": "hello\n"}
	if got := files(t, r, c.ID); !maps.Equal(got, want) {
		t.Errorf("files are %v", got)
	}
	c, err = r.Fetch(t.Context(), o.remote(), tag, nil)
	if err != nil || c.Tag == nil || c.Tag.Name != "v1.0.0" || c.Tag.Subject != "first release" || c.Tag.ID != tag.ID || c.ID != one {
		t.Errorf("tagged commit is %+v, %v", c, err)
	}
	if entries, err := os.ReadDir(g.scratchDir()); err != nil || len(entries) != 0 {
		t.Errorf("scratch has %v (%v)", entries, err)
	}
}

// What is there for the same paths costs no network: the remote is gone, and it works.
func TestFetchedBefore(t *testing.T) {
	o := newOrigin(t)
	id := o.commit(map[string]string{"a": "1"})
	g := newGit(t, Limits{})
	r := g.Repository("k")
	ref := Ref{Name: "refs/heads/main", ID: id}
	if _, err := r.Fetch(t.Context(), o.remote(), ref, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(o.dir, ".git"), filepath.Join(o.dir, "away")); err != nil {
		t.Fatal(err)
	}
	if c, err := r.Fetch(t.Context(), o.remote(), ref, nil); err != nil || c.ID != id {
		t.Errorf("a second fetch: %v", err)
	}
	_, err := r.Fetch(t.Context(), o.remote(), ref, []string{"a"})
	if !reason.Is(err, reason.RepositoryUnknown) {
		t.Errorf("other paths without the remote: %v", err)
	}
	if got := files(t, r, id); got["a"] != "1" {
		t.Errorf("after a failed fetch the files are %v", got)
	}
}

// Only what is below the paths comes, where the server can filter.
func TestPaths(t *testing.T) {
	for _, filters := range []string{"true", "false"} {
		t.Run("filter "+filters, func(t *testing.T) {
			o := newOrigin(t)
			o.git("config", "uploadpack.allowFilter", filters)
			id := o.commit(map[string]string{"apps/a.yaml": "a", "apps/deep/b.yaml": "b", "appsx/c.yaml": "c", "other/d.yaml": "d", "-z": "dash"})
			g := newGit(t, Limits{})
			r := g.Repository("k")
			if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, []string{"./apps/", "apps/deep", "-z"}); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"apps/a.yaml": "a", "apps/deep/b.yaml": "b", "-z": "dash"}
			if got := files(t, r, id, "apps", "-z"); !maps.Equal(got, want) {
				t.Errorf("files are %v", got)
			}
			err := r.Tree(t.Context(), Commit{ID: id}, nil, func(tree *Tree) error {
				_, err := tree.ReadFile("other/d.yaml")
				if filters == "true" && !reason.Is(err, reason.RepositoryLimit) || filters == "false" && err != nil {
					t.Errorf("a file outside of the paths: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, []string{"none"}); !reason.Is(err, reason.RefUnknown) {
				t.Errorf("a path that is not there: %v", err)
			}
			if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, []string{"../etc"}); !reason.Is(err, reason.RefUnknown) {
				t.Errorf("a path that leads out: %v", err)
			}
		})
	}
}

// A force push, a revert, an orphan branch and a deleted branch need nothing special.
func TestHistoryMoves(t *testing.T) {
	o := newOrigin(t)
	one := o.commit(map[string]string{"a": "1", "b": "1"})
	g := newGit(t, Limits{})
	r := g.Repository("k")
	fetch := func(want ID) {
		t.Helper()
		refs, err := g.List(t.Context(), o.remote(), Branches)
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Fetch(t.Context(), o.remote(), find(t, refs, "refs/heads/main"), nil)
		if err != nil || c.ID != want {
			t.Fatalf("got %s, want %s: %v", c.ID, want, err)
		}
	}
	fetch(one)
	two := o.commit(map[string]string{"a": "2"})
	fetch(two)
	o.git("reset", "-q", "--hard", string(one))
	three := o.commit(map[string]string{"b": "", "c": "3"})
	fetch(three)
	if got := files(t, r, three); !maps.Equal(got, map[string]string{"a": "1", "c": "3"}) {
		t.Errorf("after a force push: %v", got)
	}
	o.git("revert", "--no-edit", "HEAD")
	fetch(o.head())
	o.git("checkout", "-q", "--orphan", "fresh")
	four := o.commit(map[string]string{"d": "4"})
	o.git("branch", "-M", "fresh", "main")
	fetch(four)
	if got := files(t, r, one); got["a"] != "1" {
		t.Errorf("an older revision: %v", got)
	}
}

func TestRefsThatAreNotThere(t *testing.T) {
	o := newOrigin(t)
	g := newGit(t, Limits{})
	if refs, err := g.List(t.Context(), o.remote(), Everything); err != nil || len(refs) != 0 {
		t.Errorf("an empty repository: %v, %v", refs, err)
	}
	id := o.commit(map[string]string{"a": "1"})
	blob := ID(o.git("rev-parse", "HEAD:a"))
	o.git("tag", "-a", "t", "-m", "m")
	o.git("update-ref", "refs/tags/renamed", o.git("rev-parse", "refs/tags/t"))
	o.git("update-ref", "refs/tags/blob", string(blob))
	tests := []struct {
		name string
		ref  Ref
		code reason.Code
	}{
		{"no such id", Ref{ID: "1111111111111111111111111111111111111111"}, reason.RefUnknown},
		{"no such branch", Ref{Name: "refs/heads/none"}, reason.RefUnknown},
		{"nothing", Ref{}, reason.RefUnknown},
		{"short id", Ref{ID: id[:8]}, reason.RefUnknown},
		{"option", Ref{Name: "--upload-pack=touch x"}, reason.RefUnknown},
		{"two refspecs", Ref{Name: "refs/heads/a:refs/heads/b"}, reason.RefUnknown},
		{"pattern", Ref{Name: "refs/heads/*"}, reason.RefUnknown},
		{"line end", Ref{Name: "refs/heads/a\nb"}, reason.RefUnknown},
		{"tag of another name", Ref{Name: "refs/tags/renamed"}, reason.RepositoryContent},
		{"tag of a file", Ref{Name: "refs/tags/blob"}, reason.RepositoryContent},
		{"other kind of ref", Ref{Name: "refs/notes/x"}, reason.RefUnknown},
	}
	r := g.Repository("k")
	for _, tt := range tests {
		_, err := r.Fetch(t.Context(), o.remote(), tt.ref, nil)
		if !reason.Is(err, tt.code) || reason.Of(err).Hint == "" {
			t.Errorf("%s: %v (%s)", tt.name, err, reason.Of(err).Code)
		}
	}
}

// A server that gives no commit by its id is asked for the name.
func TestFetchByName(t *testing.T) {
	o := newOrigin(t)
	o.git("config", "uploadpack.allowAnySHA1InWant", "false")
	o.git("config", "protocol.version", "0")
	one := o.commit(map[string]string{"a": "1"})
	two := o.commit(map[string]string{"a": "2"})
	g := newGit(t, Limits{})
	g.program = withProtocol0(t, g.program)
	c, err := g.Repository("k").Fetch(t.Context(), o.remote(), Ref{Name: "refs/heads/main", ID: one}, nil)
	if err != nil || c.ID != two {
		t.Errorf("got %s, want the tip %s: %v", c.ID, two, err)
	}
	_, err = g.Repository("k2").Fetch(t.Context(), o.remote(), Ref{ID: one}, nil)
	if !reason.Is(err, reason.RefUnknown) {
		t.Errorf("only an id: %v", err)
	}
}

// withProtocol0 makes a git program that speaks the first version of the protocol, in which ids are refused.
func withProtocol0(t *testing.T, program string) string {
	name := filepath.Join(t.TempDir(), "git")
	write(t, name, "#!/bin/sh\nexec "+program+" -c protocol.version=0 \"$@\"\n")
	if err := os.Chmod(name, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSHA256(t *testing.T) {
	o := newOrigin(t, "--object-format=sha256")
	id := o.commit(map[string]string{"a": "1"})
	g := newGit(t, Limits{})
	r := g.Repository("k")
	if len(id) != 64 {
		t.Fatalf("id is %s", id)
	}
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{Name: "refs/heads/main", ID: id}, nil); err != nil {
		t.Fatal(err)
	}
	if got := files(t, r, id); got["a"] != "1" {
		t.Errorf("files are %v", got)
	}
}

// The view behaves as the standard library wants of file systems.
func TestView(t *testing.T) {
	o := newOrigin(t)
	write(t, filepath.Join(o.dir, "base/a.yaml"), "a")
	write(t, filepath.Join(o.dir, "run.sh"), "x")
	must(t, os.Chmod(filepath.Join(o.dir, "run.sh"), 0o755))
	must(t, os.Mkdir(filepath.Join(o.dir, "over"), 0o755))
	must(t, os.Symlink("../base", filepath.Join(o.dir, "over/dir")))
	must(t, os.Symlink("dir/a.yaml", filepath.Join(o.dir, "over/link")))
	id := o.commit(nil)
	g := newGit(t, Limits{})
	r := g.Repository("k")
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); err != nil {
		t.Fatal(err)
	}
	err := r.Tree(t.Context(), Commit{ID: id}, nil, func(tree *Tree) error {
		for _, name := range []string{"over/link", "over/dir/a.yaml", "base/a.yaml"} {
			if content, err := fs.ReadFile(tree, name); err != nil || string(content) != "a" {
				t.Errorf("%s: %q, %v", name, content, err)
			}
		}
		if info, err := tree.Stat("run.sh"); err != nil || info.Mode() != 0o755 || info.Size() != 1 || info.Sys().(File).ID == "" {
			t.Errorf("run.sh: %+v, %v", info, err)
		}
		entries, err := tree.ReadDir("over")
		if err != nil || len(entries) != 2 || entries[0].Name() != "dir" || entries[0].Type() != fs.ModeSymlink {
			t.Errorf("over: %v, %v", entries, err)
		}
		for _, name := range []string{"over/none", "base/a.yaml/x", "none"} {
			if _, err := tree.Stat(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// fstest compares Stat with what ReadDir says, which differs for symlinks; so it sees a tree without.
	err = r.Tree(t.Context(), Commit{ID: id}, []string{"base", "run.sh"}, func(tree *Tree) error { return fstest.TestFS(tree, "base/a.yaml", "run.sh") })
	if err != nil {
		t.Error(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSweep(t *testing.T) {
	o := newOrigin(t)
	id := o.commit(map[string]string{"a": "1"})
	g := newGit(t, Limits{})
	for _, key := range []string{"keep", "drop", "removed"} {
		if _, err := g.Repository(key).Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); err != nil {
			t.Fatal(err)
		}
	}
	must(t, g.Repository("removed").Remove())
	must(t, os.Mkdir(g.Repository("keep").dir+newSuffix, 0o700))
	if n, err := g.Sweep(t.Context(), []string{"keep", "never seen"}); err != nil || n != 2 {
		t.Errorf("swept %d, %v; want a cache and a directory that was being filled", n, err)
	}
	left, err := os.ReadDir(g.cachesDir())
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(g.Repository("keep").dir) {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := g.Repository("drop").Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); err != nil {
		t.Errorf("after the sweep: %v", err)
	}
}

func TestNew(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		code reason.Code
	}{
		{"relative", Options{Dir: "x"}, reason.StateUnwritable},
		{"no program", Options{Dir: t.TempDir(), Program: "/nonexistent/git"}, reason.GitUnusable},
		{"no such directory", Options{Dir: t.TempDir(), LocalDirs: []string{"/nonexistent"}}, reason.RepositoryAddress},
		{"in a file", Options{Dir: "/dev/null/x"}, reason.StateUnwritable},
	}
	for _, tt := range tests {
		if _, err := New(tt.o); !reason.Is(err, tt.code) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	g := newGit(t, Limits{})
	known := []byte("host ssh-ed25519 AAAA")
	const canary = "c4n4ry"
	tests := []struct {
		remote Remote
		ok     bool
	}{
		{Remote{URL: "https://example.org/a.git"}, true},
		{Remote{URL: "https://example.org:8443/a.git", Auth: Auth{Username: "u", Password: canary}}, true},
		{Remote{URL: "https://example.org/a.git", Auth: Auth{BearerToken: canary}}, true},
		{Remote{URL: "http://example.org/a.git", PlainHTTP: true}, true},
		{Remote{URL: "ssh://git@example.org:2222/a.git", Auth: Auth{KnownHosts: known}}, true},
		{Remote{URL: "git@example.org:team/a.git", Auth: Auth{KnownHosts: known}}, true},
		{Remote{URL: "http://example.org/a.git"}, false},
		{Remote{URL: "http://example.org/a.git", PlainHTTP: true, Auth: Auth{BearerToken: canary}}, false},
		{Remote{URL: "https://u:" + canary + "@example.org/a.git"}, false},
		{Remote{URL: "https://" + canary + "@example.org/a.git"}, false},
		{Remote{URL: "https://example.org/a.git?token=" + canary}, false},
		{Remote{URL: "https://u:" + canary + "%zz@example.org/"}, false},
		{Remote{URL: "https:///a.git"}, false},
		{Remote{URL: "https://example.org/a.git", Auth: Auth{Identity: []byte(canary)}}, false},
		{Remote{URL: "https://example.org/a.git", Auth: Auth{Username: "u", Password: canary + "\n"}}, false},
		{Remote{URL: "https://example.org/a.git", Auth: Auth{Username: "a:b", Password: canary}}, false},
		{Remote{URL: "https://example.org/a.git", Auth: Auth{BearerToken: canary, Password: canary}}, false},
		{Remote{URL: "git@example.org:team/a.git"}, false},
		{Remote{URL: "ssh://git:" + canary + "@example.org/a.git", Auth: Auth{KnownHosts: known}}, false},
		{Remote{URL: "ssh://-oProxyCommand=x/a.git", Auth: Auth{KnownHosts: known}}, false},
		{Remote{URL: "ssh://-l@example.org/a.git", Auth: Auth{KnownHosts: known}}, false},
		{Remote{URL: "git@-oProxyCommand=x:a", Auth: Auth{KnownHosts: known}}, false},
		{Remote{URL: "git@example.org:--upload-pack=x", Auth: Auth{KnownHosts: known}}, false},
		{Remote{URL: "git@example.org:a", Auth: Auth{KnownHosts: known, Username: "u", Password: canary}}, false},
		{Remote{URL: "ext::sh -c touch% x"}, false},
		{Remote{URL: "ext::sh"}, false},
		{Remote{URL: "fd::17"}, false},
		{Remote{URL: "git://example.org/a"}, false},
		{Remote{URL: "ftp://example.org/a"}, false},
		{Remote{URL: "/etc"}, false},
		{Remote{URL: "../x"}, false},
		{Remote{URL: "--upload-pack=x"}, false},
		{Remote{URL: "https://example.org/\nurl = x"}, false},
		{Remote{URL: "https://example.org/" + strings.Repeat("a", urlMax)}, false},
		{Remote{URL: "file:///etc"}, false},
		{Remote{URL: "file://host" + os.TempDir()}, false},
		{Remote{URL: "file://" + os.TempDir() + "/../etc"}, false},
		{Remote{URL: ""}, false},
	}
	for _, tt := range tests {
		_, err := g.target(tt.remote)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.remote.URL, err)
		}
		if err == nil {
			continue
		}
		e := reason.Of(err)
		if e.Code != reason.RepositoryAddress && e.Code != reason.RepositoryUntrusted || e.Hint == "" {
			t.Errorf("%s: %v (%s, hint %q)", tt.remote.URL, err, e.Code, e.Hint)
		}
		if text := err.Error() + e.Hint; strings.Contains(text, canary) {
			t.Errorf("%s: the error shows the secret: %s", tt.remote.URL, text)
		}
	}
}
