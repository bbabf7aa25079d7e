package cases_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// inotify counts the inotify instances and watches of a process, see inotify(7) and proc_pid_fdinfo(5).
func inotify(t testing.TB, pid int) (instances, watches int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	list, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		if to, _ := os.Readlink(dir + "/fd/" + fd.Name()); to != "anon_inode:inotify" {
			continue
		}
		instances++
		info, err := os.ReadFile(dir + "/fdinfo/" + fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		watches += strings.Count(string(info), "inotify wd:")
	}
	return instances, watches
}

func TestAgentCase01_OneInstanceTwoWatches(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	const files = 1000
	// On the host itself, where declarations and files are watched by one watcher; the declaration lies among the files, so
	// that it needs no watch of its own.
	s.root = "/"
	dir := filepath.Join(s.dir, "thousand")
	s.must(os.Mkdir(dir, 0o755))
	s.conf = filepath.Join(dir, "site.yaml")
	var resources []declare.Resource
	for i := range files {
		resources = append(resources, file(fmt.Sprint("f", i), fmt.Sprint(dir, "/f", i), fmt.Sprintln(i)))
	}
	s.write(s.conf, config(t, "site", resources...))
	r := s.watch()
	check := func(when string) {
		instances, watches := inotify(t, r.cmd.Process.Pid)
		c.Equal(instances, 1, "inotify instances "+when)
		c.Check(watches >= 1 && watches <= 2, "%d inotify watches %s", watches, when)
	}
	check("at the start")
	rep := s.report()
	c.Equal(rep.Counts, map[reason.Outcome]int{reason.Repaired: files}, "outcomes")
	for _, i := range []int{0, files / 2, files - 1} {
		p := filepath.Join(dir, fmt.Sprint("f", i))
		s.must(os.Remove(p))
		s.eventually(c, p+" is repaired", p, fmt.Sprintln(i))
	}
	// The directory is another one, with all files in it gone.
	s.must(os.Rename(dir, dir+".old"))
	s.must(os.Mkdir(dir, 0o755))
	for i := range files {
		p := filepath.Join(dir, fmt.Sprint("f", i))
		s.eventually(c, p+" is made again", p, fmt.Sprintln(i))
	}
	check("after the directory was replaced")
}

// limited makes a sandbox whose agent runs in a user namespace where a limit on inotify is low.
func limited(t testing.TB, limit string, n int) *sandbox {
	t.Helper()
	s := newSandbox(t)
	// A network of its own, because a change in it makes the agent read its declarations too.
	s.front = []string{"unshare", "--user", "--map-root-user", "--net", "sh", "-c", fmt.Sprintf(`echo %d >/proc/sys/user/%s && exec "$@"`, n, limit), "sh"}
	if out, err := exec.CommandContext(t.Context(), s.front[0], append(s.front[1:len(s.front):len(s.front)], "true")...).CombinedOutput(); err != nil {
		t.Skipf("needs user namespaces: %v: %s", err, out)
	}
	return s
}

// raise sets the limit of a running agent's namespace.
func (r *resident) raise(limit string, n int) {
	r.s.Helper()
	cmd := exec.CommandContext(r.s.Context(), "nsenter", "--user", "--preserve-credentials", "--target", strconv.Itoa(r.cmd.Process.Pid),
		"sh", "-c", fmt.Sprintf("echo %d >/proc/sys/user/%s", n, limit))
	if out, err := cmd.CombinedOutput(); err != nil {
		r.s.Fatalf("raise %s: %v: %s", limit, err, out)
	}
}

// slowly is within which an agent finds what the kernel does not tell it about: its slow check comes every 30 s.
const slowly = 2 * time.Minute

// shortHost is a sandbox that is short of watches.
type shortHost struct {
	*resident
	limit     string
	resources []declare.Resource
	content   map[string]string // of the files, by path
}

// newShortHost makes ten directories with a file each; the kernel tells of some of them at most.
func newShortHost(t testing.TB, limit string, n int) *shortHost {
	t.Helper()
	h := &shortHost{limit: limit, content: map[string]string{}}
	s := limited(t, limit, n)
	for i := range 10 {
		p := fmt.Sprintf("/d%d/file", i)
		h.content[p] = fmt.Sprintln("declared", i)
		h.resources = append(h.resources, directory(fmt.Sprint("d", i), filepath.Dir(p)), file(fmt.Sprint("f", i), p, h.content[p]))
	}
	s.declare(h.resources...)
	h.resident = s.watch()
	return h
}

// asDeclared looks at all files.
func (h *shortHost) asDeclared() (state string, ok bool) {
	for p, want := range h.content {
		if got := h.s.read(p); got != want {
			return fmt.Sprintf("%s: %s: %s", h.limit, p, got), false
		}
	}
	return "", true
}

