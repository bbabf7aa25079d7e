package client

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says how long a host waits, and for what.
func TestReference(t *testing.T) {
	spectest.Bounds(t, "../../../docs/spec/transfer.md", "Timers of a host", map[string]any{
		"heartbeat, longest": heartbeatMax, "first answer": silenceMax, "one call": callMax, "one sync": syncMax, "report": reportPause, "lazy report": lazyPause, "usage": usageEveryMin,
		"pause that a server may ask for": againMax, "silence that a server may ask for": quietMax, "head expired, other server": frozenAfter, "dial": dialTimeout, "idle connection": idleMax, "question to a peer": peerMax,
		"fallback, first": fallbackAfter, "fallback, longest": fallbackMax,
	})
}
