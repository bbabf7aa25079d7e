package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

func hostRoot(t testing.TB) *disk.Root {
	t.Helper()
	r, err := disk.OpenRoot("/")
	disktest.Must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// told collects what a Watcher tells.
type told struct {
	mu     sync.Mutex
	marked map[ID]int
	lost   int
	blind  map[ID]bool
	fence  ID // the last fence's, negative
}

func (k *told) sink(events []Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range events {
		if e.Overflow {
			k.lost++
		}
		for _, id := range e.IDs {
			k.marked[id]++
			k.blind[id] = e.Unwatched
		}
	}
}

// clear forgets the marks.
func (k *told) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.marked)
}

func (k *told) has(id ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.marked[id] > 0
}

// watching runs a Watcher for the time of a test.
func watching(t *testing.T, r *disk.Root) (*Watcher, *told) {
	t.Helper()
	w, err := New(r)
	disktest.Must(t, err)
	t.Cleanup(func() { w.Close() })
	k := &told{marked: map[ID]int{}, blind: map[ID]bool{}}
	running(t, func(ctx context.Context) error { return w.Run(ctx, k.sink) })
	return w, k
}

// fenced waits until everything that was done before has been told: a file of its own is the last to change. Each fence has
// another file and ID, because one change makes several events and the later ones would let the next fence through.
func fenced(t *testing.T, w *Watcher, k *told, fence string) {
	t.Helper()
	k.mu.Lock()
	k.fence--
	id := k.fence
	k.mu.Unlock()
	fence = fmt.Sprint(fence, id)
	disktest.Must(t, w.Watch(fence, id))
	disktest.Must(t, os.WriteFile(fence, nil, 0o644))
	eventually(t, func() string {
		if k.has(id) {
			return ""
		}
		return "the fence is not told"
	})
	w.Unwatch(fence, id)
}

