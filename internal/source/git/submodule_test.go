package git

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// family is repositories beside each other, served over http too, with a list of those that were asked for something.
type family struct {
	*testing.T
	dir    string
	server *httptest.Server

	mu    sync.Mutex
	asked map[string]int
}

func newFamily(t *testing.T) *family {
	f := &family{T: t, dir: t.TempDir(), asked: map[string]int{}}
	first := f.repository("first")
	next := &served{next: backend(first)}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked[strings.Split(strings.Trim(r.URL.Path, "/"), "/")[0]]++
		f.mu.Unlock()
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(f.server.Close)
	return f
}

func (f *family) repository(name string) *origin {
	dir := filepath.Join(f.dir, name)
	if isDirectory(dir) {
		return &origin{t: f, dir: dir}
	}
	return newOriginAt(f, dir)
}

// requests counts what was asked of a repository over http since the last time.
func (f *family) requests(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.asked[name]
	f.asked[name] = 0
	return n
}

// part is a submodule to be committed: the path of it, its commit and its url.
type part struct {
	path string
	id   ID
	url  string
}

// with commits a file and submodules at the root.
func (o *origin) with(branch, content string, parts ...part) ID {
	o.t.Helper()
	entries := []string{"100644 " + string(o.object("blob", []byte(content))) + "\town.yaml"}
	modules := ""
	for i, p := range parts {
		entries = append(entries, "160000 "+string(p.id)+"\t"+p.path)
		modules += fmt.Sprintf("[submodule \"m%d\"]\n\tpath = %s\n\turl = %s\n", i, p.path, p.url)
	}
	if len(parts) > 0 {
		entries = append(entries, "100644 "+string(o.object("blob", []byte(modules)))+"\t.gitmodules")
	}
	return o.commitTree(branch, o.tree(entries...))
}

func remoteOf(f *family, name string, submodules bool) (file, http Remote) {
	return Remote{URL: "file://" + f.dir + "/" + name, Submodules: submodules}, Remote{URL: f.server.URL + "/" + name, PlainHTTP: true, Submodules: submodules}
}

// all reads every file of a fetched commit, but for those that say where submodules are.
func all(t *testing.T, r *Repository, c Commit, paths ...string) (map[string]string, []Refusal) {
	t.Helper()
	got := map[string]string{}
	var refused []Refusal
	err := r.Tree(t.Context(), c, paths, func(tree *Tree) error {
		refused = tree.Refused()
		for _, f := range tree.Files() {
			if path.Base(f.Name) == modulesName {
				continue
			}
			content, err := tree.ReadFile(f.Name)
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			got[f.Name] = string(content)
		}
		return nil
	})
	must(t, err)
	return got, refused
}

// What submodules hold is there as if it stood in the tree, three deep and no deeper; without being asked for, nothing is fetched.
func TestSubmodules(t *testing.T) {
	f := newFamily(t)
	names := []string{"fourth", "third", "second", "first", "top"}
	var id ID
	for i, name := range names {
		o := f.repository(name)
		if i == 0 {
			id = o.with("main", "of "+name)
			continue
		}
		url := "../" + names[i-1]
		if name == "second" {
			url = f.server.URL + "/third" // a whole address, of the same server
		}
		id = o.with("main", "of "+name, part{"sub", id, url})
	}
	g := newGit(t, Limits{})
	_, asked := remoteOf(f, "top", true)
	_, plain := remoteOf(f, "top", false)
	r := g.Repository("k")
	c, err := r.Fetch(t.Context(), plain, Ref{ID: id}, nil)
	must(t, err)
	got, refused := all(t, r, c)
	if len(got) != 1 || len(refused) != 1 || refused[0].Name != "sub" || !strings.Contains(reason.Of(refused[0].Err).Hint, "spec.submodules") || f.requests("first") != 0 {
		t.Errorf("not asked for: %v, %v, %d requests", got, refused, f.requests("first"))
	}
	c, err = r.Fetch(t.Context(), asked, Ref{ID: id}, nil)
	must(t, err)
	got, refused = all(t, r, c)
	want := map[string]string{"own.yaml": "of top", "sub/own.yaml": "of first", "sub/sub/own.yaml": "of second", "sub/sub/sub/own.yaml": "of third"}
	if !maps.Equal(got, want) || len(refused) != 1 || refused[0].Name != "sub/sub/sub/sub" || f.requests("fourth") != 0 {
		t.Errorf("files %v, refused %v", got, refused)
	}
	for _, name := range names {
		f.requests(name)
	}
	if c, err = r.Fetch(t.Context(), asked, Ref{ID: id}, nil); err != nil || f.requests("top")+f.requests("first")+f.requests("third") != 0 {
		t.Errorf("what is there already was asked for again: %v", err)
	}
	if again, _ := all(t, r, c); !maps.Equal(again, want) {
		t.Errorf("the second time: %v", again)
	}
	if err := r.Tree(t.Context(), Commit{ID: c.ID}, nil, func(tree *Tree) error {
		_, err := tree.ReadFile("sub/own.yaml")
		return err
	}); !reason.Is(err, reason.RepositoryContent) {
		t.Errorf("a commit that was fetched without: %v", err)
	}
}

