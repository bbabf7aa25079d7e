package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

func TestWriteCreatesAndReplaces(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "motd")

	spec := textSpec(p, "one")
	spec.Mode, spec.Expect = 0o4710, &disk.Signature{}
	res := write(t, r, spec)
	if !res.Created || !res.Changed || res.BrokeHardLink || res.Signature.Perm() != 0o4710 {
		t.Errorf("create: %+v", res)
	}
	spec = textSpec(p, strings.Repeat("two", 50_000))
	spec.Mode, spec.Expect = Keep, &res.Signature
	var old string
	spec.OnBackup = func(f *os.File, st disk.Stat) error {
		b, err := io.ReadAll(f)
		old = string(b)
		if st.Signature != res.Signature {
			t.Errorf("backup of %+v", st)
		}
		return err
	}
	again := write(t, r, spec)
	if again.Created || again.Signature.Perm() != 0o4710 || again.Signature.Size != 150_000 || old != "one" {
		t.Errorf("replace: %+v, backup %q", again, old)
	}
	empty := textSpec(p, "")
	if res := write(t, r, empty); res.Signature.Size != 0 || res.Signature.Perm() != 0o644 {
		t.Errorf("empty: %+v", res)
	}
	wantNoTemporaries(t, dir)
}

func TestWriteOwner(t *testing.T) {
	disktest.NeedRoot(t)
	r := hostRoot(t)
	p := filepath.Join(t.TempDir(), "f")
	spec := textSpec(p, "x")
	spec.UID, spec.GID, spec.Mode = 12, 34, 0o2750
	if res := write(t, r, spec); res.Signature.UID != 12 || res.Signature.GID != 34 || res.Signature.Perm() != 0o2750 {
		t.Errorf("owner: %+v", res.Signature)
	}
	spec = textSpec(p, "y")
	if res := write(t, r, spec); res.Signature.UID != 12 || res.Signature.GID != 34 {
		t.Errorf("kept owner: %+v", res.Signature)
	}
}

func TestOddNames(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	for _, name := range []string{
		"-rf", "a\nb", "\xff\xfe", "trailing.", " ", "..x", "...", strings.Repeat("n", 255), strings.Repeat("ü", 127), "*", "\x1b[2J", ".tako.", "$(x)",
	} {
		p := dir + "/" + name
		write(t, r, textSpec(p, "1"))
		write(t, r, textSpec(p, "2"))
		disktest.WantFile(t, p, "2")
		_, err := Write(bg, r, func() WriteSpec {
			s := textSpec(p, "3")
			s.Expect = &disk.Signature{}
			return s
		}())
		disktest.WantCode(t, err, reason.ConcurrentEdit)
		if strings.ContainsAny(err.Error(), "\n\x1b") || !utf8.ValidString(err.Error()) {
			t.Errorf("error shows the name raw: %q", err)
		}
		disktest.Must(t, Remove(bg, r, RemoveSpec{Path: p}))
	}
	_, err := Write(bg, r, textSpec(dir+"/"+strings.Repeat("n", 256), "x"))
	disktest.WantCode(t, err, reason.NameTooLong)
	for _, p := range []string{"", "relative", "/a/../b", "/a//b", "/a/", "/a\x00b", "/"} {
		if _, err := Write(bg, r, textSpec(p, "x")); err == nil {
			t.Errorf("path %q is taken", p)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// TestEditDuringBackup: the new file has its name by then, so who writes writes into that, and is not undone.
func TestEditDuringBackup(t *testing.T) {
	r := hostRoot(t)
	mine := errors.New("no room")
	for name, want := range map[string]error{"kept": nil, "refused": mine} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := filepath.Join(dir, "f")
			disktest.Must(t, os.WriteFile(p, []byte("old"), 0o644))
			spec := textSpec(p, "new")
			kept := ""
			keep := func(f *os.File, _ disk.Stat) error {
				b, err := io.ReadAll(f)
				kept = string(b)
				return err
			}
			spec.OnBackup = func(f *os.File, st disk.Stat) error {
				disktest.WantFile(t, p, "new")
				disktest.Must(t, os.WriteFile(p, []byte("theirs"), 0o644))
				return errors.Join(keep(f, st), want)
			}
			res, err := Write(bg, r, spec)
			if !errors.Is(err, want) || !res.Changed {
				t.Errorf("result %+v, error %v", res, err)
			}
			disktest.WantFile(t, p, "theirs")
			if now, err := r.Stat(p); err != nil || now.Signature == res.Signature {
				t.Errorf("their file is taken for ours: %+v, %v", now, err)
			}
			if want != nil {
				// Theirs may stay, but the old one must not be lost.
				kept = ""
				if n, err := SweepTemporaries(bg, r, []string{dir}, keep); n != 1 || err != nil {
					t.Errorf("swept %d, %v", n, err)
				}
			}
			if kept != "old" {
				t.Errorf("kept %q", kept)
			}
			wantNoTemporaries(t, dir)
		})
	}
}

