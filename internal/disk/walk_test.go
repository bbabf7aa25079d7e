package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

// inode opens a directory both ways and returns which it was.
func inode(t testing.TB, r *Root, p string) (uint64, error) {
	t.Helper()
	d, err := r.Dir(p)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	st, err := d.Stat("")
	disktest.Must(t, err)
	return st.Ino, nil
}

func TestWayInSandbox(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	box := filepath.Join(base, "box")
	disktest.Tree(t, base, "outside/", "box/etc/app/", "box/srv/5/",
		"box/abs -> /etc/app", "box/rel -> etc/app", "box/up -> ../../../outside", "box/out -> "+outside,
		"box/srv/current -> 5", "box/deep -> /srv/../srv/./current/../5/", "box/loop -> loop", "box/chain -> rel",
		"box/file", "box/tofile -> file", "box/dot -> .", "box/slash -> /")
	r := rootAt(t, box)
	ino := func(p string) uint64 {
		var st unix.Stat_t
		disktest.Must(t, unix.Lstat(filepath.Join(box, p), &st))
		return st.Ino
	}
	for _, slow := range []bool{false, true} {
		r.slow.Store(slow)
		for p, want := range map[string]string{
			"/": "/", "/etc": "/etc", "/abs": "/etc/app", "/rel": "/etc/app", "/chain": "/etc/app", "/srv/current": "/srv/5",
			"/deep": "/srv/5", "/dot/etc": "/etc", "/slash": "/", "/slash/dot/slash/abs": "/etc/app",
		} {
			if got, err := inode(t, r, p); err != nil || got != ino(want) {
				t.Errorf("slow %v: %s leads to inode %d, %v; want that of %s", slow, p, got, err, want)
			}
		}
		for p, want := range map[string]reason.Code{
			"/up": reason.ParentMissing, "/out": reason.ParentMissing, "/loop": reason.UntrustedSymlink,
			"/file": reason.TypeInTheWay, "/tofile": reason.TypeInTheWay, "/none/x": reason.ParentMissing,
		} {
			_, err := inode(t, r, p)
			disktest.WantCode(t, err, want)
		}
	}
}

func TestLinksAreCounted(t *testing.T) {
	base := t.TempDir()
	disktest.Tree(t, base, "0/")
	for i := 1; i <= linksMax+1; i++ {
		disktest.Must(t, os.Symlink(filepath.Base(link(base, i-1)), link(base, i)))
	}
	r := hostRoot(t)
	if _, err := inode(t, r, link(base, linksMax)); err != nil {
		t.Errorf("%d links: %v", linksMax, err)
	}
	_, err := inode(t, r, link(base, linksMax+1))
	disktest.WantCode(t, err, reason.UntrustedSymlink)
}

func link(base string, i int) string { return filepath.Join(base, string(rune('0'+i))) }

func TestTrust(t *testing.T) {
	mine := trust{uid: 100, gid: 200}
	stat := func(uid, gid uint32, mode uint32) Stat {
		return Stat{Signature: Signature{UID: uid, GID: gid, Mode: mode}}
	}
	for _, c := range []struct {
		name      string
		dir, link Stat
		acl, want bool
	}{
		{"root's", stat(0, 0, 0o755), stat(0, 0, 0o777), false, true},
		{"the agent's", stat(100, 7, 0o755), stat(100, 7, 0o777), false, true},
		{"somebody's link", stat(0, 0, 0o755), stat(5, 5, 0o777), false, false},
		{"somebody's directory", stat(5, 5, 0o755), stat(0, 0, 0o777), false, false},
		{"open to all", stat(0, 0, 0o757), stat(0, 0, 0o777), false, false},
		{"sticky", stat(0, 0, 0o1777), stat(0, 0, 0o777), false, false},
		{"group root", stat(0, 0, 0o775), stat(0, 0, 0o777), false, true},
		{"the agent's group", stat(0, 200, 0o775), stat(0, 0, 0o777), false, true},
		{"another group", stat(0, 7, 0o775), stat(0, 0, 0o777), false, false},
		{"an access list behind group root", stat(0, 0, 0o775), stat(0, 0, 0o777), true, false},
		{"an access list that gives no right to write", stat(0, 0, 0o755), stat(0, 0, 0o777), true, true},
	} {
		if got := mine.covers(c.dir, c.link, func() bool { return c.acl }); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestWalkIsKernel compares the walk with the kernel's own resolution on random trees of symlinks.
func TestWalkIsKernel(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		box, err := os.MkdirTemp(base, "")
		if err != nil {
			rt.Fatal(err)
		}
		names := []string{"a", "b", "c"}
		pathGen := rapid.Custom(func(t *rapid.T) string {
			parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "..", "."}), 1, 4).Draw(t, "parts")
			p := strings.Join(parts, "/")
			if rapid.Bool().Draw(t, "absolute") {
				p = "/" + p
			}
			return p
		})
		dirs := []string{"", "a", "a/b"}
		for _, d := range dirs {
			os.MkdirAll(filepath.Join(box, d), 0o755)
		}
		for _, d := range dirs {
			for _, n := range names {
				if rapid.Bool().Draw(rt, "link") {
					os.Symlink(pathGen.Draw(rt, "target"), filepath.Join(box, d, n))
				}
			}
		}
		r, err := OpenRoot(box)
		if err != nil {
			rt.Fatal(err)
		}
		defer r.Close()
		r.slow.Store(true)
		p := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(rt, "path"), "/")
		got, gotErr := r.Dir(p)
		fd, wantErr := unix.Openat2(r.fd, p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_IN_ROOT})
		if (gotErr == nil) != (wantErr == nil) {
			rt.Fatalf("%s: %v, the kernel says %v", p, gotErr, wantErr)
		}
		if gotErr != nil {
			return
		}
		defer got.Close()
		defer unix.Close(fd)
		a, errA := StatAt(got.fd, "")
		b, errB := StatAt(fd, "")
		if errA != nil || errB != nil || a.Ino != b.Ino {
			rt.Fatalf("%s: inode %d, the kernel says %d", p, a.Ino, b.Ino)
		}
	})
}
