package cases_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// sight is what is at a path.
func (s *sandbox) sight(p string) string {
	s.Helper()
	info, err := os.Lstat(s.path(p))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "absent"
	case err != nil:
		s.Fatal(err)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(s.path(p))
		s.must(err)
		return "-> " + target
	case info.IsDir():
		return info.Mode().String()
	}
	return info.Mode().String() + " " + s.read(p)
}

func TestAgentCase30_KeepRestoreDelete(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	for _, how := range []declare.OnRemove{"", declare.OnRemoveKeep, declare.OnRemoveRestore, declare.OnRemoveDelete} {
		for _, resident := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, resident %t", how, resident), func(t *testing.T) {
				c := c.Sub(t)
				s := newSandbox(t)
				s.must(os.MkdirAll(s.path("/old/directory"), 0o700))
				s.must(os.WriteFile(s.path("/old/file"), []byte("original\n"), 0o640))
				s.must(os.Symlink("original", s.path("/old/symlink")))
				things := []string{"/old/file", "/old/directory", "/old/symlink", "/new", "/new/file", "/new/symlink", "/new/deep", "/new/deep/file"}
				before := map[string]string{}
				for _, p := range things {
					before[p] = s.sight(p)
				}
				stays := file("stays", "/stays", "declared\n")
				s.declare(append(onRemove(how,
					file("of", "/old/file", "declared\n"), directory("od", "/old/directory"), symlink("ol", "/old/symlink", "declared"),
					directory("n", "/new"), file("nf", "/new/file", "declared\n"), symlink("nl", "/new/symlink", "declared"),
					directory("nd", "/new/deep"), file("ndf", "/new/deep/file", "declared\n")), stays)...)
				s.made()
				want := map[string]string{}
				for _, p := range things {
					want[p] = s.sight(p)
					c.Check(want[p] != before[p], "%s: nothing was made", p)
				}
				switch how {
				case declare.OnRemoveRestore:
					want = before
				case declare.OnRemoveDelete:
					for _, p := range things {
						want[p] = "absent"
					}
				}
				if resident {
					r := s.watch()
					root := s.report().Root
					s.declare(stays)
					r.until("the removal is done", func(rep *agent.Report) bool { return rep.Root != root && settledAndConverged(rep) })
					r.end(syscall.SIGTERM)
				} else {
					s.declare(stays)
					c.Equal(s.once().code, 0, "exit code")
				}
				for _, p := range things {
					c.Equal(s.sight(p), want[p], p+" when it is not declared any more")
				}
				// Done is done: what appears there later is nobody's business.
				s.must(os.MkdirAll(s.path("/new"), 0o755))
				s.must(os.WriteFile(s.path("/new/file"), []byte("others\n"), 0o644))
				c.Equal(s.once(), result{}, "a second converge")
				c.Equal(s.read("/new/file"), "others\n", "what came later")
			})
		}
	}
}

func TestAgentCase30_WhatIsInTheWayOfARemoval(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	stays := file("stays", "/stays", "declared\n")
	s.declare(append(onRemove(declare.OnRemoveDelete, directory("d", "/d"), file("f", "/d/f", "declared\n")), stays)...)
	s.made()
	s.must(os.WriteFile(s.path("/d/theirs"), []byte("precious\n"), 0o644))
	s.declare(stays)
	out := s.once()
	c.Check(out.code == 1 && strings.Contains(out.stdout, reason.DirectoryNotEmpty.String()), "a directory that is not empty: %v", out)
	c.Equal(names(s, s.path("/d")), []string{"theirs"}, "what is not ours, and nothing of ours")
	rep := s.report()
	c.Check(!rep.Converged && resourceOf(rep, "directory/d").Removal == "delete", "what waits: %s", show(rep))
	c.Check(strings.Contains(s.run("status").stdout, "directory/d"), "status does not list what waits to be removed")
	s.must(os.Remove(s.path("/d/theirs")))
	c.Equal(s.once().code, 0, "exit code when the way is free")
	c.Equal(s.sight("/d"), "absent", "the directory")

	// Declared again before it was removed, it is not removed.
	s.declare(append(onRemove(declare.OnRemoveDelete, directory("d", "/d")), stays)...)
	s.made()
	s.must(os.WriteFile(s.path("/d/theirs"), nil, 0o644))
	s.declare(stays)
	c.Equal(s.once().code, 1, "exit code")
	s.must(os.Remove(s.path("/d/theirs")))
	s.declare(directory("d", "/d"), stays)
	c.Equal(s.once().code, 0, "exit code of the declaration that has it again")
	c.Check(strings.HasPrefix(s.sight("/d"), "d"), "it was removed all the same: %s", s.sight("/d"))
}