// TestFailedWriteChangesNothing makes a write fail at each of its steps.
func TestFailedWriteChangesNothing(t *testing.T) {
	r := hostRoot(t)
	mine := errors.New("rejected")
	edit := func(p string) { disktest.Must(t, os.WriteFile(p, []byte("theirs"), 0o600)) }
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		change func(p string, s *WriteSpec)
		code   reason.Code
		err    error
		after  string
	}{
		"check":     {change: func(_ string, s *WriteSpec) { s.Check = func(context.Context, string) error { return mine } }, err: mine, after: "old"},
		"backup":    {change: func(_ string, s *WriteSpec) { s.OnBackup = func(*os.File, disk.Stat) error { return mine } }, err: mine, after: "old"},
		"short":     {change: func(_ string, s *WriteSpec) { s.Size = 100 }, err: io.ErrUnexpectedEOF, code: reason.SystemCallFailed, after: "old"},
		"cancelled": {ctx: cancelled, change: func(string, *WriteSpec) {}, code: reason.Interrupted, after: "old"},
		"expect":    {change: func(_ string, s *WriteSpec) { s.Expect = &disk.Signature{Mode: 1} }, code: reason.ConcurrentEdit, after: "old"},
		"edit during check": {change: func(p string, s *WriteSpec) {
			s.Check = func(context.Context, string) error { edit(p); return nil }
		}, code: reason.ConcurrentEdit, after: "theirs"},
		"edit in place during backup": {change: func(p string, s *WriteSpec) {
			s.InPlace = true
			s.OnBackup = func(*os.File, disk.Stat) error { edit(p); return nil }
		}, code: reason.ConcurrentEdit, after: "theirs"},
		"check in place": {change: func(_ string, s *WriteSpec) {
			s.InPlace = true
			s.Check = func(context.Context, string) error { return mine }
		}, err: mine, after: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := filepath.Join(dir, "f")
			disktest.Must(t, os.WriteFile(p, []byte("old"), 0o644))
			spec := textSpec(p, "new")
			c.change(p, &spec)
			ctx := c.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			res, err := Write(ctx, r, spec)
			if err == nil || res.Changed || c.err != nil && !errors.Is(err, c.err) || c.code != 0 && !reason.Is(err, c.code) {
				t.Errorf("result %+v, error %v", res, err)
			}
			disktest.WantFile(t, p, c.after)
			wantNoTemporaries(t, dir)
		})
	}
}

func TestCreateNeverReplaces(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "f")
	spec := textSpec(p, "ours")
	spec.Check = func(context.Context, string) error { return os.WriteFile(p, []byte("theirs"), 0o644) }
	_, err := Write(bg, hostRoot(t), spec)
	disktest.WantCode(t, err, reason.ConcurrentEdit)
	disktest.WantFile(t, p, "theirs")
	wantNoTemporaries(t, dir)
}

// TestCheckSeesFinalFile: owner and mode are set when the check runs, and the path is one that it can open.
func TestCheckSeesFinalFile(t *testing.T) {
	sandbox := t.TempDir()
	disktest.Must(t, os.Mkdir(filepath.Join(sandbox, "real"), 0o755))
	disktest.Must(t, os.Symlink("/real", filepath.Join(sandbox, "etc")))
	spec := textSpec("/etc/f", "text")
	spec.Mode = 0o640
	spec.Check = func(_ context.Context, temp string) error {
		st, err := os.Lstat(temp)
		if err != nil || st.Mode() != 0o640 || filepath.Dir(temp) != filepath.Join(sandbox, "real") {
			t.Errorf("check of %s: %v, %v", temp, st, err)
		}
		return err
	}
	write(t, rootAt(t, sandbox), spec)
	disktest.WantFile(t, filepath.Join(sandbox, "real", "f"), "text")
}

