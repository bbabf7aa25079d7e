package durable

import (
	"bufio"
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

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

func TestMkdir(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "d")
	sig, err := Mkdir(bg, r, MkdirSpec{Path: p, Mode: 0o2750, UID: Keep, GID: Keep})
	disktest.Must(t, err)
	if st, _ := r.Stat(p); st.Signature != sig || sig.Perm() != 0o2750 || sig.Kind() != "directory" {
		t.Errorf("made %+v, there is %+v", sig, st)
	}
	_, err = Mkdir(bg, r, MkdirSpec{Path: p, Mode: 0o755, UID: Keep, GID: Keep})
	disktest.WantCode(t, err, reason.ConcurrentEdit)
	_, err = Mkdir(bg, r, MkdirSpec{Path: dir + "/x/y", Mode: 0o755, UID: Keep, GID: Keep})
	disktest.WantCode(t, err, reason.ParentMissing)
	wantNoTemporaries(t, dir)
}

func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "l")
	spec := SymlinkSpec{Path: p, Target: "one", UID: Keep, GID: Keep, Expect: &disk.Signature{}}
	sig, err := Symlink(bg, r, spec)
	disktest.Must(t, err)
	if st, _ := r.Stat(p); st.Signature != sig {
		t.Errorf("made %+v, there is %+v", sig, st)
	}
	_, err = Symlink(bg, r, spec)
	disktest.WantCode(t, err, reason.ConcurrentEdit)
	spec.Expect, spec.Target = &sig, "two"
	if sig, err = Symlink(bg, r, spec); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.Readlink(p); got != "two" {
		t.Errorf("target %q", got)
	}
	d, _, err := r.Parent(p)
	disktest.Must(t, err)
	defer d.Close()
	if got, err := d.Readlink("l"); got != "two" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	disktest.Must(t, os.WriteFile(dir+"/f", nil, 0o644))
	spec = SymlinkSpec{Path: dir + "/f", Target: "x", UID: Keep, GID: Keep}
	_, err = Symlink(bg, r, spec)
	disktest.WantCode(t, err, reason.TypeInTheWay)
	spec.Force = true
	_, err = Symlink(bg, r, spec)
	disktest.Must(t, err)
	wantNoTemporaries(t, dir)
}

