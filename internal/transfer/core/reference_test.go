package core

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says how long a host pauses, and why.
func TestReference(t *testing.T) {
	spectest.Bounds(t, "../../../docs/spec/transfer.md", "Timers of what a host decides", map[string]any{
		"back-off, first": backoffMin, "back-off, longest": backoffMax, "wrong three times": rejectedPause, "wrong three times, longest": rejectedMax,
		"blamed": blamedFor, "away from one that failed": stickFor, "trust asked for again": trustPause, "overtaken": supersededPause,
	})
	if descentRowsMax != 50_000 || bytesSlack != 4<<20 || doubtsMax < 1 {
		t.Error("the page says other numbers in its text")
	}
}