func TestTypesInTheWay(t *testing.T) {
	r := hostRoot(t)
	for name, make := range map[string]func(p string) error{
		"symlink":   func(p string) error { return os.Symlink("elsewhere", p) },
		"fifo":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		dir := t.TempDir()
		p := filepath.Join(dir, "f")
		disktest.Must(t, make(p))
		_, err := Write(bg, r, textSpec(p, "x"))
		disktest.WantCode(t, err, reason.TypeInTheWay)
		d, _, err := r.Parent(p)
		disktest.Must(t, err)
		_, _, err = d.ReadFile("f", 10)
		disktest.WantCode(t, err, reason.TypeInTheWay)
		d.Close()
		spec := textSpec(p, "x")
		spec.Force = true
		if name == "directory" {
			_, err = Write(bg, r, spec)
			disktest.WantCode(t, err, reason.TypeInTheWay)
			continue
		}
		write(t, r, spec)
		wantNoTemporaries(t, dir)
	}
}

func TestHardLinkIsBrokenAndSaid(t *testing.T) {
	dir := t.TempDir()
	p, other := filepath.Join(dir, "f"), filepath.Join(dir, "g")
	disktest.Must(t, os.WriteFile(p, []byte("old"), 0o644))
	disktest.Must(t, os.Link(p, other))
	if res := write(t, hostRoot(t), textSpec(p, "new")); !res.BrokeHardLink {
		t.Errorf("result %+v", res)
	}
	disktest.WantFile(t, other, "old")
}

func TestInPlaceKeepsInode(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "f")
	disktest.Must(t, os.WriteFile(p, []byte("a long old text"), 0o600))
	before, err := r.Stat(p)
	disktest.Must(t, err)
	spec := textSpec(p, "new")
	spec.InPlace, spec.Mode = true, 0o4755
	res := write(t, r, spec)
	if res.Signature.Ino != before.Ino || res.Created || res.Signature.Perm() != 0o4755 {
		t.Errorf("result %+v, before %+v", res, before)
	}
	disktest.WantFile(t, p, "new")
	spec.Path = filepath.Join(dir, "fresh")
	if res := write(t, r, spec); !res.Created {
		t.Errorf("fresh: %+v", res)
	}
}

func TestMountedFile(t *testing.T) {
	disktest.NeedRoot(t)
	dir := t.TempDir()
	r := hostRoot(t)
	p, source := filepath.Join(dir, "f"), filepath.Join(dir, "source")
	disktest.Must(t, os.WriteFile(p, nil, 0o644))
	disktest.Must(t, os.WriteFile(source, []byte("old"), 0o644))
	if err := unix.Mount(source, p, "", unix.MS_BIND, ""); err != nil {
		t.Skip("needs mount:", err)
	}
	defer unix.Unmount(p, unix.MNT_DETACH)
	_, err := Write(bg, r, textSpec(p, "new"))
	disktest.WantCode(t, err, reason.MountPointFile)
	spec := textSpec(p, "new")
	spec.InPlace = true
	write(t, r, spec)
	disktest.WantFile(t, source, "new")
}

func TestAttributesAreKept(t *testing.T) {
	disktest.NeedRoot(t)
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "f")
	disktest.Must(t, os.WriteFile(p, []byte("old"), 0o644))
	disktest.Must(t, unix.Setxattr(p, "user.note", []byte("kept"), 0))
	if err := exec.Command("setfacl", "-m", "u:12:rw", p).Run(); err != nil {
		t.Skip("needs setfacl:", err)
	}
	// cap_net_raw+ep, version 2: see capabilities(7).
	capability := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	disktest.Must(t, unix.Setxattr(p, "security.capability", capability, 0))
	spec := textSpec(p, "new")
	spec.Mode = Keep
	write(t, r, spec)
	names, err := attributeNamesOf(p)
	disktest.Must(t, err)
	if got := strings.Join(names, " "); got != "system.posix_acl_access user.note" && got != "user.note system.posix_acl_access" {
		t.Errorf("attributes %q", got)
	}
	buf := make([]byte, 10)
	if n, err := unix.Getxattr(p, "user.note", buf); err != nil || string(buf[:n]) != "kept" {
		t.Errorf("user.note %q, %v", buf[:max(n, 0)], err)
	}
	out, _ := exec.Command("getfacl", "-cn", p).CombinedOutput()
	if !strings.Contains(string(out), "user:12:rw") {
		t.Errorf("access list:\n%s", out)
	}
	// A default list of the directory is for new files, not for those that had none.
	plain := filepath.Join(dir, "plain")
	disktest.Must(t, os.WriteFile(plain, nil, 0o644))
	disktest.Must(t, exec.Command("setfacl", "-d", "-m", "u:12:rwx", dir).Run())
	write(t, r, textSpec(plain, "x"))
	if names, err := attributeNamesOf(plain); err != nil || len(names) != 0 {
		t.Errorf("attributes %q, %v", names, err)
	}
	fresh := textSpec(filepath.Join(dir, "fresh"), "x")
	fresh.Mode = 0o600
	if res := write(t, r, fresh); res.Signature.Perm() != 0o600 {
		t.Errorf("fresh: %+v", res.Signature)
	}
}

