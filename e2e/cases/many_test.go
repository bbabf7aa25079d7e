package cases_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// many is as many resources as one host acts upon, in directories of manyPerDir files.
const (
	many       = 100_000
	manyPerDir = 1000
)

// manyTime is within which they are made. It takes 20 s of one processor, of which a busy machine may have little to spare.
const manyTime = 5 * time.Minute

// manyRSSMax bounds what an agent with so many files ever takes of the machine, with what it needs to read the declaration for the first time: 6 kB
// for each of them. It was 3.6 kB when this was written, and the Go runtime collects late where other programs leave it little of the processors.
const manyRSSMax = many * 6 << 10

func manyPath(i int) string { return fmt.Sprintf("/d%d/f%d", i/manyPerDir, i%manyPerDir) }

func manyContent(i int) string { return fmt.Sprintln("declared", i) }

// declareMany writes the declaration resource by resource: as one value it would be larger than what is tested.
func (s *sandbox) declareMany() {
	s.Helper()
	other := filepath.Join(s.dir, "other")
	f, err := os.Create(other)
	s.must(err)
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "apiVersion: %s\nkind: %s\nmetadata: {name: many}\nspec:\n  resources:\n", declare.APIVersion, declare.KindNodeConfig)
	for i := range many {
		if i%manyPerDir == 0 {
			s.must(os.Mkdir(filepath.Dir(s.path(manyPath(i))), 0o755)) // not declared: the files alone are all that a host may have
		}
		text, err := json.Marshal(file(fmt.Sprint("f", i), manyPath(i), manyContent(i)))
		s.must(err)
		fmt.Fprintf(w, "    - %s\n", text)
	}
	s.must(errors.Join(w.Flush(), f.Close()))
	s.must(os.Rename(other, filepath.Join(s.conf, "many.yaml")))
}

// rssMax is the most memory that a process has ever taken, see proc_pid_status(5).
func rssMax(t testing.TB, pid int) (bytes int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nVmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kB, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(line), " kB"))
	if err != nil {
		t.Fatalf("/proc/%d/status: %v", pid, err)
	}
	return kB << 10
}

func TestAgentCase37_ManyFiles(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	s.brief = true
	// In memory, because how long a disk takes to make 100,000 files durable is not what is looked at.
	for _, dir := range []string{s.root, s.state} {
		mount(t, dir, "1g")
	}
	s.declareMany()
	r := s.begin()
	last := manyPath(many - 1)
	c.Eventually(manyTime, "the last file is made", func() (string, bool) {
		got := s.read(last)
		return got, got == manyContent(many-1)
	})
	// What the kernel tells of our own work is answered by one look each at what is known of it.
	r.until("the first work has been heard of", func(rep *agent.Report) bool {
		return rep.Settled && rep.Totals.Recognised >= many
	})
	made := s.report()
	c.Check(made.Converged, "in the end: %s", show(made))
	c.Equal(made.Counts, map[reason.Outcome]int{reason.Repaired: many}, "outcomes")
	// After an overflow of the kernel's queue everything is looked at once more, and is to be.
	c.Check(made.Totals.Checks <= many*(1+made.Totals.Overflows), "%d checks of %d files: %+v", made.Totals.Checks, many, made.Totals)
	instances, watches := inotify(t, r.cmd.Process.Pid)
	c.Check(instances <= 2 && watches <= many/manyPerDir+10, "%d inotify instances with %d watches", instances, watches)
	for i := range many {
		if got := s.read(manyPath(i)); got != manyContent(i) {
			c.Check(false, "%s: %q", manyPath(i), got)
		}
	}

	// Each drift costs a look at its own file, and not at its neighbours in the directory nor at all.
	drifted := []int{0, many / 2, many - 1}
	for _, i := range drifted {
		s.must(os.WriteFile(s.path("/theirs"), []byte("drift\n"), 0o644))
		s.must(os.Rename(s.path("/theirs"), s.path(manyPath(i))))
		s.eventually(c, manyPath(i)+" is repaired", manyPath(i), manyContent(i))
	}
	r.until("the repairs have been heard of", func(rep *agent.Report) bool {
		return rep.Settled && rep.Totals.Recognised >= made.Totals.Recognised+uint64(len(drifted))
	})
	healed := s.report()
	c.Equal(healed.Totals.Drift-made.Totals.Drift, uint64(len(drifted)), "repairs")
	c.Equal(healed.Totals.Checks-made.Totals.Checks, uint64(len(drifted)), "checks for them")
	c.Check(healed.Totals.Recognised-made.Totals.Recognised <= 4*uint64(len(drifted)), "looks at own work for them: %+v, before %+v", healed.Totals, made.Totals)
	c.Equal(healed.Totals.Missed, uint64(0), "drift that no event told of")
	rss := rssMax(t, r.cmd.Process.Pid)
	c.Check(rss <= manyRSSMax, "the agent took up to %d MB with %d files", rss>>20, many)
}