func TestAgentCase30_KilledWhileItRemoves(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	s := newSandbox(t)
	s.must(os.Mkdir(s.path("/etc"), 0o755))
	stays := file("stays", "/stays", "declared\n")
	arrange := func() {
		s.must(os.WriteFile(s.path("/etc/restored"), []byte("original\n"), 0o640))
		s.must(os.Chmod(s.path("/etc/restored"), 0o640))
		s.declare(append(onRemove(declare.OnRemoveRestore, file("restored", "/etc/restored", "declared\n")),
			append(onRemove(declare.OnRemoveDelete, directory("d", "/d"), file("f", "/d/f", "declared\n")), stays)...)...)
		s.made()
		s.declare(stays)
	}
	kills := s.killEverywhere(arrange, func(nth int) {
		at := fmt.Sprint("call ", nth)
		c.Check(s.read("/etc/restored") == "original\n" || s.read("/etc/restored") == "declared\n", "killed at %s: %q", at, s.read("/etc/restored"))
		r := s.once()
		c.Check(r.code == 0, "after a kill at %s: %v", at, r)
		got := []string{s.sight("/etc/restored"), s.sight("/d")}
		c.Check(slices.Equal(got, []string{"-rw-r----- original\n", "absent"}), "after a kill at %s: %q", at, got)
		c.Equal(names(s, s.path("/etc")), []string{"restored"}, "left after a kill at "+at)
	})
	c.Check(kills >= 10, "killed at %d calls only", kills)
	t.Logf("killed at %d calls", kills)
}

func TestAgentCase13_NotificationSurvivesKills(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	// A sandbox has no services, so what a service is told waits for ever, where it can be seen.
	s := newSandbox(t)
	conf := file("conf", "/conf", "old\n")
	web := declare.Resource{Name: "web", Service: &declare.Service{}}
	owes := func() []string { return slices.Compact(resourceOf(s.report(), "service/web").Owes) }
	content := 0
	arrange := func() {
		s.must(os.RemoveAll(s.state))
		conf.File.Content, conf.Notify = "old\n", nil
		s.declare(conf)
		s.made()
		content++
		conf.Notify = []string{"web"}
		conf.File.Content = fmt.Sprintln("new", content)
		s.declare(conf, web)
	}
	kills := s.killEverywhere(arrange, func(nth int) {
		at := fmt.Sprint("call ", nth)
		now := s.read("/conf")
		c.Check(now == "old\n" || now == conf.File.Content, "killed at %s: %q", at, now)
		for range 2 { // and it survives a restart without a kill
			s.once()
			c.Equal(s.read("/conf"), conf.File.Content, "the file after a kill at "+at)
			c.Equal(owes(), []string{"file/conf"}, "what the service waits for after a kill at "+at)
		}
		c.Equal(names(s, s.root), []string{"conf"}, "left after a kill at "+at)
	})
	c.Check(kills >= 10, "killed at %d calls only", kills)
	t.Logf("killed at %d calls", kills)
	c.Equal(owes(), []string{"file/conf"}, "what the service waits for without a kill")
	text := s.run("status").stdout
	c.Check(strings.Contains(text, reason.NotifyPending.String()), "status does not say that a notification is pending:\n%s", text)
}

// opens matches an open that may write.
var opens = regexp.MustCompile(`^[0-9]+ +open.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE|APPEND)`)

