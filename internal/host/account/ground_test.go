package account

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// insideVariable tells the test binary that it runs where it may do anything with the accounts: it holds the directory with the files
// as they were.
const insideVariable = "TAKO_ACCOUNT_TEST_INSIDE"

// privately makes copies of everything that programs for accounts change, for this mount namespace only, and becomes the test.
const privately = `set -e
mount -t tmpfs tmpfs "$1"
cp -a /etc "$1/etc"
mkdir "$1/base"
cp -a /etc/passwd /etc/group /etc/shadow /etc/gshadow "$1/base/"
mount --bind "$1/etc" /etc
for dir in /home /srv /var/mail /var/log /var/spool; do
	[ ! -d $dir ] || [ -L $dir ] || mount -t tmpfs -o mode=755 tmpfs $dir
done
[ ! -e /dev/log ] || mount --bind /dev/null /dev/log
rm -f /etc/*.lock
shift
exec "$@"`

// apart runs the test that calls it once more in a mount namespace of its own, and reports whether this is that run. Outside the test is
// over with it.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	needsRoot(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", privately, "sh", dir, exe, "-test.run="+name, "-test.v")
	cmd.Env = append(os.Environ(), insideVariable+"="+dir, "TAKO_CASES=") // the case is recorded once, outside
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare failed") {
		t.Skipf("needs permission to create namespaces: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("in a namespace: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("in a namespace:\n%s", out)
	}
	return false
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat(useraddPath); err != nil {
		t.Skip("needs shadow-utils")
	}
}

// ground is a host's accounts.
type ground struct {
	testing.TB
	*Type
	keys *Keys
}

func newGround(t testing.TB) *ground {
	t.Helper()
	g := &ground{TB: t}
	g.open("/")
	g.reset(t)
	return g
}

// open makes the types for a root.
func (g *ground) open(dir string) {
	g.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { root.Close() })
	g.Type, g.keys = New(Options{Root: root}), NewKeys(Options{Root: root})
}

// reset makes the accounts those that the host began with, and no homes.
func (g *ground) reset(t testing.TB) {
	t.Helper()
	for _, name := range databaseFiles {
		run := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(os.Getenv(insideVariable), "base", name), "/etc/"+name)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, dir := range []string{"/home", "/srv"} {
		list, err := os.ReadDir(dir)
		for _, e := range list {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a program of the host.
func (g *ground) run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// try runs a program that may fail, and returns what it printed on standard output.
func (g *ground) try(t testing.TB, args ...string) string {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), args[0], args[1:]...).Output() // the output is the answer
	return strings.TrimSpace(string(out))
}

func declared(r declare.Resource) host.Declared {
	return host.Declared{Title: string(r.Type()) + "/" + r.Claim().ID, Resource: r, Body: func() (declare.Resource, error) { return r, nil }}
}

// typeOf is the Type of a resource.
func (g *ground) typeOf(r declare.Resource) host.Type {
	if r.AuthorizedKeys != nil {
		return g.keys
	}
	return g.Type
}

// converge checks a resource and applies what there is to do, as the agent would for a declaration that has just come.
func (g *ground) converge(r declare.Resource) host.Result {
	g.Helper()
	typ := g.typeOf(r)
	bound, err := typ.Bind(g.Context(), declared(r))
	if err != nil {
		return host.Result{Err: err}
	}
	plan := typ.Check(g.Context(), []host.Resource{bound}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return host.Result{Err: plan.Err}
	}
	return typ.Apply(g.Context(), []host.Plan{plan})[0]
}

// made converges a resource, which must go well and leave nothing to do.
func (g *ground) made(r declare.Resource) host.Result {
	g.Helper()
	res := g.converge(r)
	if res.Err != nil {
		e := reason.Of(res.Err)
		g.Fatalf("%s: %v; %s\n%s", r.Title(), e, e.Hint, e.Evidence)
	}
	if again := g.converge(r); again.Err != nil || again.Changed {
		g.Errorf("%s: a second time: %+v", r.Title(), again)
	}
	return res
}

func (g *ground) user(u declare.User) host.Result {
	g.Helper()
	return g.made(declare.Resource{User: &u})
}

func (g *ground) group(u declare.Group) host.Result {
	g.Helper()
	return g.made(declare.Resource{Group: &u})
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return !errors.Is(err, fs.ErrNotExist)
}

func code(err error) reason.Code {
	if err == nil {
		return 0
	}
	return reason.Of(err).Code
}

func ptr[T any](v T) *T { return &v }

// checks are what casetest has, for tests that are of no case.
type checks struct{ testing.TB }

func (c checks) Check(ok bool, format string, args ...any) {
	c.Helper()
	if !ok {
		c.Errorf(format, args...)
	}
}

func (c checks) Equal(got, want any, what string) {
	c.Helper()
	if got != want {
		c.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (c checks) NoError(err error, what string) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}
