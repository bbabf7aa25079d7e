package host

import (
	"testing"
	"time"
)

// pollInterval is the pause between two looks at a state: short against the 5 ms that one command in a host takes together
// with what it waits for, long enough to leave the processors to the host.
const pollInterval = 20 * time.Millisecond

// Eventually calls probe until it says ok, and fails the test when that has not happened after deadline. what names the
// state that is waited for ("nginx answers"). probe returns the state that it sees, which is printed when the wait fails;
// it looks at the present state only, so it does not matter how often it is called or what it has missed.
func Eventually(t testing.TB, deadline time.Duration, what string, probe func() (state string, ok bool)) {
	t.Helper()
	late := time.NewTimer(deadline)
	defer late.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for over := false; ; {
		state, ok := probe()
		if ok {
			return
		}
		if over {
			t.Fatalf("wait for %s: not so after %v; last seen: %s", what, deadline, state)
		}
		select {
		case <-tick.C:
		case <-late.C:
			over = true // since the last look a machine that is busy may have done nothing for us
		case <-t.Context().Done():
			t.Fatalf("wait for %s: the test ended; last seen: %s", what, state)
		}
	}
}