// silent are the calls that change nothing although they are of those that write: to standard output and error, and to the
// runtime's own descriptors.
var silent = regexp.MustCompile(`^[0-9]+ +(write\([12]<|p?write\w*\(\d+<anon_inode:)|"/dev/null"`)

func TestAgentCase29_DryRunOfTheWholeAgent(t *testing.T) {
	c := casetest.Start(t)
	needsTool(t, "strace")
	s := newSandbox(t)
	s.must(os.MkdirAll(s.path("/etc"), 0o755))
	s.must(os.WriteFile(s.path("/etc/replaced"), []byte("old\n"), 0o600))
	s.declare(onRemove(declare.OnRemoveDelete, file("leaves", "/etc/leaves", "declared\n"))...)
	s.made()
	conf := file("new", "/etc/deep/new", "new\n")
	conf.Notify = []string{"web"}
	s.declare(directory("etc", "/etc"), file("replaced", "/etc/replaced", "new\n"), directory("deep", "/etc/deep"), conf,
		symlink("link", "/etc/link", "deep"), declare.Resource{Name: "web", Service: &declare.Service{}},
		declare.Resource{Name: "tree", Package: &declare.Package{}})
	for _, fresh := range []bool{false, true} {
		if fresh { // not even the state directory is made
			s.must(os.RemoveAll(s.state))
		}
		before := tree(t, s.dir)
		for flag, exit := range map[string]int{"--dry-run": 1, "--diff": 2} {
			trace := filepath.Join(t.TempDir(), "trace")
			s.front = []string{"strace", "-f", "--seccomp-bpf", "-qq", "-yy", "-o", trace, "-e", "trace=openat,openat2,open,creat,truncate,mknod,mknodat,symlink,chmod,chown,lchown,utimensat,setxattr,fsetxattr,lsetxattr,fallocate," +
				"write,pwrite64,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,symlinkat,fsync,fdatasync,ftruncate,fchmod,fchmodat,fchown,fchownat"}
			out := s.run("converge", "-f", s.conf, flag)
			s.front = nil
			c.Equal(out.code, exit, flag+": exit code, with two types that a sandbox has not")
			for _, want := range []string{"file/replaced", "directory/deep", "file/new", "symlink/link", reason.UnsupportedInRoot.String()} {
				c.Check(strings.Contains(out.stdout, want), "%s lacks %s:\n%s", flag, want, out)
			}
			c.Check(fresh || strings.Contains(out.stdout, "file/leaves"), "%s lacks the removal:\n%s", flag, out)
			text, err := os.ReadFile(trace)
			c.NoError(err, "read the trace")
			calls := 0
			for line := range strings.Lines(string(text)) {
				calls++
				// A thread that ends in a call that strace has not yet looked at is "???": such a call is not made.
				if strings.Contains(line, "+++") || strings.Contains(line, "---") || strings.Contains(line, " ???( <detached ...>") || silent.MatchString(line) {
					continue
				}
				reads := strings.Contains(line, " open") && !opens.MatchString(line) || strings.Contains(line, "resumed>")
				c.Check(reads, "%s makes the system call %s", flag, line)
			}
			c.Check(calls > 20, "the trace has %d calls only", calls)
			c.Equal(tree(t, s.dir), before, "the sandbox, state and declarations after "+flag)
		}
	}
	// And what it said is what is done.
	planned := s.run("converge", "-f", s.conf, "--dry-run")
	done := s.once()
	for _, title := range []string{"file/replaced", "directory/deep", "symlink/link"} {
		c.Check(about(planned.stdout, title) != "" && about(planned.stdout, title) == about(done.stdout, title), "%s: planned %q, done %q", title,
			about(planned.stdout, title), about(done.stdout, title))
	}
	c.Equal(about(planned.stdout, "directory/etc"), "", "planned for what is as declared")
}

// about is what a line of output says about a resource.
func about(out, title string) string {
	for line := range strings.Lines(out) {
		if _, what, ok := strings.Cut(line, " "+title+": "); ok {
			what, _, _ = strings.Cut(what, ";")
			return strings.TrimSpace(what)
		}
	}
	return ""
}

// nobody is the user number of nobody on every distribution.
const nobody = 65534
