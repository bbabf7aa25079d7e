package agent

import (
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestStuckIsTold: a state that cannot be brought over is told on the host as one that is no good is, until there is one that can.
func TestStuckIsTold(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a"))), wire.Applied)
	c.assign(func(h *catalog.Head) { h.MinProtocol = catalog.HeadProtocol + 1 }, c.config("NodeConfig/web", 5, textOf("a", "later")))
	r := s.until("it is told", func(r *Report) bool { return len(r.Refused) == 1 })
	if p := r.Refused[0]; p.Code != reason.LaterVersion || p.Hint == "" || r.Converged || r.Cluster.Verdict != wire.Rejected.String() || !r.Cluster.Connected {
		t.Errorf("status %+v, cluster %+v", r, r.Cluster)
	}
	s.holds("a", "text of a")
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "next"))), wire.Applied)
	if r := s.until("it is over", func(r *Report) bool { return len(r.Refused) == 0 }); r.Cluster.Verdict != wire.Applied.String() {
		t.Errorf("status %+v, cluster %+v", r, r.Cluster)
	}
}
