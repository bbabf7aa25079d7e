package file_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

// TestFileRace: a user to whom the directory of a declared file belongs puts links to what is not his, pipes and directories in its place, and a link in the
// place of its directory, as fast as he can, while the file is repaired. Nothing outside is ever written or given to him, nothing hangs, every error has a
// code, and the file is as declared when he has had enough.
func TestFileRace(t *testing.T) {
	needsRoot(t)
	for _, owner := range []string{"root", "nobody"} {
		t.Run(owner, func(t *testing.T) {
			g := newGround(t)
			for dir := g.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
				g.must(os.Chmod(dir, 0o755))
			}
			his, outside := g.path("his"), g.path("outside")
			for _, dir := range []string{his + "/conf", outside} {
				g.must(os.MkdirAll(dir, 0o755))
			}
			for _, name := range []string{his, his + "/conf"} {
				g.must(os.Chown(name, nobody, nobody))
			}
			g.must(os.WriteFile(outside+"/app.conf", []byte("a root's own\n"), 0o640))
			before := hosttest.Tree(t, outside)
			ctx, stop := context.WithCancel(t.Context())
			var user sync.WaitGroup
			user.Go(func() { swap(ctx, his, outside) })
			r := g.bindFile(declare.File{Path: his + "/conf/app.conf", Content: "declared\n", Mode: "0666", Owner: owner, Force: true})
			rounds, done, refused := 0, 0, map[reason.Code]int{}
			for until := time.Now().Add(treeRaceTime); time.Now().Before(until) && (rounds < treeRaceEnough || done == 0); rounds++ {
				p := g.check(r, host.Deep)
				if p.Err == nil && !p.Empty() {
					res := g.Apply(t.Context(), []host.Plan{p})[0]
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
			if after := hosttest.Tree(t, outside); after != before {
				t.Errorf("outside was touched:\n%s\n%s", before, after)
			}
			if refused[reason.InternalFault] > 0 || done == 0 {
				t.Error("see above")
			}
			// The directory may be a link in the end, which is his to put right.
			g.must(os.RemoveAll(his))
			g.must(os.MkdirAll(his+"/conf", 0o755))
			g.converge(r)
			if b, err := os.ReadFile(his + "/conf/app.conf"); string(b) != "declared\n" {
				t.Errorf("in the end it holds %q, %v", b, err)
			}
		})
	}
}

// swap is the user, on a thread that has his rights.
func swap(ctx context.Context, his, outside string) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, nobody, 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, nobody, 0, 0)
	conf, file, other := his+"/conf", his+"/conf/app.conf", his+"/other"
	for ctx.Err() == nil {
		_ = unix.Unlink(file)
		_ = unix.Symlink(outside+"/app.conf", file)
		_ = unix.Unlink(file)
		_ = unix.Link(outside+"/app.conf", file)
		_ = unix.Unlink(file)
		_ = unix.Mkfifo(file, 0o666)
		_ = unix.Unlink(file)
		_ = unix.Mkdir(file, 0o777)
		_ = unix.Rmdir(file)
		if fd, err := unix.Open(file, unix.O_CREAT|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666); err == nil {
			_, _ = unix.Write(fd, []byte("his\n"))
			_ = unix.Ftruncate(fd, 1<<40) // what is hashed has no end
			unix.Close(fd)
		}
		// Another directory, and a link, in the place of that of the file.
		_ = unix.Symlink(outside, other)
		_ = unix.Renameat2(unix.AT_FDCWD, conf, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		_ = unix.Renameat2(unix.AT_FDCWD, conf, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		_ = unix.Unlink(other)
	}
}
