package watch

import (
	"os"
	"testing"

	"tako.dev/tako/internal/disk/disktest"
)

// TestWatchNames: who watches which entries there are is not told of what is written into them.
func TestWatchNames(t *testing.T) {
	top := t.TempDir()
	dir, fence := top+"/d", top+"/fence"
	disktest.Must(t, os.Mkdir(dir, 0o755))
	disktest.Must(t, os.WriteFile(dir+"/a", []byte("a"), 0o644))
	w, k := watching(t, hostRoot(t))
	disktest.Must(t, w.WatchNames(dir, 1))
	disktest.Must(t, w.WatchDir(dir, 2))
	disktest.Must(t, w.Watch(dir+"/a", 3))
	if !w.Watches(dir, "x") {
		t.Error("nobody watches")
	}
	wantMarks(t, w, k, fence, "write", func() error { return os.WriteFile(dir+"/a", []byte("b"), 0o644) }, 2, 3)
	wantMarks(t, w, k, fence, "change the mode", func() error { return os.Chmod(dir+"/a", 0o600) }, 1, 2, 3)
	wantMarks(t, w, k, fence, "make", func() error { return os.Mkdir(dir+"/b", 0o755) }, 1, 2)
	wantMarks(t, w, k, fence, "rename", func() error { return os.Rename(dir+"/b", dir+"/c") }, 1, 2)
	wantMarks(t, w, k, fence, "remove", func() error { return os.Remove(dir + "/c") }, 1, 2)
	wantMarks(t, w, k, fence, "move the directory", func() error { return os.Rename(dir, dir+"2") }, 1, 2, 3)
	wantMarks(t, w, k, fence, "move it back", func() error { return os.Rename(dir+"2", dir) }, 1, 2, 3)
	w.UnwatchDir(dir, 2)
	w.Unwatch(dir+"/a", 3)
	wantMarks(t, w, k, fence, "write", func() error { return os.WriteFile(dir+"/a", []byte("c"), 0o644) })
	w.UnwatchNames(dir, 1)
	wantMarks(t, w, k, fence, "remove", func() error { return os.Remove(dir + "/a") })
	if n := w.Stats().Watches; n != 0 {
		t.Errorf("%d watches are left", n)
	}
}
