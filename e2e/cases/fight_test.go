package cases_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// ticks is the processor time of a process so far, in ticks of 10 ms, see proc_pid_stat(5).
func ticks(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		t.Fatalf("/proc/%d/stat: %s", pid, text)
	}
	return user + system
}

// fight writes a file again and again whenever it is not as others want it, until stop is called, which says how often.
func (s *sandbox) fight(p, content string) (stop func() int) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	writes := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if s.read(p) != content {
				writes++
				if os.WriteFile(s.path(p)+".theirs", []byte(content), 0o644) != nil || os.Rename(s.path(p)+".theirs", s.path(p)) != nil {
					return
				}
			}
			<-tick.C
		}
	})
	stop = sync.OnceValue(func() int {
		cancel()
		wg.Wait()
		return writes
	})
	s.Cleanup(func() { stop() })
	return stop
}

func TestAgentCase09_TwoManagersFight(t *testing.T) {
	c := casetest.Start(t)
	const (
		repairsMax = 5 // in a minute; then it is a fight
		watched    = 3 * time.Second
		ticksMax   = 30 // a tenth of a processor; a fight without a brake takes all of one
	)
	s := newSandbox(t)
	s.declare(directory("etc", "/etc"), file("fought", "/etc/fought", "ours\n"), file("other", "/etc/other", "ours\n"))
	r := s.watch()
	stop := s.fight("/etc/fought", "theirs\n")
	r.until("contended", func(rep *agent.Report) bool {
		return resourceOf(rep, "file/fought").Outcome == reason.Contended
	})
	before, since := ticks(t, r.cmd.Process.Pid), time.Now()
	c.Eventually(2*watched, "they have been watched", func() (string, bool) {
		return s.read("/etc/fought"), time.Since(since) > watched
	})
	spent := ticks(t, r.cmd.Process.Pid) - before
	c.Check(spent <= ticksMax, "%d ticks of CPU in %v of a fight", spent, time.Since(since))

	rep := s.report()
	res := resourceOf(rep, "file/fought")
	c.Equal(res.Outcome, reason.Contended, "outcome")
	c.Equal(codeOf(res), reason.RepairContended, "reason")
	c.Check(!rep.Converged, "a host with a fight is called converged")
	c.Check(time.Until(res.RetryAt) > 5*time.Second, "held off until %v only", res.RetryAt)
	c.Equal(rep.Totals.Drift, uint64(repairsMax), "repairs")
	c.Equal(s.read("/etc/fought"), "theirs\n", "the file in the hold-off")
	if os.Getuid() == 0 {
		who := fmt.Sprintf("uid 0, pid %d ", os.Getpid())
		// The last change may be looked at before the kernel has told whose it was; the one before it is told in any case.
		last := s.history("file/fought")[:2]
		c.Check(strings.Contains(last[0].Writer+last[1].Writer, who), "the writer in the history: %+v", last)
		why := s.run("why", "fought").stdout
		c.Check(strings.Contains(why, who), "why names no writer:\n%s", why)
	}

	// Everything else goes on.
	s.must(os.Remove(s.path("/etc/other")))
	s.eventually(c, "another file is repaired meanwhile", "/etc/other", "ours\n")
	writes := stop()
	c.Check(writes >= repairsMax && writes <= repairsMax+1, "they had to write %d times", writes)

	// Another declaration is a reason to try at once.
	s.declare(directory("etc", "/etc"), file("fought", "/etc/fought", "newly declared\n"))
	s.eventually(c, "a new declaration ends the hold-off", "/etc/fought", "newly declared\n")
}

func TestAgentCase10_OwnRepairsAreRecognised(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	const files = 40
	// What is in a directory that has just come is looked at again, whoever made it; so it is there.
	s.must(os.Mkdir(s.path("/etc"), 0o755))
	resources := []declare.Resource{directory("etc", "/etc"), symlink("link", "/etc/link", "target")}
	for i := range files {
		resources = append(resources, file(fmt.Sprint("f", i), fmt.Sprint("/etc/f", i), "declared\n"))
	}
	s.declare(resources...)
	r := s.watch()
	// What the kernel tells of our own work is answered by one look at what is known of it, not by a check.
	r.until("the first work has been heard of", func(rep *agent.Report) bool {
		return rep.Settled && rep.Totals.Recognised >= files
	})
	before := s.report()
	c.Equal(before.Totals.Checks, uint64(len(resources)), "checks of the first converge")
	for i := range files {
		p := fmt.Sprint("/etc/f", i)
		s.write(s.path(p), "drift\n")
		s.eventually(c, p+" is repaired", p, "declared\n")
	}
	r.until("all repairs have been heard of", func(rep *agent.Report) bool {
		return rep.Settled && rep.Totals.Recognised >= before.Totals.Recognised+files
	})
	after := s.report()
	c.Equal(after.Totals.Drift, uint64(files), "repairs")
	c.Equal(after.Totals.Checks-before.Totals.Checks, uint64(files), "checks for them")
}
