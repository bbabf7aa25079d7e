package bell_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run/bell"
)

func rung(t *testing.T, fd int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, 0); err != nil {
		t.Fatal(err)
	}
	return fds[0].Revents != 0
}

func listen(t *testing.T, path string) int {
	t.Helper()
	fd, err := bell.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func TestBell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bell")
	if err := bell.Ring(path); err != nil {
		t.Errorf("where there is none: %v", err)
	}
	fd := listen(t, path)
	if rung(t, fd) {
		t.Error("it has rung by itself")
	}
	for range 100_000 { // more than a pipe holds
		if err := bell.Ring(path); err != nil {
			t.Fatal(err)
		}
	}
	if !rung(t, fd) {
		t.Error("nothing was heard")
	}
	bell.Quiet(fd)
	if rung(t, fd) {
		t.Error("it still rings")
	}
	second := listen(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := bell.Strike(second); err != nil || !rung(t, fd) {
		t.Errorf("when the path is gone: %v", err)
	}
}

func TestBellRefused(t *testing.T) {
	if _, err := bell.Listen(filepath.Join(t.TempDir(), "absent", "bell")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	dir := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(dir, "bell")); err != nil {
		t.Fatal(err)
	}
	if err := bell.Ring(filepath.Join(dir, "bell")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a link: %v", err)
	}
}
