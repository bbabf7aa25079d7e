package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The holder of the lock is this test's binary run again, because a process does not
// keep itself from locking.
func TestLockHolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	if name := os.Getenv("TAKO_TEST_HOLD_LOCK"); name != "" {
		holdLock(t, name)
		return
	}
	if holder, err := LockHolder(file); holder != "" || err != nil {
		t.Errorf("a file that is not there is held by %q (%v)", holder, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if holder, err := LockHolder(file); holder != "" || err != nil {
		t.Errorf("a free file is held by %q (%v)", holder, err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockHolder$")
	cmd.Env = append(os.Environ(), "TAKO_TEST_HOLD_LOCK="+file)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 7)
	if _, err := stdout.Read(buf); err != nil || !strings.HasPrefix(string(buf), "locked") {
		t.Fatalf("the holder said %q (%v)", buf, err)
	}
	holder, err := LockHolder(file)
	if want := "pid " + strconv.Itoa(cmd.Process.Pid) + " (" + filepath.Base(os.Args[0]); err != nil || !strings.HasPrefix(holder, want[:min(len(want), 20)]) {
		t.Errorf("held by %q (%v), want %q", holder, err, want)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if holder, err := LockHolder(file); holder != "" || err != nil {
		t.Errorf("a file that was given back is held by %q (%v)", holder, err)
	}
}

// holdLock locks a file until its standard input ends.
func holdLock(t *testing.T, name string) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("locked\n")
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		t.Error("somebody spoke")
	}
}
