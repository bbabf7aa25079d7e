package cases_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// mount mounts a tmpfs of a size on a directory until the test ends.
func mount(t testing.TB, dir, size string) {
	t.Helper()
	needsRoot(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tako-test", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Skipf("needs permission to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// remount changes a tmpfs that mount has mounted.
func remount(t testing.TB, dir string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount("tako-test", dir, "tmpfs", unix.MS_REMOUNT|flags, options); err != nil {
		t.Fatal(err)
	}
}

func TestAgentCase12_DiskFullAndReadOnly(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	for _, trouble := range []struct {
		name  string
		large string // what does not fit
		begin func(t testing.TB, dir string)
		cure  func(t testing.TB, dir string)
		code  reason.Code
		words string
	}{
		{"full", strings.Repeat("x", 400<<10), func(testing.TB, string) {}, func(t testing.TB, dir string) { remount(t, dir, 0, "size=4m") },
			reason.DiskFull, "no space left on the device"},
		{"read-only", "new\n", func(t testing.TB, dir string) { remount(t, dir, unix.MS_RDONLY, "") }, func(t testing.TB, dir string) { remount(t, dir, 0, "") },
			reason.ReadOnlyFS, "read-only file system"},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			c := c.Sub(t)
			s := newSandbox(t)
			small := s.path("/small")
			mount(t, small, "256k")
			s.declare(file("large", "/small/large", "old\n"), file("other", "/other", "old\n"))
			s.made()
			trouble.begin(t, small)
			s.declare(file("large", "/small/large", trouble.large), file("other", "/other", "new\n"))
			r := s.watch()
			s.eventually(c, "another file is made", "/other", "new\n")
			rep := s.report()
			res := resourceOf(rep, "file/large")
			c.Equal(codeOf(res), trouble.code, "reason")
			c.Check(res.Outcome == reason.Failed && !rep.Converged, "outcome %v, converged %t", res.Outcome, rep.Converged)
			c.Check(res.Problem != nil && strings.Contains(res.Problem.Message, trouble.words), "no errno in words: %+v", res.Problem)
			c.Equal(s.read("/small/large"), "old\n", "the old content")
			c.Equal(names(s, small), []string{"large"}, "left beside it")
			r.until("tried again, later each time", func(rep *agent.Report) bool {
				res := resourceOf(rep, "file/large")
				return res.Attempts >= 2 && res.RetryAt.After(rep.At)
			})
			// Nothing else waits for it.
			s.must(os.Remove(s.path("/other")))
			s.eventually(c, "another file is repaired", "/other", "new\n")
			c.Equal(resourceOf(s.report(), "file/large").Outcome, reason.Failed, "while it still fails")
			trouble.cure(t, small)
			s.eventually(c, "made when there is room", "/small/large", trouble.large)
			r.until("converged", func(rep *agent.Report) bool { return rep.Settled && rep.Converged })
			c.Equal(names(s, small), []string{"large"}, "left beside it in the end")
		})
	}
}

// names lists the entries of a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for _, e := range list {
		found = append(found, e.Name())
	}
	return found
}

// keptSandbox makes a sandbox whose agent has something to lose: a file that was there before, and one removal that waits.
func keptSandbox(t testing.TB) (*sandbox, map[string]string) {
	s := newSandbox(t)
	s.must(os.Mkdir(s.path("/etc"), 0o755))
	s.must(os.WriteFile(s.path("/etc/restored"), []byte("original\n"), 0o640))
	resources := append(onRemove(declare.OnRemoveRestore, file("restored", "/etc/restored", "declared\n")),
		onRemove(declare.OnRemoveDelete, file("deleted", "/etc/deleted", "declared\n"))...)
	for i := range 20 {
		resources = append(resources, file(fmt.Sprint("f", i), fmt.Sprint("/etc/f", i), fmt.Sprintln("declared", i)))
	}
	s.declare(resources...)
	s.made()
	return s, contents(s)
}

// contents is what the sandbox's /etc holds.
func contents(s *sandbox) map[string]string {
	s.Helper()
	all := map[string]string{}
	for _, name := range names(s, s.path("/etc")) {
		all[name] = s.read("/etc/" + name)
	}
	return all
}

