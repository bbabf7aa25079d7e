package file_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

const (
	// treeRaceTime bounds the race on a machine that is busy; treeRaceEnough is how often it is run at least before it ends.
	treeRaceTime   = 20 * time.Second
	treeRaceEnough = 300
)

// TestTreeRace: a user to whom a directory below belongs makes, renames and swaps what is in it for links to what is not his, as fast as he
// can, while the tree is purged and given to somebody. Nothing outside is ever touched, nothing hangs, and every error has a code.
func TestTreeRace(t *testing.T) {
	needsRoot(t)
	for _, c := range []struct {
		name      string
		directory declare.Directory
	}{
		{"purge", declare.Directory{Purge: true, Limit: 1000}},
		{"recurse", declare.Directory{Recurse: &declare.Recurse{Owner: "nobody", FileMode: "0666", DirectoryMode: "0777"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWood(t)
			// The way to it is open to everybody.
			for dir := w.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
				w.must(os.Chmod(dir, 0o755))
			}
			w.fill("his/")
			his := w.path("tree/his")
			w.must(os.Chown(his, nobody, nobody))
			w.claim("his")
			for _, name := range []string{"outside/a", "outside/d/a", "outside/d/b/c"} {
				w.must(os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
				w.must(os.WriteFile(w.path(name), []byte("a root's own"), 0o640))
			}
			before := hosttest.Tree(t, w.path("outside"))
			ctx, stop := context.WithCancel(t.Context())
			var user sync.WaitGroup
			user.Go(func() { play(ctx, his, w.path("outside")) })
			rounds, done, refused := 0, 0, map[reason.Code]int{}
			r := w.bindTree(c.directory)
			for until := time.Now().Add(treeRaceTime); time.Now().Before(until) && (rounds < treeRaceEnough || done == 0); rounds++ {
				p := w.look(r)
				if p.Err == nil && !p.Empty() {
					res := w.carryOut(p)
					if p.Err = res.Err; res.Changed {
						done++
					}
				}
				if p.Err != nil {
					refused[code(p.Err)]++
				}
			}
			stop()
			user.Wait()
			t.Logf("%d rounds, changed something in %d, refused %v", rounds, done, refused)
			if after := hosttest.Tree(t, w.path("outside")); after != before {
				t.Errorf("outside was touched:\n%s\n%s", before, after)
			}
			if refused[reason.InternalFault] > 0 || done == 0 {
				t.Error("see above")
			}
			// Left alone, all of it comes out right.
			for range 3 {
				if p := w.look(r); p.Err == nil && !p.Empty() {
					w.carryOut(p)
				}
			}
			if p := w.look(r); !p.Empty() && p.Err == nil || p.Err != nil && !reason.Is(p.Err, reason.EntryRefused) {
				t.Errorf("in the end: %+v", p)
			}
		})
	}
}

// play is the user, on a thread that has his rights.
func play(ctx context.Context, his, outside string) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, nobody, 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, nobody, 0, 0)
	at := func(name string) string { return his + "/" + name }
	for ctx.Err() == nil {
		_ = unix.Mkdir(at("d"), 0o777)
		_ = unix.Mkdir(at("d/b"), 0o777)
		for _, name := range []string{"d/a", "d/b/c", "a"} {
			if fd, err := unix.Open(at(name), unix.O_CREAT|unix.O_WRONLY|unix.O_NOFOLLOW, 0o666); err == nil {
				unix.Close(fd)
			}
		}
		_ = unix.Rename(at("d"), at("e"))
		_ = unix.Symlink(outside+"/d", at("d"))
		_ = unix.Link(outside+"/a", at("link"))
		_ = unix.Renameat2(unix.AT_FDCWD, at("d"), unix.AT_FDCWD, at("e"), unix.RENAME_EXCHANGE)
		_ = unix.Mkfifo(at("f"), 0o666)
		_ = unix.Rename(at("e/b"), at("b"))
		_ = unix.Symlink(outside, at("e/b"))
		_ = unix.Unlink(at("a"))
		_ = unix.Symlink(outside+"/a", at("a"))
		_ = unix.Renameat2(unix.AT_FDCWD, at("d"), unix.AT_FDCWD, at("e"), unix.RENAME_EXCHANGE)
		for _, name := range []string{"a", "d", "f", "link", "e/b", "e", "d/b"} {
			_ = unix.Unlink(at(name))
		}
	}
}

// mountsVariable is set where a test runs in a mount namespace of its own.
const mountsVariable = "TAKO_TREE_TEST_INSIDE"

// TestTreeStaysOutOfMounts runs in a mount namespace of its own.
func TestTreeStaysOutOfMounts(t *testing.T) {
	needsRoot(t)
	if os.Getenv(mountsVariable) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", exe, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), mountsVariable+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil && strings.Contains(string(out), "unshare failed") {
			t.Skipf("needs permission to create namespaces: %s", out)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("in a namespace: %v\n%s", err, out)
		}
		return
	}
	w := newWood(t)
	w.fill("a", "mounted/", "bound/", "later/x", "d/e")
	w.must(os.MkdirAll(w.path("other/sub"), 0o755))
	w.must(os.WriteFile(w.path("other/sub/file"), []byte("mine"), 0o640))
	w.must(unix.Mount("tmpfs", w.path("tree/mounted"), "tmpfs", 0, ""))
	w.must(os.WriteFile(w.path("tree/mounted/file"), nil, 0o640))
	w.must(unix.Mount(w.path("other"), w.path("tree/bound"), "", unix.MS_BIND, ""))
	unmount := func(name string) { w.must(unix.Unmount(w.path("tree/"+name), unix.MNT_DETACH)) }
	defer unmount("mounted")
	defer unmount("bound")
	r := w.bindTree(declare.Directory{Purge: true, Recurse: &declare.Recurse{FileMode: "0600"}})
	p := w.look(r)
	w.must(p.Err)
	// What is mounted between check and apply is as safe.
	w.must(unix.Mount(w.path("other"), w.path("tree/later"), "", unix.MS_BIND, ""))
	defer unmount("later")
	res := w.carryOut(p)
	want := []string{"bound/", "bound/sub/", "bound/sub/file", "later/", "later/sub/", "later/sub/file", "mounted/", "mounted/file"}
	if got := w.names(); !reason.Is(res.Err, reason.ConcurrentEdit) || !slices.Equal(got, want) {
		t.Errorf("%+v, left %q, want %q", res, got, want)
	}
	if got := w.ground.look("other/sub/file"); got.mode != "0640" {
		t.Errorf("in a mount: %+v", got)
	}
}
