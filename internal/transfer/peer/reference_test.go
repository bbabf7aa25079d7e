package peer

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says how long a host takes for others, and for how many of them.
func TestReference(t *testing.T) {
	const page = "../../../docs/spec/transfer.md"
	limits := Limits{}.withDefaults()
	spectest.Bounds(t, page, "Timers of a host that is asked", map[string]any{
		"handshake": handshakeMax, "message": messageTime, "write": limits.Write, "send": limits.Send, "idle connection": idleMax, "busy, shortest": busyMin, "busy, longest": busyMax,
	})
	spectest.Bounds(t, page, "Limits of a host that is asked", map[string]any{
		"connections": limits.Connections, "connections of an address": limits.SourceConnections, "accepts": limits.Accepts, "calls of a node": limits.Calls,
		"news": limits.News, "syncs": limits.Syncs, "nodes": limits.Nodes, "bytes": limits.Bytes, "callers": callersMax, "deposits": depositsMax,
		"changes": changesMax, "streams": streamsMax, "header bytes": headersMax,
	})
	if pieceMax != 32<<10 {
		t.Error("the page says other numbers in its text")
	}
}
