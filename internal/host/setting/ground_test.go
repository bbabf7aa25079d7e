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
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/apart"
)

// privately makes a host of its own as far as settings go, and becomes the test: a copy of /etc, a name, a network with its parameters, and a
// kernel with modules, which are directories here. What stands for modprobe says the words of the real one.
const privately = `mount -t tmpfs tmpfs "$1"
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
chmod 755 /usr/local/sbin/modprobe`

// inside runs the test that calls it once more where it may do anything with the settings, and reports whether this is that run.
func inside(t *testing.T) bool {
	t.Helper()
	return apart.Run(t, apart.Host{Namespaces: []string{"--net", "--uts"}, Script: privately})
}

// ground is the types on a root.
type ground struct {
	*hosttest.Ground
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
	types := Types(Options{Root: root})
	return &ground{Ground: &hosttest.Ground{TB: t, Of: hosttest.Among(types)}, dir: dir, types: types}
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
