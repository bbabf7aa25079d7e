package server

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says how long things take here, and how much of them there may be.
func TestReference(t *testing.T) {
	const page = "../../../docs/spec/transfer.md"
	times, limits := Times{}.withDefaults(), Limits{}.withDefaults()
	spectest.Bounds(t, page, "Timers of a server", map[string]any{
		"heartbeat, shortest": times.Heartbeat.Min, "heartbeat, longest": times.Heartbeat.Max, "watch, shortest": times.Watch.Min, "watch, longest": times.Watch.Max,
		"again, longest": times.Again.Max, "write": times.Write, "handshake": times.Handshake, "stranger": times.Stranger, "turn": times.Turn, "send": times.Send,
		"message": messageTime, "keepalive, idle": keepaliveIdle, "keepalive, interval": keepaliveInterval, "user timeout": userTimeout,
		"relay silence": relaySilence, "relay reports": relayPause,
	})
	spectest.Bounds(t, page, "Limits of a server", map[string]any{
		"connections": limits.Connections, "strangers": limits.Strangers, "connections of a node": limits.NodeConnections, "calls of a node": limits.NodeCalls,
		"fetches of a node": limits.NodeFetches, "calls of a relay": limits.RelayCalls, "agents of a relay": limits.RelayAgents, "accepts": limits.Accepts,
		"accepts of an address": limits.SourceAccepts, "snapshots": limits.Snapshots, "deltas": limits.Deltas, "objects": limits.Objects,
		"places of a node": hostPlaces, "streams": callsMax, "header bytes": headersMax,
	})
	if keepaliveCount != 2 || pieceMax != 32<<10 || fewChanges != 16 || burstOf != 10 {
		t.Error("the page says other numbers in its text")
	}
}
