package host

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// stopTime bounds the wait for threads that stop, each when it next leaves the kernel: after an fsync, say.
const stopTime = time.Minute

// Stop stops a process with SIGSTOP, and returns when none of its threads runs: the signal itself only asks for that.
// SIGCONT lets it run again.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	Eventually(t, stopTime, "every thread has stopped", func() (string, bool) {
		threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/stat"))
		if err != nil || len(threads) == 0 {
			return "no threads", false
		}
		for _, path := range threads {
			stat, err := os.ReadFile(path)
			if err != nil {
				return err.Error(), false
			}
			// The state stands behind the name, which is in parentheses and may hold anything.
			if _, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" ")); !bytes.HasPrefix(state, []byte("T")) {
				return path + ": " + string(stat), false
			}
		}
		return "", true
	})
}
