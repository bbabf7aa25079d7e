package mount

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

// insideVariable tells the test binary that it runs where it may mount anything.
const insideVariable = "TAKO_MOUNT_TEST_INSIDE"

// privately makes a host of its own as far as mounts go, and becomes the test: a mount namespace, a copy of /etc, an empty /srv and /run/mount.
// Swap belongs to the kernel as a whole, so that swapon, swapoff and /proc/swaps are stand-ins, which keep their list in a file; the areas are
// real.
const privately = `set -e
mount -t tmpfs tmpfs "$1"
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
printf '# UNTOUCHED\tline\n\n  LABEL="root disk"   /  ext4 defaults,errors=remount-ro 0 1\nproc /proc\\040x proc noauto\n' >/etc/fstab
mkdir -p /run/mount
mount -t tmpfs -o mode=755 tmpfs /run/mount
mount -t tmpfs -o mode=755 tmpfs /srv
printf 'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n' >"$1/swaps"
mount --bind "$1/swaps" /proc/swaps
cp /proc/meminfo "$1/meminfo"
mount --bind "$1/meminfo" /proc/meminfo
mount -t tmpfs -o mode=755 tmpfs /usr/local/sbin
cat >/usr/local/sbin/swapon <<'END'
#!/bin/sh
priority=-2
if [ "$1" = --priority ]; then priority=$2; shift 2; fi
case "$2" in *forbidden*) echo "swapon: $2: swapon failed: Operation not permitted" >&2; exit 255 ;; esac
if [ "$(dd if="$2" bs=1 skip=4086 count=10 2>/dev/null)" != SWAPSPACE2 ]; then echo "swapon: $2: read swap header failed" >&2; exit 255; fi
if grep -q "^$2 " /proc/swaps; then echo "swapon: $2: swapon failed: Device or resource busy" >&2; exit 255; fi
echo "$2 file $(($(stat -c %s "$2") / 1024 - 4)) 0 $priority" >>/proc/swaps
END
cat >/usr/local/sbin/swapoff <<'END'
#!/bin/sh
grep -q "^$2 " /proc/swaps || { echo "swapoff: $2: swapoff failed: Invalid argument" >&2; exit 255; }
rest=$(grep -v "^$2 " /proc/swaps); echo "$rest" >/proc/swaps
END
chmod 755 /usr/local/sbin/*
shift
exec "$@"`

// apart runs the test that calls it once more in a mount namespace of its own, and reports whether this is that run. Outside the test is over
// with it.
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

// ground is the types on a root.
type ground struct {
	testing.TB
	types map[declare.ResourceType]host.Type
}

func newGround(t testing.TB, dir string) *ground {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &ground{TB: t, types: Types(Options{Root: root})}
}

func declared(r declare.Resource) host.Declared {
	return host.Declared{Title: r.Title(), Resource: r, Body: func() (declare.Resource, error) { return r, nil }}
}

func mountOf(m declare.Mount) declare.Resource {
	return declare.Resource{Name: filepath.Base(m.Path), Mount: &m}
}

func swapOf(s declare.Swap) declare.Resource {
	return declare.Resource{Name: filepath.Base(s.Path), Swap: &s}
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

func see(t testing.TB, p string) string {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// sh runs a script of the host.
func sh(t testing.TB, script string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// clean unmounts everything below /srv, and takes all lines that name something there out of fstab.
const clean = `while grep -q ' /srv/' /proc/self/mountinfo; do umount "$(grep -o ' /srv/[^ ]*' /proc/self/mountinfo | tail -n 1 | tr -d ' ')"; done
sed '/\/srv\//d; / swap /d' /etc/fstab >/etc/fstab.new; mv /etc/fstab.new /etc/fstab
`

// shown is what findmnt shows of a path: "" while nothing is mounted there.
func shown(t testing.TB, p, column string) string {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), "findmnt", "-rn", "-o", column, "-M", p).Output() // it fails where nothing is mounted
	return strings.TrimSpace(string(out))
}

// bootLine is what fstab says of a path, in another way than the type: with one blank between its six fields.
func bootLine(t testing.TB, p string) string {
	t.Helper()
	var found []string
	for line := range strings.Lines(see(t, fstabFile)) {
		if f := strings.Fields(line); len(f) > 3 && f[0][0] != '#' && (strings.TrimSuffix(f[1], "/") == p || f[2] == "swap" && f[0] == p) {
			f[1] = strings.TrimSuffix(f[1], "/")
			found = append(found, strings.Join(append(f, "0", "0")[:6], " "))
		}
	}
	if len(found) == 0 {
		return wordAbsent
	}
	return strings.Join(found, "; ")
}