// stateFiles lists the files of the agent's state with content, without old contents of others' files.
func stateFiles(s *sandbox) []string {
	s.Helper()
	var files []string
	s.must(filepath.WalkDir(s.state, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() && info.Size() > 0 {
			files = append(files, p)
		}
		return nil
	}))
	return files
}

func TestAgentCase35_StateDeleted(t *testing.T) {
	c := casetest.Start(t)
	s, want := keptSandbox(t)
	s.must(os.RemoveAll(s.state))
	r := s.once()
	c.Equal(r.code, 0, "exit code without a state")
	c.Equal(contents(s), want, "the files")
	c.Check(!strings.Contains(r.stdout, "Repaired"), "what was as declared was repaired:\n%s", r)
	// What is removed from now on is removed as declared. What was there before tako came is not known any more: it changes nothing.
	s.declare(file("f0", "/etc/f0", want["f0"]))
	c.Equal(s.once().code, 0, "exit code of the removal")
	delete(want, "deleted")
	c.Equal(contents(s), want, "the files after the removal")
}

func TestAgentCase35_StateCorruptedAtRandom(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s, want := keptSandbox(t)
	files := stateFiles(s)
	c.Check(len(files) >= 6, "the state is %d files only", len(files))
	saved := filepath.Join(s.dir, "saved")
	s.must(os.CopyFS(saved, os.DirFS(s.state)))
	for range 60 {
		s.must(os.RemoveAll(s.state))
		s.must(os.CopyFS(s.state, os.DirFS(saved)))
		p := files[random.IntN(len(files))]
		b, err := os.ReadFile(p)
		c.NoError(err, "read")
		what := "a byte"
		switch random.IntN(3) {
		case 0:
			b[random.IntN(len(b))] ^= byte(1 + random.IntN(255))
		case 1:
			b, what = b[:random.IntN(len(b))], "its end"
		case 2:
			what = "a run of bytes"
			for i := random.IntN(len(b)); i < len(b); i++ {
				b[i] = byte(random.Uint32())
			}
		}
		s.must(os.WriteFile(p, b, 0o600))
		// One is drifted, so that there is something to do.
		s.must(os.WriteFile(s.path("/etc/f3"), []byte("drift\n"), 0o644))
		r := s.once()
		at := fmt.Sprintf("%s of %s damaged", what, strings.TrimPrefix(p, s.state))
		c.Equal(contents(s), want, at+": the files")
		switch {
		case r.code == 0:
		case strings.Contains(r.stderr, reason.StateNewer.String()): // the damage made a version of it
			c.Check(strings.Contains(r.stderr, filepath.Base(p)) || strings.Contains(r.stderr, s.state), "%s: refused, but not by name:\n%s", at, r)
			s.must(os.WriteFile(s.path("/etc/f3"), []byte(want["f3"]), 0o644))
		default:
			c.Check(false, "%s: %v", at, r)
		}
	}
}