// wantMarks does something and checks who is marked by it.
func wantMarks(t *testing.T, w *Watcher, k *told, fence, what string, do func() error, want ...ID) {
	t.Helper()
	fenced(t, w, k, fence)
	k.clear()
	if err := do(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	fenced(t, w, k, fence)
	k.mu.Lock()
	defer k.mu.Unlock()
	var got []ID
	for id := range k.marked {
		if id >= 0 {
			got = append(got, id)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: marked %v, want %v", what, got, want)
	}
}

func TestThousandFilesTwoWatches(t *testing.T) {
	r := hostRoot(t)
	dir := t.TempDir()
	w, err := New(r)
	disktest.Must(t, err)
	defer w.Close()
	for i := range 1000 {
		disktest.Must(t, w.Watch(fmt.Sprintf("%s/%d", dir, i), ID(i)))
	}
	if s := w.Stats(); s.Watches > 2 || s.Unwatched != 0 {
		t.Errorf("%+v", s)
	}
	for i := range 1000 {
		w.Unwatch(fmt.Sprintf("%s/%d", dir, i), ID(i))
	}
	if s := w.Stats(); s.Watches != 0 || len(w.ways) != 0 {
		t.Errorf("after unwatch: %+v, %d ways", s, len(w.ways))
	}
}

func TestEveryChangeIsTold(t *testing.T) {
	base := t.TempDir()
	fence := filepath.Join(t.TempDir(), "fence")
	r := hostRoot(t)
	disktest.Tree(t, base, "d/f", "d/g", "d/sub/")
	w, k := watching(t, r)
	p := base + "/d/f"
	disktest.Must(t, w.Watch(p, 1))
	disktest.Must(t, w.Watch(p, 4))
	disktest.Must(t, w.Watch(base+"/d/sub", 2))
	disktest.Must(t, w.WatchDir(base+"/d", 3))
	open, err := os.OpenFile(p, os.O_APPEND|os.O_RDWR, 0)
	disktest.Must(t, err)
	defer open.Close()
	for _, c := range []struct {
		what string
		do   func() error
		want []ID
	}{
		{"append by an open file", func() error { _, err := open.WriteString("more"); return err }, []ID{1, 3, 4}},
		{"truncate", func() error { return os.Truncate(p, 1) }, []ID{1, 3, 4}},
		{"chmod", func() error { return os.Chmod(p, 0o600) }, []ID{1, 3, 4}},
		{"read", func() error { _, err := os.ReadFile(p); return err }, nil},
		{"rename over", func() error { return os.Rename(base+"/d/g", p) }, []ID{1, 3, 4}},
		{"append to what is unlinked", func() error { _, err := open.WriteString("more"); return err }, nil},
		{"unlink", func() error { return os.Remove(p) }, []ID{1, 3, 4}},
		{"directory instead", func() error { return os.Mkdir(p, 0o755) }, []ID{1, 3, 4}},
		{"rmdir", func() error { return os.Remove(p) }, []ID{1, 3, 4}},
		{"symlink instead", func() error { return os.Symlink("g", p) }, []ID{1, 3, 4}},
		{"chmod of a directory", func() error { return os.Chmod(base+"/d/sub", 0o700) }, []ID{2, 3}},
		{"something else", func() error { return os.WriteFile(base+"/d/other", nil, 0o644) }, []ID{3}},
		{"our temporaries", func() error { return os.WriteFile(base+"/d/"+disk.TempName("f"), nil, 0o644) }, nil},
		{"directory moved away", func() error { return os.Rename(base+"/d", base+"/e") }, []ID{1, 2, 3, 4}},
		{"change in what was moved away", func() error { return os.WriteFile(base+"/e/f2", nil, 0o644) }, nil},
		{"another in its place", func() error { return os.Mkdir(base+"/d", 0o755) }, []ID{1, 2, 3, 4}},
		{"file in it", func() error { return os.WriteFile(p, nil, 0o644) }, []ID{1, 3, 4}},
		{"the old one back", func() error { return errors.Join(os.RemoveAll(base+"/d"), os.Rename(base+"/e", base+"/d")) }, []ID{1, 2, 3, 4}},
	} {
		wantMarks(t, w, k, fence, c.what, c.do, c.want...)
	}
	w.Unwatch(p, 1)
	wantMarks(t, w, k, fence, "after unwatch", func() error { os.Remove(p); return os.WriteFile(p, nil, 0o644) }, 3, 4)
	w.UnwatchDir(base+"/d", 3)
	wantMarks(t, w, k, fence, "after unwatch of the directory", func() error { return os.Chmod(p, 0o600) }, 4)
}

// TestMissingDirectories: case 4, somebody else makes all directories at once.
func TestMissingDirectories(t *testing.T) {
	r := hostRoot(t)
	base := t.TempDir()
	w, k := watching(t, r)
	for i := range 50 {
		k.clear()
		top := fmt.Sprintf("%s/%d", base, i)
		p := top + "/a/b/c/f"
		disktest.Must(t, w.Watch(p, ID(i)))
		disktest.Must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		disktest.Must(t, os.WriteFile(p, nil, 0o644))
		fenced(t, w, k, base+"/fence")
		if !k.has(ID(i)) {
			t.Fatalf("round %d: nothing was told", i)
		}
		k.clear()
		disktest.Must(t, os.WriteFile(p, []byte("x"), 0o644))
		fenced(t, w, k, base+"/fence")
		if !k.has(ID(i)) {
			t.Fatalf("round %d: the file itself is not watched", i)
		}
		w.Unwatch(p, ID(i))
	}
	if s := w.Stats(); s.Watches > 2 {
		t.Errorf("watches are left: %+v", s)
	}
}

// TestSubscribeBesideSomebody: directories appear while the way to them is walked for the first time.
func TestSubscribeBesideSomebody(t *testing.T) {
	r := hostRoot(t)
	base := t.TempDir()
	w, k := watching(t, r)
	for i := range 300 {
		p := fmt.Sprintf("%s/%d/a/b/c/f", base, i)
		start := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-start
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Error(err)
			}
		})
		close(start)
		disktest.Must(t, w.Watch(p, ID(i)))
		both.Wait()
		fenced(t, w, k, base+"/fence")
		k.clear()
		disktest.Must(t, os.WriteFile(p, nil, 0o644))
		fenced(t, w, k, base+"/fence")
		if !k.has(ID(i)) {
			t.Fatalf("round %d: nothing was told", i)
		}
		w.Unwatch(p, ID(i))
	}
}

