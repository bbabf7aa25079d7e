package disk

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

var bg = context.Background()

func TestMkdir(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "d")
	sig, err := r.Mkdir(bg, MkdirSpec{Path: p, Mode: 0o2750, UID: Keep, GID: Keep})
	must(t, err)
	if st, _ := r.Stat(p); st.Signature != sig || sig.Perm() != 0o2750 || sig.Kind() != "directory" {
		t.Errorf("made %+v, there is %+v", sig, st)
	}
	_, err = r.Mkdir(bg, MkdirSpec{Path: p, Mode: 0o755, UID: Keep, GID: Keep})
	wantCode(t, err, reason.ConcurrentEdit)
	_, err = r.Mkdir(bg, MkdirSpec{Path: dir + "/x/y", Mode: 0o755, UID: Keep, GID: Keep})
	wantCode(t, err, reason.ParentMissing)
	wantNoTemporaries(t, dir)
}

func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "l")
	spec := SymlinkSpec{Path: p, Target: "one", UID: Keep, GID: Keep, Expect: &Signature{}}
	sig, err := r.Symlink(bg, spec)
	must(t, err)
	if st, _ := r.Stat(p); st.Signature != sig {
		t.Errorf("made %+v, there is %+v", sig, st)
	}
	_, err = r.Symlink(bg, spec)
	wantCode(t, err, reason.ConcurrentEdit)
	spec.Expect, spec.Target = &sig, "two"
	if sig, err = r.Symlink(bg, spec); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.Readlink(p); got != "two" {
		t.Errorf("target %q", got)
	}
	d, _, err := r.Parent(p)
	must(t, err)
	defer d.Close()
	if got, err := d.Readlink("l"); got != "two" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	must(t, os.WriteFile(dir+"/f", nil, 0o644))
	spec = SymlinkSpec{Path: dir + "/f", Target: "x", UID: Keep, GID: Keep}
	_, err = r.Symlink(bg, spec)
	wantCode(t, err, reason.TypeInTheWay)
	spec.Force = true
	_, err = r.Symlink(bg, spec)
	must(t, err)
	wantNoTemporaries(t, dir)
}

