package durable

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/disktest"
)

// TestSweeper: what a killed run has left in a directory is removed, whichever path it was for; what is younger than the sweeper, and what is not
// ours, stays.
func TestSweeper(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	temps, keep := []string{disk.TempName("one"), disk.TempName("two")}, []string{"mine", ".tako.short"}
	disktest.Tree(t, dir, append(temps, keep...)...)
	last, err := r.Stat(filepath.Join(dir, temps[1]))
	disktest.Must(t, err)
	first, err := r.Stat(filepath.Join(dir, temps[0]))
	disktest.Must(t, err)
	there := func(names []string, is bool) {
		t.Helper()
		for _, name := range names {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil != is {
				t.Errorf("%s is there: %v", name, err)
			}
		}
	}
	s := NewSweeper(r)
	for _, run := range []struct {
		started int64
		left    bool
	}{{first.Ctime, true}, {last.Ctime + 1, false}} {
		s.started = run.started
		disktest.Must(t, s.Sweep(bg, []string{dir, dir + "/missing"}))
		there(temps, run.left)
		there(keep, true)
	}
	stopped, cancel := context.WithCancel(bg)
	cancel()
	if err := s.Sweep(stopped, []string{dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("after it was stopped: %v", err)
	}
}
