//go:build e2e

package alone_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
)

const (
	// randomKills is how often an agent is killed at random, and randomKillsSoak how often in a long run.
	randomKills     = 15
	randomKillsSoak = 1000
	// everyTypeKills is how often one is killed that has every type to do, which takes it everyTypeWithin.
	everyTypeKills  = 10
	everyTypeWithin = 3 * time.Second
	// killWithin is longer than the agent needs for a change, so that it is killed before, while and after it makes it.
	killWithin = 300 * time.Millisecond
)

// killsOf is how often a test kills, which is otherwise in a long run, and what chance is made of.
func killsOf(t *testing.T, kills int) (int, *rand.Rand) {
	t.Helper()
	if os.Getenv("TAKO_SOAK") != "" {
		kills = randomKillsSoak
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return kills, rand.New(rand.NewPCG(seed, seed))
}

// soon has systemd start the agent again at once.
func (s *site) soon(t *testing.T) {
	t.Helper()
	s.Put(t, "/etc/systemd/system/tako-agent.service.d/soon.conf", "[Service]\nRestartSec=50ms\n", 0o644)
	s.MustRun(t, "systemctl", "daemon-reload")
}

// killAfter kills the agent after a while, and returns how often: it may not be back yet from the last time.
func (s *site) killAfter(t *testing.T, after time.Duration) int {
	t.Helper()
	if s.MustRun(t, "sh", "-c", "sleep $1; systemctl kill --kill-whom=main --signal=KILL tako-agent >/dev/null 2>&1 && echo killed || true",
		"kill", fmt.Sprint(after.Seconds())) == "" {
		return 0
	}
	return 1
}

// TestScenario5_KilledAtRandom kills the agent of the unit at any time around a change, now and then again when it has only just come
// back. At no time is anything half done; in the end the change is whole, with the restart that it is to cause, what is to be removed is
// gone, and no temporary is left.
func TestScenario5_KilledAtRandom(t *testing.T) {
	t.Parallel()
	kills, random := killsOf(t, randomKills)
	s := newSite(t)
	s.soon(t)
	s.start(t, generation(0, 0))
	s.awaitConverged(t)
	for files, unit := 1, 0; kills > 0; files++ {
		unit += random.IntN(2)
		s.put(t, generation(files, unit))
		for again := true; again && kills > 0; again = random.IntN(3) == 0 {
			kills -= s.killAfter(t, time.Duration(random.Int64N(int64(killWithin))))
			if faults := s.MustRun(t, "sh", "-c", whole, "whole", strconv.Itoa(files-1), strconv.Itoa(files)); faults != "" {
				t.Fatalf("generation %d, %d kills to go: %s", files, kills, faults)
			}
		}
		host.Eventually(t, repairTime, "generation "+strconv.Itoa(files)+" is complete", func() (string, bool) {
			faults := s.MustRun(t, "sh", "-c", complete, "complete", strconv.Itoa(files), strconv.Itoa(unit))
			return faults, faults == ""
		})
	}
}

// TestScenario5_EveryTypeKilledAtRandom kills the agent of the unit at any time while it makes a host with every type as another declaration wants
// it. In the end all is as declared, which a plan by itself says too, what was notified runs anew, and no temporary is left.
func TestScenario5_EveryTypeKilledAtRandom(t *testing.T) {
	t.Parallel()
	kills, random := killsOf(t, everyTypeKills)
	s := newSite(t, host.Deb{Name: "tool", Version: "1.0"}, host.Deb{Name: "tool", Version: "2.0"})
	s.prepare(t)
	s.soon(t)
	declarations := s.everyType(t)
	s.start(t, declarations[0])
	s.awaitConverged(t)
	for turn, root := 1, s.status(t).Root; kills > 0; turn++ {
		s.put(t, declarations[turn%2])
		for again := true; again && kills > 0; again = random.IntN(3) > 0 {
			kills -= s.killAfter(t, time.Duration(random.Int64N(int64(everyTypeWithin))))
		}
		before := root
		s.await(t, convergeTime, fmt.Sprintf("turn %d is complete, %d kills to go", turn, kills), func(r *agent.Report) bool {
			root = r.Root
			return root != before && r.Converged && r.Settled
		})
		if nice := s.MustRun(t, "awk", "{print $19}", "/proc/"+s.mainPID(t, "web.service")+"/stat"); strings.TrimSpace(nice) != strconv.Itoa(1+turn%2) {
			t.Errorf("turn %d: the service runs as its unit was before: nice %s", turn, nice)
		}
		s.MustRun(t, "systemctl", "stop", "tako-agent")
		if left, exit := s.reports(t, "--diff"); exit != 0 {
			t.Errorf("turn %d: there is left %+v", turn, left)
		}
		if left := s.MustRun(t, "find", "/", "-xdev", "-name", ".tako.*"); left != "" {
			t.Errorf("turn %d: temporaries are left:\n%s", turn, left)
		}
		s.MustRun(t, "systemctl", "start", "tako-agent")
	}
}
