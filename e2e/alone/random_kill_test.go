//go:build e2e

package alone_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

const (
	// randomKills is how often an agent is killed at random, and randomKillsSoak how often in a long run.
	randomKills     = 15
	randomKillsSoak = 1000
	// killWithin is longer than the agent needs for a change, so that it is killed before, while and after it makes it.
	killWithin = 300 * time.Millisecond
)

// TestScenario5_KilledAtRandom kills the agent of the unit at any time around a change, now and then again when it has only just come
// back. At no time is anything half done; in the end the change is whole, with the restart that it is to cause, what is to be removed is
// gone, and no temporary is left.
func TestScenario5_KilledAtRandom(t *testing.T) {
	t.Parallel()
	kills := randomKills
	if os.Getenv("TAKO_SOAK") != "" {
		kills = randomKillsSoak
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	s := newSite(t)
	s.Put(t, "/etc/systemd/system/tako-agent.service.d/soon.conf", "[Service]\nRestartSec=50ms\n", 0o644)
	s.start(t, generation(0, 0))
	s.awaitConverged(t)
	for files, unit := 1, 0; kills > 0; files++ {
		unit += random.IntN(2)
		s.put(t, generation(files, unit))
		for again := true; again && kills > 0; again = random.IntN(3) == 0 {
			after := time.Duration(random.Int64N(int64(killWithin)))
			// It may not be back yet from the last time; then nothing is killed.
			if s.MustRun(t, "sh", "-c", "sleep $1; systemctl kill --kill-whom=main --signal=KILL tako-agent >/dev/null 2>&1 && echo killed || true",
				"kill", fmt.Sprint(after.Seconds())) != "" {
				kills--
			}
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