func attributeNamesOf(p string) ([]string, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return attributeNames(int(f.Fd()))
}

func TestNoTornReads(t *testing.T) {
	const size, rounds = 400_000, 200
	r := hostRoot(t)
	p := filepath.Join(t.TempDir(), "f")
	text := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), size) }
	write(t, r, textSpec(p, text(0)))
	done := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			b, err := os.ReadFile(p)
			if err != nil || len(b) != size || b[0] != b[size-1] {
				t.Errorf("torn read: %d bytes, %v", len(b), err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range rounds {
		write(t, r, textSpec(p, text(i)))
	}
	close(done)
	readers.Wait()
}

func TestWriteAll(t *testing.T) {
	r := hostRoot(t)
	dir := t.TempDir()
	var specs []WriteSpec
	for i := range 300 {
		sub := filepath.Join(dir, fmt.Sprint(i%100))
		disktest.Must(t, os.MkdirAll(sub, 0o755))
		specs = append(specs, textSpec(filepath.Join(sub, fmt.Sprint(i)), fmt.Sprint("text ", i)))
	}
	specs[7].Path = filepath.Join(dir, "missing", "f")
	specs[8].Size = 1000
	for i, res := range WriteAll(bg, r, specs) {
		switch i {
		case 7:
			disktest.WantCode(t, res.Err, reason.ParentMissing)
		case 8:
			disktest.WantCode(t, res.Err, reason.SystemCallFailed)
		default:
			if res.Err != nil || !res.Created {
				t.Fatalf("file %d: %+v", i, res)
			}
			disktest.WantFile(t, specs[i].Path, fmt.Sprint("text ", i))
		}
	}
}

func TestFullAndReadOnly(t *testing.T) {
	dir := disktest.Mounted(t, "size=64k")
	r := hostRoot(t)
	p := filepath.Join(dir, "f")
	write(t, r, textSpec(p, "old"))
	_, err := Write(bg, r, textSpec(p, strings.Repeat("x", 100_000)))
	disktest.WantCode(t, err, reason.DiskFull)
	disktest.WantFile(t, p, "old")
	wantNoTemporaries(t, dir)

	disktest.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, err = Write(bg, r, textSpec(p, "new"))
	disktest.WantCode(t, err, reason.ReadOnlyFS)
	_, err = Mkdir(bg, r, MkdirSpec{Path: dir + "/d", Mode: 0o755, UID: Keep, GID: Keep})
	disktest.WantCode(t, err, reason.ReadOnlyFS)
	disktest.WantCode(t, Remove(bg, r, RemoveSpec{Path: p}), reason.ReadOnlyFS)
	_, err = SetAttributes(bg, r, chmod(p, 0o600, nil))
	disktest.WantCode(t, err, reason.ReadOnlyFS)
	disktest.WantFile(t, p, "old")
}

func TestImmutable(t *testing.T) {
	disktest.NeedRoot(t)
	dir := t.TempDir()
	r := hostRoot(t)
	p := filepath.Join(dir, "f")
	write(t, r, textSpec(p, "old"))
	for _, target := range []string{p, dir} {
		for _, flag := range []string{"i", "a"} {
			if out, err := exec.Command("chattr", "+"+flag, target).CombinedOutput(); err != nil {
				t.Skipf("needs chattr: %v %s", err, out)
			}
			_, err := Write(bg, r, textSpec(p, "new"))
			disktest.WantCode(t, err, reason.Immutable)
			disktest.WantCode(t, Remove(bg, r, RemoveSpec{Path: p}), reason.Immutable)
			disktest.Must(t, exec.Command("chattr", "-"+flag, target).Run())
			disktest.WantFile(t, p, "old")
			wantNoTemporaries(t, dir)
		}
	}
}