func TestSymlinksOnTheWay(t *testing.T) {
	r := hostRoot(t)
	base := t.TempDir()
	fence := filepath.Join(t.TempDir(), "fence")
	disktest.Tree(t, base, "rel/1/conf/f", "rel/2/conf/f")
	disktest.Must(t, os.Symlink("rel/1", base+"/current"))
	w, k := watching(t, r)
	disktest.Must(t, w.Watch(base+"/current/conf/f", 1))
	wantMarks(t, w, k, fence, "change", func() error { return os.Chmod(base+"/rel/1/conf/f", 0o600) }, 1)
	wantMarks(t, w, k, fence, "swap", func() error {
		if err := os.Symlink("rel/2", base+"/next"); err != nil {
			return err
		}
		return os.Rename(base+"/next", base+"/current")
	}, 1)
	wantMarks(t, w, k, fence, "old release", func() error { return os.Chmod(base+"/rel/1/conf/f", 0o644) })
	wantMarks(t, w, k, fence, "new release", func() error { return os.Chmod(base+"/rel/2/conf/f", 0o600) }, 1)
	wantMarks(t, w, k, fence, "link removed", func() error { return os.Remove(base + "/current") }, 1)
	wantMarks(t, w, k, fence, "directory instead", func() error { return os.MkdirAll(base+"/current/conf", 0o755) }, 1)
	wantMarks(t, w, k, fence, "file in it", func() error { return os.WriteFile(base+"/current/conf/f", nil, 0o644) }, 1)
}

func TestUnmountIsTold(t *testing.T) {
	r := hostRoot(t)
	dir := disktest.Mounted(t, "size=64k")
	fence := filepath.Join(t.TempDir(), "fence")
	disktest.Tree(t, dir, "f")
	w, k := watching(t, r)
	disktest.Must(t, w.Watch(dir+"/f", 1))
	wantMarks(t, w, k, fence, "change", func() error { return os.Chmod(dir+"/f", 0o600) }, 1)
	wantMarks(t, w, k, fence, "unmount", func() error { return unix.Unmount(dir, 0) }, 1)
	wantMarks(t, w, k, fence, "file below", func() error { return os.WriteFile(dir+"/f", nil, 0o644) }, 1)
}

func TestOverflow(t *testing.T) {
	r := hostRoot(t)
	base := t.TempDir()
	disktest.Tree(t, base, "d/f")
	w, err := New(r)
	disktest.Must(t, err)
	t.Cleanup(func() { w.Close() })
	disktest.Must(t, w.Watch(base+"/d/f", 1))
	overflow := make([]byte, inotifyHeader)
	binary.NativeEndian.PutUint32(overflow, ^uint32(0))
	binary.NativeEndian.PutUint32(overflow[4:], unix.IN_Q_OVERFLOW)
	// The directory was replaced, and the events that say so were lost.
	disktest.Must(t, os.Rename(base+"/d", base+"/e"))
	disktest.Tree(t, base, "d/f")
	drain(t, w)
	if events := w.take(overflow); len(events) != 1 || !events[0].Overflow || w.Stats().Overflows != 1 {
		t.Errorf("%+v, %+v", events, w.Stats())
	}
	disktest.Must(t, os.Chmod(base+"/d/f", 0o600))
	if events := w.take(drain(t, w)); len(events) != 1 || !slices.Equal(events[0].IDs, []ID{1}) || events[0].Name != "f" {
		t.Errorf("after an overflow: %+v", events)
	}
}

// drain reads what the kernel has queued, without giving it to anybody.
func drain(t *testing.T, w *Watcher) []byte {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(w.fd, buf)
	if err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	return buf[:max(n, 0)]
}

// TestWatchLimit lowers the limits of a user namespace of its own: the host's stay as they are.
func TestWatchLimit(t *testing.T) {
	if limits := os.Getenv(disktest.AgainEnv); limits != "" {
		inWatchLimit(t, limits)
		return
	}
	disktest.NeedRoot(t)
	for _, limits := range []string{"3 watches", "0 instances"} {
		n, what, _ := strings.Cut(limits, " ")
		dir := t.TempDir()
		script := `echo ` + n + ` >/proc/sys/user/max_inotify_` + what + ` && exec "$0" -test.run='^TestWatchLimit$' -test.v`
		cmd := exec.Command("unshare", "--user", "--map-root-user", "sh", "-c", script, os.Args[0])
		cmd.Env = append(os.Environ(), disktest.AgainEnv+"="+dir+" "+limits)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), "=== RUN") {
			t.Skipf("needs user namespaces: %v\n%s", err, out)
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", limits, err, out)
		}
	}
}

