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
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/apart"
)

// privately makes a host of its own as far as mounts go, and becomes the test: a mount namespace, a copy of /etc, an empty /srv and /run/mount.
// Swap belongs to the kernel as a whole, so that swapon, swapoff and /proc/swaps are stand-ins, which keep their list in a file; the areas are
// real.
const privately = `mount -t tmpfs tmpfs "$1"
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
chmod 755 /usr/local/sbin/*`

// inside runs the test that calls it once more where it may mount anything, and reports whether this is that run.
func inside(t *testing.T) bool {
	t.Helper()
	return apart.Run(t, apart.Host{Script: privately})
}

// ground is the types on a root.
type ground struct {
	*hosttest.Ground
	types map[declare.ResourceType]host.Type
}

func newGround(t testing.TB, dir string) *ground {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	types := Types(Options{Root: root})
	return &ground{Ground: &hosttest.Ground{TB: t, Of: hosttest.Among(types)}, types: types}
}

func mountOf(m declare.Mount) declare.Resource {
	return declare.Resource{Name: filepath.Base(m.Path), Mount: &m}
}

func swapOf(s declare.Swap) declare.Resource {
	return declare.Resource{Name: filepath.Base(s.Path), Swap: &s}
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
