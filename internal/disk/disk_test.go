package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// nobody is an ordinary user that owns nothing.
const nobody = 65534

// nobodyEnv names the directory in which a test that runs again as an ordinary user works.
const nobodyEnv = "DISK_TEST_NOBODY"

func hostRoot(t testing.TB) *Root {
	t.Helper()
	return rootAt(t, "/")
}

func rootAt(t testing.TB, dir string) *Root {
	t.Helper()
	r, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// asNobody runs the calling test once more in a process of an ordinary user, in a directory of his, and reports whether
// this is that process; dir is the directory there.
func asNobody(t *testing.T) (dir string, inside bool) {
	t.Helper()
	if dir := os.Getenv(nobodyEnv); dir != "" {
		return dir, true
	}
	needRoot(t)
	// Not TempDir: an ordinary user must be able to reach it.
	base, err := os.MkdirTemp("", "disk-nobody-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	must(t, os.Chown(base, nobody, nobody))
	exe := filepath.Join(base, "test")
	b, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(exe, b, 0o755))
	must(t, os.Mkdir(filepath.Join(base, "work"), 0o755))
	must(t, os.Chown(filepath.Join(base, "work"), nobody, nobody))
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = base
	cmd.Env = append(os.Environ(), nobodyEnv+"="+filepath.Join(base, "work"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	return "", false
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want reason.Code) {
	t.Helper()
	if !reason.Is(err, want) {
		t.Errorf("error %v, want code %v", err, want)
	}
}

func wantFile(t *testing.T, p, text string) {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil || string(b) != text {
		t.Errorf("%q holds %.40q, %v; want %.40q", p, b, err, text)
	}
}

func wantNoTemporaries(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// textSpec is a spec with the defaults of most tests.
func textSpec(p, text string) WriteSpec {
	return WriteSpec{Path: p, Content: strings.NewReader(text), Size: int64(len(text)), Mode: 0o644, UID: Keep, GID: Keep}
}

func write(t *testing.T, r *Root, spec WriteSpec) WriteResult {
	t.Helper()
	res, err := r.Write(context.Background(), spec)
	if err != nil {
		t.Fatalf("write %q: %v (%v)", spec.Path, err, errors.Unwrap(err))
	}
	st, err := r.Stat(spec.Path)
	if err != nil || st.Signature != res.Signature {
		t.Fatalf("write %q: signature %+v, but there is %+v (%v)", spec.Path, res.Signature, st.Signature, err)
	}
	return res
}

// mounted mounts a small tmpfs and unmounts it at the end.
func mounted(t *testing.T, options string) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skip("needs mount:", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}
