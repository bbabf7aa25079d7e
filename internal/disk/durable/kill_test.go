package durable

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/disk/disktest"
)

// TestKilledAtEverySystemCall kills a replacement as it enters each of its system calls: the file is the old one or the new
// one, with the old mode or the new one to match, and what is left is swept.
func TestKilledAtEverySystemCall(t *testing.T) {
	if dir := os.Getenv(disktest.AgainEnv); dir != "" {
		spec := textSpec(dir+"/f", strings.Repeat("new", 100_000))
		spec.Mode = 0o600
		write(t, hostRoot(t), spec)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	r := hostRoot(t)
	olds, news, swept := 0, 0, 0
	for _, call := range []string{"openat2", "openat", "pwrite64", "fchown", "fremovexattr", "fchmod", "statx", "fsync", "renameat", "unlinkat"} {
		for n := 1; ; n++ {
			if n > 100 {
				t.Fatalf("%s is called without end", call)
			}
			dir := t.TempDir()
			p := filepath.Join(dir, "f")
			disktest.Must(t, os.WriteFile(p, []byte("old"), 0o644))
			cmd := exec.Command(strace, "-f", "-qq", "-o", os.DevNull, "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n),
				os.Args[0], "-test.run=^TestKilledAtEverySystemCall$")
			cmd.Env = append(os.Environ(), disktest.AgainEnv+"="+dir)
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "strace:") {
				t.Skipf("needs strace: %s", out)
			}
			k, sweepErr := SweepTemporaries(bg, r, []string{dir}, nil)
			disktest.Must(t, sweepErr)
			swept += k
			wantNoTemporaries(t, dir)
			b, readErr := os.ReadFile(p)
			disktest.Must(t, readErr)
			st, statErr := os.Stat(p)
			disktest.Must(t, statErr)
			switch {
			case string(b) == "old" && st.Mode() == 0o644:
				olds++
			case len(b) == 300_000 && string(b[:3]) == "new" && st.Mode() == 0o600:
				news++
			default:
				t.Fatalf("killed at %s %d: %d bytes, mode %v", call, n, len(b), st.Mode())
			}
			if err == nil {
				break
			}
		}
	}
	if olds == 0 || news == 0 || swept == 0 {
		t.Errorf("the kills did not reach the write: %d old, %d new, %d temporaries swept", olds, news, swept)
	}
	t.Logf("%d times old, %d times new, %d temporaries swept", olds, news, swept)
}
