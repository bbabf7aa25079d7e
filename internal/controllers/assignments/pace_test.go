package assignments

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/fleet/assign"
)

// TestPace: the next decision waits three times as long as one took, from when it was taken and not from when it was written: after a change of
// what all nodes have the writes take longer than that, and the first reports are there when they are done.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(time.Now())
		for took, want := range map[time.Duration]time.Duration{0: burstWait, 50 * time.Microsecond: burstWait, 40 * time.Millisecond: 120 * time.Millisecond} {
			w.paced(time.Now().Add(-took))
			if got := time.Until(w.mayDecide); got != want {
				t.Errorf("after a decision of %v the next one waits %v, want %v", took, got, want)
			}
		}
	})
}

// TestDirtyHosts: those of which something was decided, and nothing was planned since, in order.
func TestDirtyHosts(t *testing.T) {
	w := newWorld(time.Now())
	for name, h := range map[string]*host{
		"c": {dirty: true, rows: []assign.Row{}}, "a": {dirty: true, rows: []assign.Row{}}, "planned": {rows: []assign.Row{}}, "undecided": {dirty: true},
	} {
		h.name = name
		if w.hosts[name] = h; h.dirty {
			w.replan(h)
		}
	}
	w.planned["gone"] = true
	if got := w.dirtyHosts(); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%v", got)
	}
}
