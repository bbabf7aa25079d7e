// Package disktest is what the tests of disk and of the packages below it share: trees of files, an ordinary user, a small file
// system. It owns no goroutine.
package disktest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// Nobody is the number of an ordinary user and group that own nothing.
const Nobody = 65534

// AgainEnv names the environment variable by which a test that runs its own binary once more tells that process what to do,
// mostly the directory to work in.
const AgainEnv = "DISK_TEST_AGAIN"

// againTime bounds one test that runs again: a minute is more than all tests of a package take together.
const againTime = time.Minute

// NeedRoot skips a test where it is not run by root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// AsNobody runs the calling test once more in a process of an ordinary user, in a directory of his, and reports whether
// this is that process; dir is the directory there.
func AsNobody(t *testing.T) (dir string, inside bool) {
	t.Helper()
	if dir := os.Getenv(AgainEnv); dir != "" {
		return dir, true
	}
	NeedRoot(t)
	// Not TempDir: an ordinary user must be able to reach it.
	base, err := os.MkdirTemp("", "disk-nobody-")
	Must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	Must(t, os.Chown(base, Nobody, Nobody))
	exe := filepath.Join(base, "test")
	b, err := os.ReadFile("/proc/self/exe")
	Must(t, err)
	Must(t, os.WriteFile(exe, b, 0o755))
	Must(t, os.Mkdir(filepath.Join(base, "work"), 0o755))
	Must(t, os.Chown(filepath.Join(base, "work"), Nobody, Nobody))
	ctx, cancel := context.WithTimeout(t.Context(), againTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = base
	cmd.Env = append(os.Environ(), AgainEnv+"="+filepath.Join(base, "work"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	return "", false
}

// Mounted mounts a small tmpfs with mount options, unmounts it at the end, and returns its directory.
func Mounted(t *testing.T, options string) string {
	t.Helper()
	NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skip("needs mount:", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// Tree makes directories ("a/"), symlinks ("a -> b") and files ("a", which holds its name) below a directory.
func Tree(t testing.TB, base string, entries ...string) {
	t.Helper()
	for _, e := range entries {
		name, target, link := strings.Cut(e, " -> ")
		p := filepath.Join(base, name)
		switch {
		case link:
			Must(t, os.Symlink(target, p))
		case strings.HasSuffix(name, "/"):
			Must(t, os.MkdirAll(p, 0o755))
		default:
			Must(t, os.MkdirAll(filepath.Dir(p), 0o755))
			Must(t, os.WriteFile(p, []byte(name), 0o644))
		}
	}
}

// Must ends the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantCode compares the code of an error.
func WantCode(t testing.TB, err error, want reason.Code) {
	t.Helper()
	if !reason.Is(err, want) {
		t.Errorf("error %v, want code %v", err, want)
	}
}

// WantFile compares the content of a file.
func WantFile(t testing.TB, p, text string) {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil || string(b) != text {
		t.Errorf("%q holds %.40q, %v; want %.40q", p, b, err, text)
	}
}