// saysSo checks that the agent admits what it does not hear of.
func (h *shortHost) saysSo(c *casetest.Case) {
	rep := h.s.report()
	c.Check(has(rep.Degraded, reason.Unwatched), "%s: status does not say degraded: %s", h.limit, show(rep))
	text := h.s.run("status").stdout
	for _, want := range []string{"Degraded", reason.Unwatched.String(), "every 30s", "fs.inotify"} {
		c.Check(strings.Contains(text, want), "%s: status lacks %q:\n%s", h.limit, want, text)
	}
	// All were looked at when they were made, so to say converged is no lie.
	c.Check(rep.Converged && rep.Counts[reason.Unknown] == 0, "%s: everything was made: %s", h.limit, show(rep))
	unwatched := 0
	for i := range 10 {
		if strings.Contains(h.s.run("why", fmt.Sprint("f", i)).stdout, "not watched by the kernel") {
			unwatched++
		}
	}
	c.Check(unwatched >= 4, "%s: why calls %d of 10 not watched", h.limit, unwatched)
}

func TestAgentCase02_WatchLimits(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel() // most of it is waiting for slow checks
	hosts := []*shortHost{newShortHost(t, "max_inotify_watches", 6), newShortHost(t, "max_inotify_instances", 0)}
	for _, h := range hosts {
		h.saysSo(c)
		for p := range h.content {
			h.s.must(os.WriteFile(h.s.path(p), []byte("drift\n"), 0o644))
		}
		// A declaration that is not watched is read all the same.
		h.content["/d0/file"] = "newly declared\n"
		h.resources[1].File.Content = h.content["/d0/file"]
		h.s.declare(h.resources...)
	}
	for _, h := range hosts {
		c.Eventually(slowly, "all drift is repaired, and the new declaration enforced", h.asDeclared)
		h.until("all of it is known", settledAndConverged)
		h.saysSo(c)
		h.raise(h.limit, 1000)
	}
	for _, h := range hosts {
		c.Eventually(slowly, h.limit+": watched again", func() (string, bool) {
			rep := h.s.report()
			return show(rep), len(rep.Degraded) == 0
		})
		for p, want := range h.content {
			h.s.must(os.Remove(h.s.path(p)))
			h.s.eventually(c, p+" is repaired at once", p, want)
		}
	}
}

func TestAgentCase03_QueueOverflow(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	c.NoError(err, "read the size of the queue")
	queue, err := strconv.Atoi(strings.TrimSpace(string(text)))
	c.NoError(err, "size of the queue")
	const files = 50
	resources := []declare.Resource{directory("etc", "/etc")}
	for i := range files {
		resources = append(resources, file(fmt.Sprint("f", i), fmt.Sprint("/etc/f", i), "declared\n"))
	}
	s.declare(resources...)
	r := s.watch()
	before := r.check()

	host.Stop(t, r.cmd.Process.Pid)
	noise := [2]string{s.path("/etc/noise-a"), s.path("/etc/noise-b")}
	for _, p := range noise {
		s.must(os.WriteFile(p, nil, 0o644))
	}
	for i := range queue + 1 {
		s.must(os.Chmod(noise[i%2], 0o644)) // the kernel joins events of one name that follow each other
	}
	// From here on the kernel drops what it would tell.
	s.must(os.WriteFile(s.path("/etc/f7"), []byte("drift\n"), 0o644))
	s.must(os.Remove(s.path("/etc/f8")))
	r.signal(syscall.SIGCONT)

	s.eventually(c, "an edit that was not told is repaired", "/etc/f7", "declared\n")
	s.eventually(c, "a removal that was not told is repaired", "/etc/f8", "declared\n")
	r.until("settled", func(rep *agent.Report) bool { return rep.Settled && rep.Converged && rep.Totals.Drift == 2 })
	after := s.report()
	c.Check(after.Totals.Overflows > before.Totals.Overflows, "the overflow is not counted: %+v", after.Totals)
	looked := func(rep *agent.Report) uint64 { return rep.Totals.Checks + rep.Totals.Recognised }
	c.Check(looked(after)-looked(before) >= files, "only %d of %d were looked at", looked(after)-looked(before), files)
	c.Equal(after.Totals.Missed, uint64(0), "drift that no event told of")
}

func TestAgentCase04_ParentsMadeBySomebodyElse(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	// Few rounds, because to be repaired often is to be contended; many trees instead.
	const rounds, trees = 4, 20
	var resources []declare.Resource
	for i := range trees {
		resources = append(resources, file(fmt.Sprint("due", i), fmt.Sprintf("/t%d/a/b/c/due", i), "declared\n"))
		s.must(os.Mkdir(s.path(fmt.Sprint("/t", i)), 0o755))
	}
	s.declare(resources...)
	r := s.watch()
	for round := range rounds {
		r.until("every parent is missing", func(rep *agent.Report) bool {
			return rep.Settled && rep.Counts[reason.Failed] == trees && codeOf(resourceOf(rep, "file/due0")) == reason.ParentMissing
		})
		for i := range trees {
			s.comeToBe(s.path(fmt.Sprint("/t", i)), round+i)
		}
		for i := range trees {
			s.eventually(c, fmt.Sprintf("round %d, tree %d: made", round, i), fmt.Sprintf("/t%d/a/b/c/due", i), "declared\n")
		}
		r.until("settled", func(rep *agent.Report) bool { return rep.Settled && rep.Converged })
		for i := range trees {
			s.must(os.Rename(s.path(fmt.Sprintf("/t%d/a/b", i)), filepath.Join(s.dir, fmt.Sprint("gone", round, "-", i))))
			s.must(os.Remove(s.path(fmt.Sprintf("/t%d/a", i))))
		}
	}
	// Retries would find it too, but later. What the first round makes is caused by the declaration.
	told := 0
	for _, h := range s.history("-n", "0") {
		if h.Outcome == reason.Repaired.String() && h.Cause == "event" {
			told++
		}
	}
	c.Check(told >= (rounds-1)*trees*9/10, "of %d times it was %d times an event that told", (rounds-1)*trees, told)
}

