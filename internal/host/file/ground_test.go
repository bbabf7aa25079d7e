package file_test

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/reason"
)

// nobody is an ordinary user that every Debian has.
const nobody = 65534

// ground is a directory, a content store and a Type.
type ground struct {
	testing.TB
	dir   string // of the host; declared paths begin below it
	olds  string // the directory of the store
	store *content.Store
	*file.Type
}

func newGround(t testing.TB) *ground {
	t.Helper()
	dir := t.TempDir()
	olds := filepath.Join(t.TempDir(), "content")
	store, err := content.Open(olds, content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &ground{TB: t, dir: dir, olds: olds, store: store, Type: newType(t, "/", store)}
}

func newType(t testing.TB, root string, store *content.Store) *file.Type {
	t.Helper()
	r, err := disk.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return file.New(file.Options{Root: r, Content: store})
}

// path is the path of a name in the ground.
func (g *ground) path(name string) string { return g.dir + "/" + name }

// declared makes a resource as the agent gives it to Bind.
func declared(r declare.Resource) host.Declared {
	return host.Declared{Title: string(r.Type()) + "/" + r.Claim().ID, Resource: r, Body: func() (declare.Resource, error) { return r, nil },
		Below: func(string) []host.Place { return nil }}
}

func (g *ground) bind(r declare.Resource) host.Resource {
	g.Helper()
	res, err := g.Bind(g.Context(), declared(r))
	if err != nil {
		g.Fatalf("bind: %v", err)
	}
	return res
}

func (g *ground) bindFile(f declare.File) host.Resource {
	g.Helper()
	return g.bind(declare.Resource{File: &f})
}

func (g *ground) bindDirectory(d declare.Directory) host.Resource {
	g.Helper()
	return g.bind(declare.Resource{Directory: &d})
}

func (g *ground) bindSymlink(l declare.Symlink) host.Resource {
	g.Helper()
	return g.bind(declare.Resource{Symlink: &l})
}

// check checks one resource.
func (g *ground) check(r host.Resource, depth host.Depth) host.Plan {
	g.Helper()
	return g.Check(g.Context(), []host.Resource{r}, depth)[0]
}

// converge checks and applies one resource; nothing to do is an empty result.
func (g *ground) converge(r host.Resource) host.Result {
	g.Helper()
	p := g.check(r, host.Shallow)
	if p.Err != nil {
		return host.Result{Err: p.Err}
	}
	if p.Empty() {
		return host.Result{}
	}
	return g.Apply(g.Context(), []host.Plan{p})[0]
}

// made converges a resource that must not fail.
func (g *ground) made(r host.Resource) host.Result {
	g.Helper()
	res := g.converge(r)
	if res.Err != nil {
		g.Fatalf("converge: %v", res.Err)
	}
	return res
}

// write makes a file by hand, whatever was there.
func (g *ground) write(name, text string, perm os.FileMode) {
	g.Helper()
	p := g.path(name)
	g.clear(name)
	g.must(os.WriteFile(p, []byte(text), 0o600))
	g.must(os.Chmod(p, perm))
}

// clear removes what has a name.
func (g *ground) clear(name string) {
	g.Helper()
	g.must(os.RemoveAll(g.path(name)))
}

func (g *ground) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// inode is the number of what has a name.
func (g *ground) inode(name string) uint64 {
	g.Helper()
	st, err := os.Lstat(g.path(name))
	g.must(err)
	return st.Sys().(*syscall.Stat_t).Ino
}

// entries lists the names in the ground.
func (g *ground) entries() []string {
	g.Helper()
	list, err := os.ReadDir(g.dir)
	g.must(err)
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// sight is what an independent look at a path sees.
type sight struct {
	kind, mode, owner, group string
	content, target          string
}

func (g *ground) look(name string) sight { return look(g, g.path(name)) }

func look(t testing.TB, p string) sight {
	t.Helper()
	st, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return sight{kind: "absent"}
	}
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	s := sight{mode: octal(sys.Mode & 0o7777), owner: userName(sys.Uid), group: groupName(sys.Gid)}
	switch sys.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		s.kind, s.content = "file", string(b)
	case syscall.S_IFDIR:
		s.kind = "directory"
	case syscall.S_IFLNK:
		s.kind, s.mode = "symlink", ""
		if s.target, err = os.Readlink(p); err != nil {
			t.Fatal(err)
		}
	case syscall.S_IFIFO:
		s.kind = "fifo"
	default:
		t.Fatalf("%s is a %v", p, st.Mode())
	}
	return s
}

func octal(mode uint32) string {
	s := "000" + strconv.FormatUint(uint64(mode), 8)
	return s[len(s)-4:]
}

func userName(uid uint32) string {
	n := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(n); err == nil {
		return u.Username
	}
	return n
}

func groupName(gid uint32) string {
	n := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(n); err == nil {
		return g.Name
	}
	return n
}

// code is the code of an error; 0 where there is none.
func code(err error) reason.Code {
	if err == nil {
		return 0
	}
	return reason.Of(err).Code
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