func TestSetAttributesNeverFollows(t *testing.T) {
	disktest.NeedRoot(t)
	dir := t.TempDir()
	r := hostRoot(t)
	disktest.Tree(t, dir, "f", "l -> f")
	before, err := r.Stat(dir + "/f")
	disktest.Must(t, err)
	if _, err := SetAttributes(bg, r, chmod(dir+"/l", 0o600, nil)); !reason.Is(err, reason.TypeInTheWay) {
		t.Errorf("chmod of a symlink: %v", err)
	}
	sig, err := SetAttributes(bg, r, chown(dir+"/l", 7, 8))
	if err != nil || sig.UID != 7 || sig.GID != 8 {
		t.Errorf("chown of a symlink: %+v, %v", sig, err)
	}
	if after, _ := r.Stat(dir + "/f"); after != before {
		t.Errorf("the target changed: %+v, %+v", before, after)
	}
	sig, err = SetAttributes(bg, r, AttributeSpec{Path: dir + "/f", Mode: 0o4711, UID: 7, GID: Keep, Expect: &before.Signature})
	if err != nil || sig.Perm() != 0o4711 || sig.UID != 7 || sig.GID != before.GID {
		t.Errorf("set: %+v, %v", sig, err)
	}
	if st, _ := r.Stat(dir + "/f"); st.Signature != sig {
		t.Errorf("signature %+v, there is %+v", sig, st)
	}
	_, err = SetAttributes(bg, r, chmod(dir+"/f", 0o600, &before.Signature))
	disktest.WantCode(t, err, reason.ConcurrentEdit)
	disktest.Must(t, unix.Mkfifo(dir+"/p", 0o600))
	if sig, err := SetAttributes(bg, r, chmod(dir+"/p", 0o666, nil)); err != nil || sig.Perm() != 0o666 {
		t.Errorf("fifo: %+v, %v", sig, err)
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	disktest.Tree(t, dir, "f", "l -> f", "full/x/", "empty/")
	disktest.WantCode(t, Remove(bg, r, RemoveSpec{Path: dir + "/full"}), reason.DirectoryNotEmpty)
	disktest.WantCode(t, Remove(bg, r, RemoveSpec{Path: dir + "/f", Expect: &disk.Signature{}}), reason.ConcurrentEdit)
	disktest.Must(t, Remove(bg, r, RemoveSpec{Path: dir + "/l"}))
	disktest.WantCode(t, Remove(bg, r, RemoveSpec{Path: dir + "/f", OnBackup: func(*os.File, disk.Stat) error {
		return os.Chmod(dir+"/f", 0o600)
	}}), reason.ConcurrentEdit)
	var old string
	disktest.Must(t, Remove(bg, r, RemoveSpec{Path: dir + "/f", OnBackup: func(f *os.File, _ disk.Stat) error {
		b, err := io.ReadAll(f)
		old = string(b)
		return err
	}}))
	disktest.Must(t, Remove(bg, r, RemoveSpec{Path: dir + "/empty"}))
	disktest.Must(t, Remove(bg, r, RemoveSpec{Path: dir + "/f"}))
	disktest.Must(t, Remove(bg, r, RemoveSpec{Path: dir + "/none/f"}))
	disktest.WantCode(t, Remove(bg, r, RemoveSpec{Path: "/"}), reason.InvalidValue)
	d, err := r.Dir(dir)
	disktest.Must(t, err)
	defer d.Close()
	if names, err := d.Names(10); err != nil || !slices.Equal(names, []string{"full"}) || old != "f" {
		t.Errorf("left %v, %v; backup %q", names, err, old)
	}
	_, err = d.Names(0)
	disktest.WantCode(t, err, reason.BodyTooLarge)
}

func TestRemoveMany(t *testing.T) {
	dir := t.TempDir()
	disktest.Tree(t, dir, "a/x", "a/b/f", "a/b/g", "a/y")
	var specs []RemoveSpec
	for _, p := range []string{dir + "/a/x", dir + "/a/b/f", dir + "/a/b", "bad", dir + "/a/b/g", dir + "/a/b", dir + "/a/y", dir + "/a"} {
		specs = append(specs, RemoveSpec{Path: p})
	}
	for i, err := range RemoveMany(bg, hostRoot(t), specs) {
		switch i {
		case 2:
			disktest.WantCode(t, err, reason.DirectoryNotEmpty)
		case 3:
			disktest.WantCode(t, err, reason.InvalidValue)
		default:
			disktest.Must(t, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestSweepTemporaries(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	for range 3 {
		disktest.Must(t, os.WriteFile(filepath.Join(dir, disk.TempName("motd")), nil, 0o600))
	}
	disktest.Must(t, os.Mkdir(filepath.Join(dir, disk.TempName("d")), 0o700))
	disktest.Must(t, os.Symlink("x", filepath.Join(dir, disk.TempName("l"))))
	keep := []string{".tako.motd", ".tako.motd.short", ".tako..0123456789ab", "tako.motd.0123456789ab", ".tako.motd.0123456789aZ", ".tako.motd.0123456789a-"}
	disktest.Tree(t, dir, keep...)
	full := filepath.Join(dir, disk.TempName("full"))
	disktest.Must(t, os.MkdirAll(full+"/x", 0o700))
	keep = append(keep, filepath.Base(full))
	n, err := SweepTemporaries(bg, r, []string{dir, dir + "/missing"}, nil)
	if err != nil || n != 5 {
		t.Errorf("removed %d, %v", n, err)
	}
	left, err := os.ReadDir(dir)
	disktest.Must(t, err)
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
	temp := filepath.Join(dir, disk.TempName("motd"))
	disktest.Must(t, os.WriteFile(temp, []byte("old"), 0o600))
	if os.Geteuid() == 0 {
		disktest.Must(t, os.Chown(temp, disktest.Nobody, disktest.Nobody))
	}
	full := errors.New("no room")
	if n, err := SweepTemporaries(bg, r, []string{dir}, func(*os.File, disk.Stat) error { return full }); n != 0 || !errors.Is(err, full) {
		t.Errorf("removed %d, %v", n, err)
	}
	disktest.WantFile(t, temp, "old")
	var kept string
	n, err := SweepTemporaries(bg, r, []string{dir}, func(f *os.File, _ disk.Stat) error {
		b, err := io.ReadAll(f)
		kept = string(b)
		return err
	})
	if err != nil || n != 1 || kept != "old" {
		t.Errorf("removed %d, kept %q, %v", n, kept, err)
	}
	wantNoTemporaries(t, dir)
}

// TestOrdinaryUser: what an ordinary user may do works, and the rest is said in his words.
func TestOrdinaryUser(t *testing.T) {
	dir, inside := disktest.AsNobody(t)
	if !inside {
		return
	}
	r := hostRoot(t)
	p := filepath.Join(dir, "f")
	write(t, r, textSpec(p, "one"))
	spec := textSpec(p, "two")
	spec.UID, spec.GID = disktest.Nobody, disktest.Nobody
	write(t, r, spec)
	spec.UID = 0
	_, err := Write(bg, r, spec)
	disktest.WantCode(t, err, reason.OwnerNeedsRoot)
	_, err = SetAttributes(bg, r, chown(p, 0, Keep))
	disktest.WantCode(t, err, reason.OwnerNeedsRoot)
	_, err = Mkdir(bg, r, MkdirSpec{Path: dir + "/d", Mode: 0o755, UID: 0, GID: Keep})
	disktest.WantCode(t, err, reason.OwnerNeedsRoot)
	_, err = Write(bg, r, textSpec("/etc/tako-test", "x"))
	disktest.WantCode(t, err, reason.PermissionDenied)
	disktest.WantFile(t, p, "two")
	wantNoTemporaries(t, dir)

	// His own symlinks in his own directory are as good as root's.
	disktest.Tree(t, dir, "real/", "way -> real")
	write(t, r, textSpec(dir+"/way/f", "x"))

	// A file that he may not read can be replaced, but not backed up.
	disktest.Must(t, os.Chmod(p, 0))
	blind := textSpec(p, "three")
	blind.OnBackup = func(*os.File, disk.Stat) error { return nil }
	_, err = Write(bg, r, blind)
	disktest.WantCode(t, err, reason.PermissionDenied)
	write(t, r, textSpec(p, "three"))
}

// TestOrderOfSystemCalls: from the exclusive creation with mode 0600 on, owner comes before mode, mode before fsync, fsync
// before rename, and the directory's fsync last.
func TestOrderOfSystemCalls(t *testing.T) {
	if dir := os.Getenv(disktest.AgainEnv); dir != "" {
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
	cmd.Env = append(os.Environ(), disktest.AgainEnv+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs strace: %v\n%s", err, out)
	}
	f, err := os.Open(log)
	disktest.Must(t, err)
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

// TestPlantedSymlink: what an ordinary user plants is not followed by root, wherever it stands on the way.
func TestPlantedSymlink(t *testing.T) {
	disktest.NeedRoot(t)
	base := t.TempDir()
	r := hostRoot(t)
	disktest.Tree(t, base, "target/sub/", "home/", "sticky/", "home/app -> ../target", "sticky/app -> ../target")
	disktest.Must(t, os.Chown(filepath.Join(base, "home"), disktest.Nobody, disktest.Nobody))
	disktest.Must(t, os.Lchown(filepath.Join(base, "home/app"), disktest.Nobody, disktest.Nobody))
	disktest.Must(t, os.Chmod(filepath.Join(base, "sticky"), 0o777|os.ModeSticky))
	for _, p := range []string{"home/app/f", "home/app/sub/f", "sticky/app/f"} {
		p = filepath.Join(base, p)
		_, err := Write(bg, r, textSpec(p, "x"))
		disktest.WantCode(t, err, reason.UntrustedSymlink)
		if err != nil && !strings.Contains(err.Error(), "app") {
			t.Errorf("the component is not named: %v", err)
		}
		_, err = Mkdir(bg, r, MkdirSpec{Path: p, Mode: 0o755, UID: Keep, GID: Keep})
		disktest.WantCode(t, err, reason.UntrustedSymlink)
		disktest.WantCode(t, Remove(bg, r, RemoveSpec{Path: p}), reason.UntrustedSymlink)
		_, err = r.Stat(p)
		disktest.WantCode(t, err, reason.UntrustedSymlink)
	}
	left, err := os.ReadDir(filepath.Join(base, "target"))
	disktest.Must(t, err)
	if len(left) != 1 {
		t.Errorf("something was written through a planted symlink: %v", left)
	}
}

// Whose directory it is may swap what has just been made there for something of root's, to be given that.
func TestNothingElseIsGivenAway(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	d, _, err := r.Parent(filepath.Join(dir, "x"))
	disktest.Must(t, err)
	defer d.Close()
	before := map[string]disk.Stat{}
	arrange := func(name string, how func(p string) error) {
		disktest.Must(t, how(filepath.Join(dir, name)))
		before[name], err = d.Stat(name)
		disktest.Must(t, err)
	}
	arrange("full", func(p string) error { return os.MkdirAll(filepath.Join(p, "in it"), 0o700) })
	arrange("open", func(p string) error { return os.Mkdir(p, 0o755) })
	arrange("file", func(p string) error { return os.WriteFile(p, nil, 0o700) })
	for name := range before {
		if name != "file" {
			_, err := settleDir(d, name, "x", MkdirSpec{Path: filepath.Join(dir, "x"), Mode: 0o777, UID: 1, GID: 1})
			disktest.WantCode(t, err, reason.ConcurrentEdit)
		}
		_, err = settleSymlink(d, name, "x", SymlinkSpec{Path: filepath.Join(dir, "x"), UID: 1, GID: 1}, disk.Stat{})
		disktest.WantCode(t, err, reason.ConcurrentEdit)
		if now, _ := d.Stat(name); now.Signature != before[name].Signature {
			t.Errorf("%s was %+v and is %+v", name, before[name], now)
		}
	}
}
