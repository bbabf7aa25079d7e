package node

import "time"

// Herd is what is known of nodes whose connections have ended at about the same time, as when a relay or a link of all is restarted: their agents
// come back one after the other, as fast as they are admitted, and who waits for its turn is not lost. The zero Herd has none. A lost host is
// no part of it: its connection does not end, TCP keepalive ends it.
type Herd struct {
	away int       // nodes that may still come back
	back time.Time // when one of them last did
}

const (
	// herdLeast and herdShare, in percent of all, are from how many on it is a herd: a few agents that are restarted come back at once.
	herdLeast, herdShare = 10, 1
	// herdPause is how long nobody may have come back until the rest is not waited for: half of what one alone has.
	herdPause = closeGrace / 2
)

// Left is told that a connection has ended.
func (h *Herd) Left() { h.away++ }

// Returned is told that the node of such a one has come back.
func (h *Herd) Returned(now time.Time) { h.away, h.back = h.away-1, now }

// Dropped is told that such a node is not waited for any more.
func (h *Herd) Dropped() { h.away-- }

// Until is until when the rest of a herd is waited for, in a fleet of all nodes; zero: this is none.
func (h *Herd) Until(all int) time.Time {
	if h.away < herdLeast || h.away*100 < herdShare*all || h.back.IsZero() {
		return time.Time{}
	}
	return h.back.Add(herdPause)
}
