package core

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says when a host asks others, and how many.
func TestReference(t *testing.T) {
	spectest.Bounds(t, "../../../../docs/spec/transfer.md", "Timers of a host without a server", map[string]any{
		"silent": SilentFor, "pause, shortest": pauseMin, "pause, longest": pauseMax, "rest, first": restMin, "rest, longest": restMax, "lied": liedFor,
	})
	if RoundMax != 3 {
		t.Error("the page says that a round has three")
	}
}
