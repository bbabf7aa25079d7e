package host

import (
	"testing"
	"time"
)

const (
	// pollInterval is the least pause between two looks at a state.
	pollInterval = 20 * time.Millisecond
	// pollMax is the longest one.
	pollMax = time.Second
)

// pollPause is how long to wait for the next look at a state, after so long a wait, of which the last look took its part: what comes soon is seen
// soon, what comes late a twentieth later, and most of the time is left to what is waited for. To look is to run a program, and the
// tests that wait would else take the processors from those that work.
func pollPause(waited, look time.Duration) time.Duration {
	return min(max(pollInterval, waited/20, 2*look), pollMax)
}

// Eventually calls probe until it says ok, and fails the test when that has not happened after deadline. what names the
// state that is waited for ("nginx answers"). probe returns the state that it sees, which is printed when the wait fails;
// it looks at the present state only, so it does not matter how often it is called or what it has missed.
func Eventually(t testing.TB, deadline time.Duration, what string, probe func() (state string, ok bool)) {
	t.Helper()
	late := time.NewTimer(deadline)
	defer late.Stop()
	began := time.Now()
	for over := false; ; {
		asked := time.Now()
		state, ok := probe()
		if ok {
			return
		}
		if over {
			t.Fatalf("wait for %s: not so after %v; last seen: %s", what, deadline, state)
		}
		pause := time.NewTimer(pollPause(asked.Sub(began), time.Since(asked)))
		select {
		case <-pause.C:
		case <-late.C:
			over = true // since the last look a machine that is busy may have done nothing for us
		case <-t.Context().Done():
			t.Fatalf("wait for %s: the test ended; last seen: %s", what, state)
		}
		pause.Stop()
	}
}