func TestAgentCase35_StateNewerOrFull(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	t.Run("newer", func(t *testing.T) {
		c := c.Sub(t)
		s, want := keptSandbox(t)
		for _, name := range []string{"active", "journal", "converged", "report"} {
			p := filepath.Join(s.state, name)
			b, err := os.ReadFile(p)
			c.NoError(err, "read")
			newer := []byte(strings.Replace(string(b), "tako "+name+" 1\n", "tako "+name+" 2\n", 1))
			c.Check(string(newer) != string(b), "%s does not begin with its version: %.20q", name, b)
			s.must(os.WriteFile(p, newer, 0o600))
			before := tree(t, s.dir)
			s.must(os.WriteFile(s.path("/etc/f3"), []byte("drift\n"), 0o644))
			r := s.once()
			c.Check(r.code == 1 && strings.Contains(r.stderr, reason.StateNewer.String()) && strings.Contains(r.stderr, p), "%s from a newer version: %v", name, r)
			c.Equal(s.read("/etc/f3"), "drift\n", "what was done all the same")
			after := tree(t, s.dir)
			delete(before, "/root/etc/f3")
			delete(after, "/root/etc/f3")
			c.Equal(after, before, "state and files after it was refused")
			s.must(os.WriteFile(p, b, 0o600))
			s.must(os.WriteFile(s.path("/etc/f3"), []byte(want["f3"]), 0o644))
		}
	})
	t.Run("full", func(t *testing.T) {
		c := c.Sub(t)
		s := newSandbox(t)
		mount(t, s.state, "64k")
		s.must(os.WriteFile(filepath.Join(s.state, "ballast"), nil, 0o600))
		s.declare(file("motd", "/motd", "declared\n"))
		s.made()
		fill(s, filepath.Join(s.state, "ballast"))
		s.must(os.WriteFile(s.path("/motd"), []byte("drift\n"), 0o644))
		r := s.once()
		// The old content cannot be kept, so the file is left alone, and that is said.
		c.Check(r.code == 1 && strings.Contains(r.stdout, reason.BackupFailed.String()), "drift with a full state directory: %v", r)
		c.Equal(s.read("/motd"), "drift\n", "the file")
		s.declare(file("motd", "/motd", "newly declared\n"))
		r = s.once()
		c.Check(r.code == 1 && strings.Contains(r.stderr, reason.StateUnwritable.String()), "a new declaration with a full state directory: %v", r)
		c.Equal(s.read("/motd"), "drift\n", "the file")
		s.must(os.Remove(filepath.Join(s.state, "ballast")))
		c.Equal(s.once().code, 0, "exit code when there is room again")
		c.Equal(s.read("/motd"), "newly declared\n", "the file when there is room again")
	})
	t.Run("full journal", func(t *testing.T) {
		c := c.Sub(t)
		const files = 100 // more than notes of them fit into the last page of the journal
		s := newSandbox(t)
		mount(t, s.state, "256k")
		ballast := filepath.Join(s.state, "ballast")
		s.must(os.WriteFile(ballast, nil, 0o600))
		resources := []declare.Resource{{Name: "web", Service: &declare.Service{}}}
		for i := range files {
			f := file(fmt.Sprint("f", i), fmt.Sprint("/f", i), "declared\n")
			f.Notify = []string{"web"}
			resources = append(resources, f)
		}
		s.declare(resources...)
		c.Equal(s.once().code, 1, "exit code in a sandbox, which has no services")
		c.Equal(len(names(s, s.root)), files, "files made")
		fill(s, ballast)
		for i := range files {
			s.must(os.Remove(s.path(fmt.Sprint("/f", i))))
		}
		r := s.once()
		// A change whose notification could be lost is not made.
		c.Check(len(names(s, s.root)) < files, "all files were made again, with notes of it that cannot be written")
		c.Check(r.code == 1 && strings.Contains(r.stdout, reason.StateUnwritable.String()), "nothing says why: %v", r)
		s.must(os.Remove(ballast))
		s.once()
		c.Equal(len(names(s, s.root)), files, "files made when there is room again")
	})
	t.Run("deleted while it runs", func(t *testing.T) {
		c := c.Sub(t)
		s, want := keptSandbox(t)
		r := s.watch()
		s.must(os.RemoveAll(s.state))
		for _, p := range []string{"/etc/f1", "/etc/restored", "/etc/f2"} {
			s.must(os.Remove(s.path(p)))
			s.eventually(c, p+" is repaired", p, want[filepath.Base(p)])
		}
		r.end(syscall.SIGTERM)
		c.Equal(s.once().code, 0, "exit code after a restart")
		// What was there before was kept in the state, and that it cannot be put back is said.
		s.declare(file("f0", "/etc/f0", want["f0"]))
		out := s.once()
		c.Check(out.code == 1 && strings.Contains(out.stdout, reason.RestoreLost.String()), "the removal: %v", out)
		c.Equal(s.read("/etc/restored"), "declared\n", "what cannot be put back")
		c.Check(!slices.Contains(names(s, s.path("/etc")), "deleted"), "what was to be deleted is there")
	})
}

// fill writes to a file until its file system is full.
func fill(t testing.TB, p string) {
	t.Helper()
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 512)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}
