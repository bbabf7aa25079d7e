package edit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// ground is a directory, a content store and a Type.
type ground struct {
	testing.TB
	dir   string
	store *content.Store
	*Type
}

func newGround(t testing.TB) *ground {
	t.Helper()
	store, err := content.Open(filepath.Join(t.TempDir(), "content"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &ground{TB: t, dir: t.TempDir(), store: store, Type: New(Options{Root: root, Content: store})}
}

func (g *ground) path(name string) string { return g.dir + "/" + name }

// declared makes a resource as the agent gives it to Bind.
func declared(name string, e declare.Edit) host.Declared {
	r := declare.Resource{Name: name, Edit: &e}
	return host.Declared{Title: r.Title(), Resource: r, Body: func() (declare.Resource, error) { return r, nil }}
}

func (g *ground) bind(name string, e declare.Edit) host.Resource {
	g.Helper()
	r, err := g.Bind(g.Context(), declared(name, e))
	if err != nil {
		g.Fatalf("bind: %v", err)
	}
	return r
}

func (g *ground) check(depth host.Depth, rs ...host.Resource) []host.Plan {
	g.Helper()
	return g.Check(g.Context(), rs, depth)
}

// converge checks and applies edits together.
func (g *ground) converge(rs ...host.Resource) []host.Result {
	g.Helper()
	results := make([]host.Result, len(rs))
	var plans []host.Plan
	var at []int
	for i, p := range g.check(host.Shallow, rs...) {
		if results[i].Err = p.Err; p.Err == nil && !p.Empty() {
			plans, at = append(plans, p), append(at, i)
		}
	}
	for i, res := range g.Apply(g.Context(), plans) {
		results[at[i]] = res
	}
	return results
}

// made converges edits that must not fail.
func (g *ground) made(rs ...host.Resource) []host.Result {
	g.Helper()
	results := g.converge(rs...)
	for _, res := range results {
		if res.Err != nil {
			g.Fatalf("converge: %v", res.Err)
		}
	}
	return results
}

func (g *ground) write(name, text string, perm os.FileMode) {
	g.Helper()
	g.clear(name)
	g.must(os.WriteFile(g.path(name), []byte(text), 0o600))
	g.must(os.Chmod(g.path(name), perm))
}

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

// outside is what an independent look at a path sees.
type outside struct{ kind, mode, owner, text string }

func look(t testing.TB, p string) outside {
	t.Helper()
	st, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return outside{kind: "absent"}
	}
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	if !st.Mode().IsRegular() {
		return outside{kind: st.Mode().String()}
	}
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return outside{"file", strconv.FormatUint(uint64(sys.Mode&0o7777), 8), strconv.Itoa(int(sys.Uid)) + ":" + strconv.Itoa(int(sys.Gid)), string(b)}
}

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

func ptr[T any](v T) *T { return &v }
