package setting

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

// insideVariable tells the test binary that it runs where it may do anything with the settings.
const insideVariable = "TAKO_SETTING_TEST_INSIDE"

// privately makes a host of its own as far as settings go, and becomes the test: a copy of /etc, a name, a network with its parameters, and a
// kernel with modules, which are directories here. What stands for modprobe says the words of the real one.
const privately = `set -e
mount -t tmpfs tmpfs "$1"
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mkdir "$1/modules" "$1/upper" "$1/work" "$1/locale"
mount --bind "$1/modules" /sys/module
mount -t overlay overlay -o "lowerdir=/usr/lib,upperdir=$1/upper,workdir=$1/work" /usr/lib
mkdir -p "/usr/lib/modules/$(uname -r)" /usr/lib/sysctl.d
echo kernel/fs/t-inside.ko >"/usr/lib/modules/$(uname -r)/modules.builtin"
mount -t tmpfs tmpfs /usr/local/sbin
cat >/usr/local/sbin/modprobe <<'END'
#!/bin/sh
case "$1" in
--remove) rm -r "/sys/module/$3"; exit ;;
esac
if [ "$2" = nosuch ]; then echo "modprobe: FATAL: Module nosuch not found in directory /lib/modules/$(uname -r)" >&2; exit 1; fi
if cat /etc/modprobe.d/*.conf | grep -q "^install $2 /bin/false"; then echo "modprobe: ERROR: Error running install command '/bin/false' for module $2: retcode 1" >&2; exit 1; fi
if [ "$2" = forbidden ]; then echo "modprobe: ERROR: could not insert 'forbidden': Operation not permitted" >&2; exit 1; fi
mkdir "/sys/module/$2" "/sys/module/$2/parameters"
echo live >"/sys/module/$2/initstate"; echo 0 >"/sys/module/$2/refcnt"
cat /etc/modprobe.d/*.conf | sed -n "s/^options $2 //p" | tr ' ' '\n' | while IFS='=' read -r name value; do echo "$value" >"/sys/module/$2/parameters/$name"; done
END
chmod 755 /usr/local/sbin/modprobe
shift
exec "$@"`

// apart runs the test that calls it once more in namespaces of its own, and reports whether this is that run. Outside the test is over with
// it.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--uts", "--propagation", "private", "sh", "-c", privately, "sh", dir, exe, "-test.run="+name, "-test.v")
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

// ground is the types on a root.
type ground struct {
	testing.TB
	dir   string // of the root: "/", or a sandbox
	types map[declare.ResourceType]host.Type
}

func newGround(t testing.TB, dir string) *ground {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &ground{TB: t, dir: dir, types: Types(Options{Root: root})}
}

func declared(r declare.Resource) host.Declared {
	return host.Declared{Title: r.Title(), Resource: r, Body: func() (declare.Resource, error) { return r, nil }}
}

func (g *ground) bind(r declare.Resource) (host.Type, host.Resource) {
	g.Helper()
	typ := g.types[r.Type()]
	bound, err := typ.Bind(g.Context(), declared(r))
	if err != nil {
		g.Fatalf("bind %s: %v", r.Title(), err)
	}
	return typ, bound
}

// converge checks a resource and applies what there is to do, as the agent would for a declaration that has just come.
func (g *ground) converge(r declare.Resource) host.Result {
	g.Helper()
	typ := g.types[r.Type()]
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
		g.Fatalf("%s: %s", r.Title(), told(res.Err))
	}
	if again := g.converge(r); again.Err != nil || again.Changed {
		g.Errorf("%s: a second time: %+v", r.Title(), again)
	}
	return res
}

// refused converges a resource that must fail with a code and with words.
func (g *ground) refused(r declare.Resource, code reason.Code, words ...string) host.Result {
	g.Helper()
	res := g.converge(r)
	text := told(res.Err)
	if !reason.Is(res.Err, code) {
		g.Errorf("%s: %s, want %v", r.Title(), text, code)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			g.Errorf("%s: there is no %q in: %s", r.Title(), w, text)
		}
	}
	return res
}

func told(err error) string {
	if err == nil {
		return "no error"
	}
	e := reason.Of(err)
	return e.Code.String() + " " + e.Error() + "; " + e.Hint + "\n" + e.Evidence
}

func (g *ground) path(p string) string { return filepath.Join(g.dir, p) }

// put writes a file, with the directories above it; "-> x" is a link to x, and empty is no file.
func (g *ground) put(t testing.TB, p, body string) {
	t.Helper()
	p = g.path(p)
	err := os.RemoveAll(p)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(p), 0o755)
	}
	if target, link := strings.CutPrefix(body, "-> "); err == nil && link {
		err = os.Symlink(target, p)
	} else if err == nil && body != "" {
		err = os.WriteFile(p, []byte(body), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// see is what put would have been given.
func (g *ground) see(t testing.TB, p string) string {
	t.Helper()
	p = g.path(p)
	if target, err := os.Readlink(p); err == nil {
		return "-> " + target
	}
	b, err := os.ReadFile(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// run runs a program of the host.
func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
