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
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/apart"
	"tako.dev/tako/internal/reason"
)

// privately makes copies of everything that programs for accounts change, for this mount namespace only, and becomes the test.
const privately = `mount -t tmpfs tmpfs "$1"
cp -a /etc "$1/etc"
mkdir "$1/base"
cp -a /etc/passwd /etc/group /etc/shadow /etc/gshadow "$1/base/"
mount --bind "$1/etc" /etc
for dir in /home /srv /var/mail /var/log /var/spool; do
	[ ! -d $dir ] || [ -L $dir ] || mount -t tmpfs -o mode=755 tmpfs $dir
done
[ ! -e /dev/log ] || mount --bind /dev/null /dev/log
rm -f /etc/*.lock`

// inside runs the test that calls it once more where it may do anything with the accounts, and reports whether this is that run.
func inside(t *testing.T) bool {
	t.Helper()
	needsRoot(t)
	return apart.Run(t, apart.Host{Script: privately})
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
	*hosttest.Ground
	*Type
	keys *Keys
}

func newGround(t testing.TB) *ground {
	t.Helper()
	g := &ground{Ground: &hosttest.Ground{TB: t}}
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
	g.Of = typesOn(g.Type, g.keys)
}

// reset makes the accounts those that the host began with, and no homes.
func (g *ground) reset(t testing.TB) {
	t.Helper()
	for _, name := range databaseFiles {
		run := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(apart.Dir(), "base", name), "/etc/"+name)
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

// typesOn finds the Type of a resource.
func typesOn(accounts *Type, keys *Keys) hosttest.TypeOf {
	return func(r declare.Resource) host.Type {
		if r.AuthorizedKeys != nil {
			return keys
		}
		return accounts
	}
}

func (g *ground) user(u declare.User) host.Result {
	g.Helper()
	return g.Made(declare.Resource{User: &u})
}

func (g *ground) group(u declare.Group) host.Result {
	g.Helper()
	return g.Made(declare.Resource{Group: &u})
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