// Only what is below the paths comes, also within a submodule; a symlink leads across as in a checkout.
func TestSubmodulePaths(t *testing.T) {
	f := newFamily(t)
	sub := f.repository("sub")
	inner := sub.commit(map[string]string{"deep/a.yaml": "a", "deep/er/b.yaml": "b", "other.yaml": "c"})
	f.repository("unused").with("main", "unused")
	top := f.repository("top")
	tree := top.tree("160000 "+string(inner)+"\tsub", "120000 "+string(top.object("blob", []byte("sub/deep/a.yaml")))+"\tlink")
	modules := top.object("blob", []byte("[submodule \"x\"]\n\tpath = apps/sub\n\turl = ../sub/\n[include]\n\tpath = /etc/passwd\n"))
	id := top.commitTree("main", top.tree("40000 "+string(tree)+"\tapps", "160000 1234567890123456789012345678901234567890\tunused", "100644 "+string(modules)+"\t.gitmodules"))
	g := newGit(t, Limits{})
	file, overHTTP := remoteOf(f, "top", true)
	for _, remote := range []Remote{file, overHTTP} {
		r := g.Repository(remote.URL)
		c, err := r.Fetch(t.Context(), remote, Ref{ID: id}, []string{"apps"})
		must(t, err)
		if got, refused := all(t, r, c, "apps"); len(refused) != 0 || got["apps/sub/deep/er/b.yaml"] != "b" || got["apps/link"] != "a" || len(got) != 4 {
			t.Errorf("apps: %v, %v", got, refused)
		}
		inside := []string{"apps/sub/deep"}
		if c, err = r.Fetch(t.Context(), remote, Ref{ID: id}, inside); err != nil {
			t.Fatal(err)
		}
		if got, _ := all(t, r, c, inside...); !maps.Equal(got, map[string]string{"apps/sub/deep/a.yaml": "a", "apps/sub/deep/er/b.yaml": "b"}) {
			t.Errorf("inside of a submodule: %v", got)
		}
		if err := r.Tree(t.Context(), Commit{ID: id}, inside, func(*Tree) error { return nil }); !reason.Is(err, reason.RepositoryContent) || !strings.Contains(reason.Of(err).Hint, "spec.submodules") {
			t.Errorf("inside of a submodule that was not asked for: %v", err)
		}
		err = r.Tree(t.Context(), Commit{ID: id}, []string{"apps/sub"}, func(tree *Tree) error {
			_, err := tree.Stat("apps/sub")
			return err
		})
		if !reason.Is(err, reason.RepositoryContent) {
			t.Errorf("a submodule alone that was not asked for: %v", err)
		}
		for _, p := range []string{"apps/sub/none", "apps/none/x", "none/x"} {
			c, err := r.Fetch(t.Context(), remote, Ref{ID: id}, []string{p})
			if err == nil {
				err = r.Tree(t.Context(), c, []string{p}, func(*Tree) error { return nil })
			}
			if !reason.Is(err, reason.RefUnknown) || !strings.Contains(err.Error(), "has no such path") {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

// What a submodule may not be is refused by its name, and does not keep the rest from being read.
func TestSubmodulesRefused(t *testing.T) {
	f := newFamily(t)
	inner := f.repository("sub").with("main", "inner")
	top := f.repository("top")
	secretive := newOrigin(t) // beside the directory that is allowed
	hidden := secretive.commit(map[string]string{"own.yaml": "hidden"})
	g := newGit(t, Limits{})
	g.local = []string{f.dir}
	file, overHTTP := remoteOf(f, "top", true)
	const gone = ID("1234567890123456789012345678901234567890")
	tests := []struct {
		name   string
		remote Remote
		part   part
		code   reason.Code
	}{
		{"another server", overHTTP, part{"s", inner, "http://127.0.0.1:1/sub"}, reason.RepositoryContent},
		{"another protocol", overHTTP, part{"s", inner, "file://" + f.dir + "/sub"}, reason.RepositoryContent},
		{"beside what is allowed", file, part{"s", hidden, "file://" + secretive.dir}, reason.RepositoryContent},
		{"upwards to what is not allowed", file, part{"s", hidden, "../../" + filepath.Base(filepath.Dir(secretive.dir)) + "/repo.git"}, reason.RepositoryContent},
		{"a path of this machine", file, part{"s", inner, f.dir + "/sub"}, reason.RepositoryContent},
		{"above the server", overHTTP, part{"s", inner, "../../../sub"}, reason.RepositoryContent},
		{"no such repository", overHTTP, part{"s", inner, "../none"}, reason.RepositoryUnknown},
		{"no such commit", overHTTP, part{"s", gone, "../sub"}, reason.RefUnknown},
		{"no such commit on disk", file, part{"s", gone, "../sub"}, reason.RefUnknown},
	}
	for _, tt := range tests {
		id := top.with("main", "top", tt.part)
		r := g.Repository(tt.name)
		for range 2 { // the second is from what is there
			c, err := r.Fetch(t.Context(), tt.remote, Ref{ID: id}, nil)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				break
			}
			got, refused := all(t, r, c)
			if len(got) != 1 || len(refused) != 1 || refused[0].Name != "s" || !reason.Is(refused[0].Err, tt.code) || reason.Of(refused[0].Err).Hint == "" || !strings.Contains(refused[0].Err.Error(), "submodule") {
				t.Errorf("%s: files %v, refused %v", tt.name, got, refused)
			}
			if err := r.Tree(t.Context(), c, nil, func(tree *Tree) error {
				_, err := tree.ReadFile("s/own.yaml")
				return err
			}); !reason.Is(err, tt.code) {
				t.Errorf("%s: what is read of it: %v", tt.name, err)
			}
		}
	}
	for name, modules := range map[string]string{"no modules file": "", "nothing about it": "[submodule \"x\"]\n\tpath = x\n\turl = ../sub\n", "twice": "[submodule \"x\"]\n\tpath = s\n\turl = ext::sh\n[submodule \"y\"]\n\tpath = s\n\turl = ../sub\n"} {
		entries := []string{"160000 " + string(inner) + "\ts"}
		if modules != "" {
			entries = append(entries, "100644 "+string(top.object("blob", []byte(modules)))+"\t.gitmodules")
		}
		r := g.Repository(name)
		c, err := r.Fetch(t.Context(), overHTTP, Ref{ID: top.commitTree("main", top.tree(entries...))}, nil)
		must(t, err)
		if got, refused := all(t, r, c); len(got) != 0 || len(refused) != 1 || !reason.Is(refused[0].Err, reason.RepositoryContent) {
			t.Errorf("%s: files %v, refused %v", name, got, refused)
		}
	}
}

// A server of the first protocol gives tips alone, and what to do is said; one that is away is no refusal, but an error to try again.
func TestSubmoduleServers(t *testing.T) {
	f := newFamily(t)
	sub := f.repository("sub")
	old := sub.with("main", "old")
	sub.commitTree("main", sub.tree("100644 "+string(sub.object("blob", []byte("new")))+"\town.yaml"))
	sub.git("config", "uploadpack.allowAnySHA1InWant", "false")
	top := f.repository("top")
	id := top.with("main", "top", part{"s", old, "../sub"})
	g := newGit(t, Limits{})
	g.program = withProtocol0(t, g.program)
	_, remote := remoteOf(f, "top", true)
	r := g.Repository("k")
	c, err := r.Fetch(t.Context(), remote, Ref{Name: "refs/heads/main", ID: id}, nil)
	must(t, err)
	if _, refused := all(t, r, c); len(refused) != 1 || !reason.Is(refused[0].Err, reason.RefUnknown) || !strings.Contains(reason.Of(refused[0].Err).Hint, "allowReachableSHA1InWant") {
		t.Errorf("a commit that is no tip: %v", refused)
	}
	sub.git("config", "uploadpack.allowReachableSHA1InWant", "true")
	sub.git("update-ref", "refs/heads/kept", string(old))
	if c, err = r.Fetch(t.Context(), remote, Ref{Name: "refs/heads/main", ID: id}, nil); err != nil {
		t.Fatal(err)
	}
	if got, refused := all(t, r, c); got["s/own.yaml"] != "old" {
		t.Errorf("after that was mended: %v, %v", got, refused)
	}

	next := f.server.Config.Handler
	f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/busy"):
			http.Error(w, "later", http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, "/hang"):
			<-r.Context().Done()
		default:
			next.ServeHTTP(w, r)
		}
	})
	hasty := newGit(t, Limits{Timeout: 3 * time.Second})
	for _, name := range []string{"busy", "hang"} {
		id := top.with("main", "top", part{"s", old, "../" + name}, part{"s2", old, "../" + name + "2"})
		if _, err := hasty.Repository(name).Fetch(t.Context(), remote, Ref{ID: id}, nil); !reason.Is(err, reason.RepositoryUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantNoneWith(t, "GIT_CONFIG_GLOBAL="+configPath, hasty.dir)
}

// Number and size are bounded for all submodules together.
func TestSubmoduleLimits(t *testing.T) {
	f := newFamily(t)
	noise := func(seed uint32) []byte {
		b := make([]byte, 1<<20)
		for i := range b {
			seed = seed*1664525 + 1013904223
			b[i] = byte(seed >> 24)
		}
		return b
	}
	sub, top := f.repository("sub"), f.repository("top")
	var parts []part
	for i := range modulesMax + 2 {
		id := sub.commitTree(fmt.Sprint("b", i), sub.tree("100644 "+string(sub.object("blob", noise(uint32(i))))+"\tnoise"))
		parts = append(parts, part{fmt.Sprintf("s%02d", i), id, "../sub"})
	}
	remote, _ := remoteOf(f, "top", true)
	id := top.with("many", "top", parts...)
	g := newGit(t, Limits{FileBytes: 10_000}) // so that none of the noise comes
	r := g.Repository("many")
	c, err := r.Fetch(t.Context(), remote, Ref{ID: id}, nil)
	must(t, err)
	must(t, r.Tree(t.Context(), c, nil, func(tree *Tree) error {
		if refused := tree.Refused(); len(refused) != 2 || refused[0].Name != "s20" || len(tree.Files()) != modulesMax+2 {
			t.Errorf("refused %v, %d files", refused, len(tree.Files()))
		}
		return nil
	}))

	g = newGit(t, Limits{FileBytes: 2 << 20, PackBytes: 3 << 20})
	id = top.with("large", "top", parts[:5]...)
	r = g.Repository("large")
	if _, err := r.Fetch(t.Context(), remote, Ref{ID: id}, nil); !reason.Is(err, reason.RepositoryLimit) {
		t.Errorf("5 MiB in packs of 1 MiB, of which 3 are allowed: %v", err)
	}
	if isDirectory(r.dir) || isDirectory(r.dir+newSuffix) {
		t.Error("what was fetched over the limit is left on disk")
	}
	id = top.with("small", "top", parts[:2]...)
	if _, err := r.Fetch(t.Context(), remote, Ref{ID: id}, nil); err != nil {
		t.Errorf("2 MiB: %v", err)
	}
	g = newGit(t, Limits{Files: 10})
	id = top.with("files", "top", parts[:12]...)
	r = g.Repository("files")
	c, err = r.Fetch(t.Context(), remote, Ref{ID: id}, nil)
	if err == nil {
		err = r.Tree(t.Context(), c, nil, func(*Tree) error { return nil })
	}
	if !reason.Is(err, reason.RepositoryLimit) {
		t.Errorf("12 files in 12 submodules, of which 10 are allowed: %v", err)
	}
}

// Whatever a copy of submodules has become, the next fetch makes it whole.
func TestSubmodulesDamaged(t *testing.T) {
	f := newFamily(t)
	inner := f.repository("sub").with("main", "inner")
	id := f.repository("top").with("main", "top", part{"s", inner, "../sub"})
	remote, _ := remoteOf(f, "top", true)
	g := newGit(t, Limits{})
	r := g.Repository("k")
	fetch := func() {
		t.Helper()
		c, err := r.Fetch(t.Context(), remote, Ref{ID: id}, nil)
		must(t, err)
		if got, refused := all(t, r, c); got["s/own.yaml"] != "inner" {
			t.Errorf("%v, %v", got, refused)
		}
	}
	fetch()
	packs, err := filepath.Glob(filepath.Join(r.dir, "objects/pack/*.pack"))
	must(t, err)
	for _, p := range packs {
		must(t, os.Chmod(p, 0o600))
		must(t, os.Truncate(p, 20))
		fetch()
	}
}

// The address of a submodule leads nowhere but to where the Source itself is.
func TestSubmoduleAddresses(t *testing.T) {
	g := newGit(t, Limits{})
	known := Auth{KnownHosts: []byte("host ssh-ed25519 AAAA")}
	const canary = "c4n4ry"
	tests := []struct {
		root    Remote
		address string
		want    string // empty: refused
	}{
		{Remote{URL: "https://h/a/b.git"}, "../c.git", "https://h/a/c.git"},
		{Remote{URL: "https://h/a/b.git/"}, "../c.git/", "https://h/a/c.git"},
		{Remote{URL: "https://h/a/b.git"}, "./c", "https://h/a/b.git/c"},
		{Remote{URL: "https://h/a/b.git"}, "./.././../c/d", "https://h/c/d"},
		{Remote{URL: "https://h/b.git"}, "../c", "https://h/c"},
		{Remote{URL: "https://h/b.git"}, "../../c", ""},
		{Remote{URL: "https://h/b.git"}, "../../h2/c", ""},
		{Remote{URL: "https://h/a/b.git"}, "../x/../../y", ""},
		{Remote{URL: "https://h/a/b.git"}, "../", ""},
		{Remote{URL: "https://h/a/b.git"}, "..", ""},
		{Remote{URL: "https://h/a/b.git"}, "../c?x=y", ""},
		{Remote{URL: "https://h/a/b.git"}, "../c#x", ""},
		{Remote{URL: "https://h/a/b.git"}, "../c\nurl = x", ""},
		{Remote{URL: "https://h/a/b.git"}, "../c d", ""},
		{Remote{URL: "https://h/a/b.git"}, "https://h/x", "https://h/x"},
		{Remote{URL: "https://h/a/b.git"}, "https://H:443/x", "https://H:443/x"},
		{Remote{URL: "https://h/a/b.git"}, "https://h:8443/x", ""},
		{Remote{URL: "https://h:8443/a/b.git"}, "https://h/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "http://h/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "https://h.evil/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "https://evil/h/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "https://u:" + canary + "@h/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "https://h@evil/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "https://h\\@evil/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "git@h:x", ""},
		{Remote{URL: "https://h/a/b.git"}, "ext::sh -c touch% /tmp/x", ""},
		{Remote{URL: "https://h/a/b.git"}, "https::ext::sh", ""},
		{Remote{URL: "https://h/a/b.git"}, "-u./evil", ""},
		{Remote{URL: "https://h/a/b.git"}, "--upload-pack=x", ""},
		{Remote{URL: "https://h/a/b.git"}, "/etc", ""},
		{Remote{URL: "https://h/a/b.git"}, "fd::17", ""},
		{Remote{URL: "https://h/a/b.git"}, "", ""},
		{Remote{URL: "http://h/b.git", PlainHTTP: true}, "../c", "http://h/c"},
		{Remote{URL: "http://h/b.git", PlainHTTP: true}, "https://h/c", ""},
		{Remote{URL: "ssh://git@h:2222/a/b.git", Auth: known}, "../c", "ssh://git@h:2222/a/c"},
		{Remote{URL: "ssh://git@h/a/b.git", Auth: known}, "git@h:c", "git@h:c"},
		{Remote{URL: "ssh://git@h/a/b.git", Auth: known}, "ssh://root@h/c", ""},
		{Remote{URL: "ssh://git@h/a/b.git", Auth: known}, "ssh://git@h:23/c", ""},
		{Remote{URL: "git@h:a/b.git", Auth: known}, "../c", "git@h:a/c"},
		{Remote{URL: "git@h:a/b.git", Auth: known}, "../../c", "git@h:c"},
		{Remote{URL: "git@h:a/b.git", Auth: known}, "../../../c", ""},
		{Remote{URL: "git@h:a/b.git", Auth: known}, "../../-c", ""},
		{Remote{URL: "git@h:/srv/b.git", Auth: known}, "../c", "git@h:/srv/c"},
		{Remote{URL: "git@h:a/b.git", Auth: known}, "git@-oProxyCommand=x:c", ""},
		{Remote{URL: "git@h:a/b.git", Auth: known}, "h:c", ""},
	}
	for _, tt := range tests {
		root, err := g.target(tt.root)
		must(t, err)
		got, err := g.submoduleTarget(root, root, "sub", tt.address)
		switch {
		case err == nil && (got.url != tt.want || got.protocol != root.protocol || got.auth.header() != root.auth.header()):
			t.Errorf("%s, %s: %s", tt.root.URL, tt.address, got.url)
		case err != nil && (tt.want != "" || !reason.Is(err, reason.RepositoryContent) || reason.Of(err).Hint == "" || !printable(err.Error()) || strings.Contains(err.Error(), canary)):
			t.Errorf("%s, %s: %v", tt.root.URL, tt.address, err)
		}
	}
}

// FuzzModules: whatever .gitmodules says, what is followed is at the server of the Source.
func FuzzModules(f *testing.F) {
	for _, s := range []string{"../c", "https://h/x", "git@h:x", "./../..//x", "ssh://git@h/%2e%2e/x", "https://h:443/..", "\x00", "../\xff"} {
		f.Add([]byte("submodule.a.path\nsub\x00submodule.a.url\n"+s+"\x00"), s, 3)
	}
	f.Add([]byte("submodule.a.b.path\x00submodule.\n\x00submodule..url\nx\x00include.path\n/etc\x00"), "x", 1)
	f.Fuzz(func(t *testing.T, listed []byte, address string, cut int) {
		m := &modulesList{}
		if err := inPieces(&records{separator: 0, each: m.line}, listed, cut); err != nil && reason.Of(err).Code == reason.InternalFault {
			t.Errorf("an error without a code: %v", err)
		}
		addresses := []string{address}
		for _, a := range m.byPath() {
			addresses = append(addresses, a)
		}
		g := &Git{local: []string{"/nonexistent"}}
		for _, base := range []Remote{{URL: "https://h/a/b"}, {URL: "ssh://git@h/a/b", Auth: Auth{KnownHosts: []byte("x")}}, {URL: "git@h:a/b", Auth: Auth{KnownHosts: []byte("x")}}} {
			root, err := g.target(base)
			must(t, err)
			ours, err := serverOf(root.url)
			must(t, err)
			for _, a := range addresses {
				got, err := g.submoduleTarget(root, root, "sub", a)
				if err != nil {
					if !reason.Is(err, reason.RepositoryContent) || !printable(err.Error()) {
						t.Errorf("%q: %v", a, err)
					}
					continue
				}
				if theirs, err := serverOf(got.url); err != nil || theirs != ours || got.protocol != root.protocol || strings.HasPrefix(got.url, "-") || !printable(got.url) {
					t.Errorf("%q of %s leads to %q", a, root.url, got.url)
				}
			}
		}
	})
}

// The view of a tree with submodules keeps the promises of a file system.
func TestSubmoduleView(t *testing.T) {
	f := newFamily(t)
	inner := f.repository("sub").commit(map[string]string{"d/a.yaml": "a", "b.yaml": "b"})
	id := f.repository("top").with("main", "top", part{"s", inner, "../sub"})
	remote, _ := remoteOf(f, "top", true)
	r := newGit(t, Limits{}).Repository("k")
	c, err := r.Fetch(t.Context(), remote, Ref{ID: id}, nil)
	must(t, err)
	must(t, r.Tree(t.Context(), c, nil, func(tree *Tree) error {
		seen := map[string]bool{}
		err := fs.WalkDir(tree, ".", func(p string, _ fs.DirEntry, err error) error {
			seen[p] = true
			return err
		})
		if !seen["s"] || !seen["s/d/a.yaml"] || !seen["own.yaml"] {
			t.Errorf("walked over %v", seen)
		}
		if _, err := tree.Stat("s/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("s/none: %v", err)
		}
		return err
	}))
}