// comeToBe makes the directories a/b/c in one of the ways in which they come to be.
func (s *sandbox) comeToBe(in string, way int) {
	s.Helper()
	other := filepath.Join(in, "other")
	switch way % 3 {
	case 0:
		s.must(os.MkdirAll(filepath.Join(in, "a/b/c"), 0o755))
	case 1: // at once
		s.must(os.MkdirAll(filepath.Join(other, "b/c"), 0o755))
		s.must(os.Rename(other, filepath.Join(in, "a")))
	case 2: // with a file in the last one already
		s.must(os.MkdirAll(filepath.Join(other, "c"), 0o755))
		s.must(os.WriteFile(filepath.Join(other, "c/due"), []byte("others\n"), 0o644))
		s.must(os.Mkdir(filepath.Join(in, "a"), 0o755))
		s.must(os.Rename(other, filepath.Join(in, "a/b")))
	}
}

// intoDirectory puts a directory in the place of a file, in one step: the agent is quick enough to put the file back between two.
func intoDirectory(p string) error {
	return errors.Join(os.Mkdir(p+".new", 0o755), unix.Renameat2(unix.AT_FDCWD, p+".new", unix.AT_FDCWD, p, unix.RENAME_EXCHANGE), os.Remove(p+".new"))
}

func TestAgentCase05_DriftInARow(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	drifts := []struct {
		name string
		do   func(p string) error
	}{
		{"rename over", func(p string) error {
			return errors.Join(os.WriteFile(p+".new", []byte("others\n"), 0o644), os.Rename(p+".new", p))
		}},
		{"same length", func(p string) error {
			return errors.Join(os.WriteFile(p+".new", []byte("DECLARED\n"), 0o644), os.Rename(p+".new", p))
		}},
		{"truncated", func(p string) error { return os.Truncate(p, 0) }},
		{"appended", func(p string) error {
			f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("more\n")
			return errors.Join(err, f.Close())
		}},
		{"chmodded", func(p string) error { return os.Chmod(p, 0o666) }},
		{"unlinked", os.Remove},
		{"directory", intoDirectory},
		{"symlink", func(p string) error { return errors.Join(os.Symlink("/etc/passwd", p+".new"), os.Rename(p+".new", p)) }},
	}
	if os.Getuid() == 0 {
		drifts = append(drifts, struct {
			name string
			do   func(p string) error
		}{"chowned", func(p string) error { return os.Chown(p, 65534, 65534) }})
	}
	resources := []declare.Resource{directory("etc", "/etc")}
	for i := range drifts {
		forced := file(fmt.Sprint("f", i), fmt.Sprint("/etc/f", i), "declared\n")
		forced.File.Force = true
		resources = append(resources, forced)
	}
	resources = append(resources, file("plain", "/etc/plain", "declared\n"))
	s.declare(resources...)
	r := s.watch()
	for i, d := range drifts {
		p := fmt.Sprint("/etc/f", i)
		c.NoError(d.do(s.path(p)), d.name)
		c.Eventually(soon, d.name+" is repaired", func() (string, bool) {
			info, err := os.Lstat(s.path(p))
			if err != nil {
				return err.Error(), false
			}
			return info.Mode().String() + " " + s.read(p), info.Mode() == 0o644 && s.read(p) == "declared\n" &&
				info.Sys().(*syscall.Stat_t).Uid == uint32(os.Getuid())
		})
		c.Eventually(soon, d.name+" is counted as drift", func() (string, bool) {
			list := s.history(fmt.Sprint("file/f", i))
			last := list[0].Outcome + " " + list[0].Detail
			return last, len(list) > 1 && last == "repaired drift"
		})
	}
	rep := s.report()
	c.Check(rep.Converged && rep.Totals.Drift >= uint64(len(drifts)) && rep.Totals.Missed == 0, "in the end: %s", show(rep))

	// Without force, what is of another type stays, with the reason.
	s.must(intoDirectory(s.path("/etc/plain")))
	r.until("refused", func(rep *agent.Report) bool { return codeOf(resourceOf(rep, "file/plain")) == reason.TypeInTheWay })
	res := resourceOf(s.report(), "file/plain")
	c.Check(res.Outcome == reason.Failed && res.Detail == reason.Denied, "in the way: %+v", res)
	info, err := os.Lstat(s.path("/etc/plain"))
	c.Check(err == nil && info.IsDir(), "what was in the way is gone: %v", err)
	s.must(os.Remove(s.path("/etc/plain")))
	s.eventually(c, "made when the way is free", "/etc/plain", "declared\n")
}