func TestSetAttributesNeverFollows(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	r := hostRoot(t)
	tree(t, dir, "f", "l -> f")
	before, err := r.Stat(dir + "/f")
	must(t, err)
	if _, err := r.Chmod(bg, dir+"/l", 0o600, nil); !reason.Is(err, reason.TypeInTheWay) {
		t.Errorf("chmod of a symlink: %v", err)
	}
	sig, err := r.Chown(bg, dir+"/l", 7, 8, nil)
	if err != nil || sig.UID != 7 || sig.GID != 8 {
		t.Errorf("chown of a symlink: %+v, %v", sig, err)
	}
	if after, _ := r.Stat(dir + "/f"); after != before {
		t.Errorf("the target changed: %+v, %+v", before, after)
	}
	sig, err = r.SetAttributes(bg, AttributeSpec{Path: dir + "/f", Mode: 0o4711, UID: 7, GID: Keep, Expect: &before.Signature})
	if err != nil || sig.Perm() != 0o4711 || sig.UID != 7 || sig.GID != before.GID {
		t.Errorf("set: %+v, %v", sig, err)
	}
	if st, _ := r.Stat(dir + "/f"); st.Signature != sig {
		t.Errorf("signature %+v, there is %+v", sig, st)
	}
	_, err = r.Chmod(bg, dir+"/f", 0o600, &before.Signature)
	wantCode(t, err, reason.ConcurrentEdit)
	must(t, unix.Mkfifo(dir+"/p", 0o600))
	if sig, err := r.Chmod(bg, dir+"/p", 0o666, nil); err != nil || sig.Perm() != 0o666 {
		t.Errorf("fifo: %+v, %v", sig, err)
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	tree(t, dir, "f", "l -> f", "full/x/", "empty/")
	wantCode(t, r.Remove(bg, RemoveSpec{Path: dir + "/full"}), reason.DirectoryNotEmpty)
	wantCode(t, r.Remove(bg, RemoveSpec{Path: dir + "/f", Expect: &Signature{}}), reason.ConcurrentEdit)
	must(t, r.Remove(bg, RemoveSpec{Path: dir + "/l"}))
	wantCode(t, r.Remove(bg, RemoveSpec{Path: dir + "/f", OnBackup: func(*os.File, Stat) error {
		return os.Chmod(dir+"/f", 0o600)
	}}), reason.ConcurrentEdit)
	var old string
	must(t, r.Remove(bg, RemoveSpec{Path: dir + "/f", OnBackup: func(f *os.File, _ Stat) error {
		b, err := io.ReadAll(f)
		old = string(b)
		return err
	}}))
	must(t, r.Remove(bg, RemoveSpec{Path: dir + "/empty"}))
	must(t, r.Remove(bg, RemoveSpec{Path: dir + "/f"}))
	must(t, r.Remove(bg, RemoveSpec{Path: dir + "/none/f"}))
	wantCode(t, r.Remove(bg, RemoveSpec{Path: "/"}), reason.InvalidValue)
	d, err := r.Dir(dir)
	must(t, err)
	defer d.Close()
	if names, err := d.Names(10); err != nil || !slices.Equal(names, []string{"full"}) || old != "f" {
		t.Errorf("left %v, %v; backup %q", names, err, old)
	}
	_, err = d.Names(0)
	wantCode(t, err, reason.BodyTooLarge)
}

func TestRemoveMany(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, "a/x", "a/b/f", "a/b/g", "a/y")
	var specs []RemoveSpec
	for _, p := range []string{dir + "/a/x", dir + "/a/b/f", dir + "/a/b", "bad", dir + "/a/b/g", dir + "/a/b", dir + "/a/y", dir + "/a"} {
		specs = append(specs, RemoveSpec{Path: p})
	}
	for i, err := range hostRoot(t).RemoveMany(bg, specs) {
		switch i {
		case 2:
			wantCode(t, err, reason.DirectoryNotEmpty)
		case 3:
			wantCode(t, err, reason.InvalidValue)
		default:
			must(t, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestHasher(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	big := strings.Repeat("0123456789", 20_000)
	write(t, r, textSpec(dir+"/big", big))
	write(t, r, textSpec(dir+"/empty", ""))
	d, err := r.Dir(dir)
	must(t, err)
	defer d.Close()
	h := NewHasher()
	for name, text := range map[string]string{"big": big, "empty": ""} {
		sum, st, err := h.File(d, name)
		if err != nil || sum != sha256.Sum256([]byte(text)) || st.Size != int64(len(text)) {
			t.Errorf("%s: %x, %+v, %v", name, sum, st, err)
		}
	}
	if _, _, err := h.File(d, "none"); err == nil {
		t.Error("a missing file has a hash")
	}
	if _, _, err := d.ReadFile("big", 199_999); !reason.Is(err, reason.BodyTooLarge) {
		t.Errorf("limit: %v", err)
	}
}

func TestSweepTemporaries(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	for range 3 {
		must(t, os.WriteFile(filepath.Join(dir, tempName("motd")), nil, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(dir, tempName("d")), 0o700))
	must(t, os.Symlink("x", filepath.Join(dir, tempName("l"))))
	keep := []string{".tako.motd", ".tako.motd.short", ".tako..0123456789ab", "tako.motd.0123456789ab", ".tako.motd.0123456789aZ", ".tako.motd.0123456789a-"}
	tree(t, dir, keep...)
	full := filepath.Join(dir, tempName("full"))
	must(t, os.MkdirAll(full+"/x", 0o700))
	keep = append(keep, filepath.Base(full))
	n, err := r.SweepTemporaries(bg, []string{dir, dir + "/missing"}, nil)
	if err != nil || n != 5 {
		t.Errorf("removed %d, %v", n, err)
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	slices.Sort(keep)
	if !slices.Equal(names, keep) {
		t.Errorf("left %q, want %q", names, keep)
	}
}

// TestSweepKeepsOldContent: a temporary may be the old file of an exchange, of whatever owner.
func TestSweepKeepsOldContent(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	temp := filepath.Join(dir, tempName("motd"))
	must(t, os.WriteFile(temp, []byte("old"), 0o600))
	if os.Geteuid() == 0 {
		must(t, os.Chown(temp, nobody, nobody))
	}
	full := errors.New("no room")
	if n, err := r.SweepTemporaries(bg, []string{dir}, func(*os.File, Stat) error { return full }); n != 0 || !errors.Is(err, full) {
		t.Errorf("removed %d, %v", n, err)
	}
	wantFile(t, temp, "old")
	var kept string
	n, err := r.SweepTemporaries(bg, []string{dir}, func(f *os.File, _ Stat) error {
		b, err := io.ReadAll(f)
		kept = string(b)
		return err
	})
	if err != nil || n != 1 || kept != "old" {
		t.Errorf("removed %d, kept %q, %v", n, kept, err)
	}
	wantNoTemporaries(t, dir)
}

func FuzzTempName(f *testing.F) {
	for _, s := range []string{"motd", "", "\xff", strings.Repeat("ü", 127), strings.Repeat("x", 255), strings.Repeat("\x80", 255)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || len(name) > nameMax {
			return
		}
		temp := tempName(name)
		if len(temp) > nameMax || !isTemporary(temp) || temp == tempName(name) {
			t.Errorf("%q becomes %q", name, temp)
		}
	})
}

// TestOrdinaryUser: what an ordinary user may do works, and the rest is said in his words.
func TestOrdinaryUser(t *testing.T) {
	dir, inside := asNobody(t)
	if !inside {
		return
	}
	r := hostRoot(t)
	p := filepath.Join(dir, "f")
	write(t, r, textSpec(p, "one"))
	spec := textSpec(p, "two")
	spec.UID, spec.GID = nobody, nobody
	write(t, r, spec)
	spec.UID = 0
	_, err := r.Write(bg, spec)
	wantCode(t, err, reason.OwnerNeedsRoot)
	_, err = r.Chown(bg, p, 0, Keep, nil)
	wantCode(t, err, reason.OwnerNeedsRoot)
	_, err = r.Mkdir(bg, MkdirSpec{Path: dir + "/d", Mode: 0o755, UID: 0, GID: Keep})
	wantCode(t, err, reason.OwnerNeedsRoot)
	_, err = r.Write(bg, textSpec("/etc/tako-test", "x"))
	wantCode(t, err, reason.PermissionDenied)
	wantFile(t, p, "two")
	wantNoTemporaries(t, dir)

	// His own symlinks in his own directory are as good as root's.
	tree(t, dir, "real/", "way -> real")
	write(t, r, textSpec(dir+"/way/f", "x"))

	// A file that he may not read can be replaced, but not backed up.
	must(t, os.Chmod(p, 0))
	blind := textSpec(p, "three")
	blind.OnBackup = func(*os.File, Stat) error { return nil }
	_, err = r.Write(bg, blind)
	wantCode(t, err, reason.PermissionDenied)
	write(t, r, textSpec(p, "three"))

	w, err := NewWatcher(r)
	must(t, err)
	must(t, w.Watch(p, 1))
	must(t, w.Close())
	if _, err := NewWriters(r, nil); err == nil {
		t.Error("fanotify without the right to it")
	}
}

// TestOrderOfSystemCalls: from the exclusive creation with mode 0600 on, owner comes before mode, mode before fsync, fsync
// before rename, and the directory's fsync last.
func TestOrderOfSystemCalls(t *testing.T) {
	if dir := os.Getenv(nobodyEnv); dir != "" {
		spec := textSpec(dir+"/secret", "s3cret")
		spec.Mode, spec.UID, spec.GID = 0o640, os.Getuid(), os.Getgid()
		write(t, hostRoot(t), spec)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	cmd := exec.Command(strace, "-f", "-o", log, "-e", "trace=openat,pwrite64,fchown,fchmod,fsync,renameat2,renameat", os.Args[0], "-test.run=^TestOrderOfSystemCalls$")
	cmd.Env = append(os.Environ(), nobodyEnv+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs strace: %v\n%s", err, out)
	}
	f, err := os.Open(log)
	must(t, err)
	defer f.Close()
	call := regexp.MustCompile(`^\d+ +(openat\(\d+, "\.tako\.secret\.[0-9a-v]{12}", O_WRONLY\|O_CREAT\|O_EXCL\|O_NOFOLLOW\|O_CLOEXEC, 0600|pwrite64|fchown|fchmod\(\d+, 0640|fsync|renameat2.*RENAME_NOREPLACE)`)
	var got []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := call.FindStringSubmatch(lines.Text())
		if m != nil && (len(got) > 0 || strings.HasPrefix(m[1], "openat")) {
			name, _, _ := strings.Cut(m[1], "(")
			got = append(got, name)
		}
	}
	if want := "openat pwrite64 fchown fchmod fsync renameat2 fsync"; strings.Join(got, " ") != want {
		t.Errorf("calls %v, want %s", got, want)
	}
}