func inWatchLimit(t *testing.T, env string) {
	dir, limits, _ := strings.Cut(env, " ")
	raise := func(n string) {
		_, what, _ := strings.Cut(limits, " ")
		disktest.Must(t, os.WriteFile("/proc/sys/user/max_inotify_"+what, []byte(n), 0o644))
	}
	disktest.Tree(t, dir, "a/f", "b/f")
	w, k := watching(t, hostRoot(t))
	errA := w.Watch(dir+"/a/f", 1)
	errB := w.Watch(dir+"/b/f", 2)
	want := []ID{1, 2}
	if limits == "3 watches" {
		// a and dir make two; b is the third; then nothing is left for a third directory.
		disktest.Must(t, errA)
		disktest.Must(t, errB)
		disktest.Tree(t, dir, "c/f")
		want = []ID{3}
	} else {
		disktest.WantCode(t, errA, reason.WatchLimit)
	}
	disktest.WantCode(t, w.Watch(dir+"/c/f", 3), reason.WatchLimit)
	if limits != "3 watches" {
		want = append(want, 3)
	}
	if got := w.Unwatched(); !slices.Equal(got, want) || w.Stats().Unwatched != len(want) {
		t.Errorf("unwatched %v, want %v", got, want)
	}
	if got := w.Retry(); len(got) != 0 {
		t.Errorf("retry below the limit: %v", got)
	}
	raise("100")
	if got := w.Retry(); !slices.Equal(got, want) || len(w.Unwatched()) != 0 {
		t.Errorf("retry: %v, unwatched %v; want %v", got, w.Unwatched(), want)
	}
	os.MkdirAll(dir+"/c", 0o755)
	disktest.Must(t, os.WriteFile(dir+"/c/f", nil, 0o644))
	eventually(t, func() string {
		if k.has(3) {
			return ""
		}
		return "3 is not told"
	})
}

func TestRunEnds(t *testing.T) {
	w, err := New(hostRoot(t))
	disktest.Must(t, err)
	defer w.Close()
	for range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- w.Run(ctx, func([]Event) {}) }()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run ended with %v", err)
		}
	}
}

func FuzzParseNotices(f *testing.F) {
	event := func(wd int32, mask, size uint32, name string) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(wd))
		b = binary.NativeEndian.AppendUint32(b, mask)
		b = binary.NativeEndian.AppendUint32(b, 0)
		b = binary.NativeEndian.AppendUint32(b, size)
		return append(b, name...)
	}
	good := append(event(1, unix.IN_CREATE, 8, "name\x00\x00\x00\x00"), event(-1, unix.IN_Q_OVERFLOW, 0, "")...)
	var got []notice
	if err := parseNotices(good, func(n notice) { got = append(got, n) }); err != nil || !slices.Equal(got, []notice{{1, unix.IN_CREATE, "name"}, {-1, unix.IN_Q_OVERFLOW, ""}}) {
		f.Fatalf("%+v, %v", got, err)
	}
	f.Add(good)
	f.Add(good[:20])
	f.Add(event(1, 1, ^uint32(0), "x"))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		size, count := 0, 0
		_ = parseNotices(b, func(n notice) { size += len(n.name); count++ })
		if size+count*inotifyHeader > len(b) {
			t.Errorf("%d events with %d bytes of names out of %d bytes", count, size, len(b))
		}
	})
}

// TestAttributesAreTold: of a file and of a directory, and also where nothing else changes.
func TestAttributesAreTold(t *testing.T) {
	disktest.NeedRoot(t)
	dir := t.TempDir()
	disktest.Tree(t, dir, "f", "d/")
	if err := unix.Setxattr(dir+"/f", "user.probe", nil, 0); err != nil {
		t.Skipf("needs extended attributes in %s: %v", dir, err)
	}
	w, k := watching(t, hostRoot(t))
	disktest.Must(t, w.Watch(dir+"/f", 1))
	disktest.Must(t, w.Watch(dir+"/d", 2))
	fence := filepath.Join(t.TempDir(), "fence")
	list := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 254, 255, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255}
	for _, name := range []string{"user.x", "trusted.x", "system.posix_acl_access"} {
		value := []byte("y")
		if name == "system.posix_acl_access" {
			value = list
		}
		wantMarks(t, w, k, fence, "set "+name, func() error { return unix.Setxattr(dir+"/f", name, value, 0) }, 1)
		wantMarks(t, w, k, fence, "remove "+name, func() error { return unix.Removexattr(dir+"/f", name) }, 1)
	}
	wantMarks(t, w, k, fence, "the default list of a directory", func() error { return unix.Setxattr(dir+"/d", "system.posix_acl_default", list, 0) }, 2)
}
