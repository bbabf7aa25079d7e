package agent

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/relations"
	"tako.dev/tako/internal/transfer/wire"
)

// TestGraphIsTold: an agent that runs tells of the order that it keeps, and without one the disk tells the same.
func TestGraphIsTold(t *testing.T) {
	s := newSite(t)
	if _, _, err := local.GraphOf(t.Context(), s.opts.StateDir, ""); !reason.Is(err, reason.AgentNotRunning) {
		t.Errorf("of a host that nobody keeps: %v", err)
	}
	s.declare("a", "b.service|require: [a]", "c|notify: [b.service]", "d")
	s.files.fail("apply /c", &reason.Error{Code: reason.DiskFull, Doing: "write /c"})
	stop := s.watch()
	s.until("c has failed", func(r *Report) bool { return r.Settled && resource(r, "file/c").Outcome == reason.Failed })
	live, running, err := local.GraphOf(t.Context(), s.opts.StateDir, "")
	if err != nil || !running || live.Node != "web-1" || live.Unrelated != 1 || len(live.Resources) != 3 {
		t.Fatalf("it tells %+v (running %v), %v", live, running, err)
	}
	for _, want := range []relations.Edge{{From: "path:/a", To: "unit:b.service", Kind: relations.Require}, {From: "path:/c", To: "unit:b.service", Kind: relations.Notify}} {
		if !slices.Contains(live.Edges, want) {
			t.Errorf("%+v is not in %+v", want, live.Edges)
		}
	}
	if text := live.Tree(present.Style{}); !strings.Contains(text, "file/c  ✗ Failed") {
		t.Errorf("the tree is\n%s", text)
	}
	about, _, err := local.GraphOf(t.Context(), s.opts.StateDir, "c")
	if err != nil || !slices.Equal(about.About, []string{"path:/c"}) || len(about.Resources) != 2 {
		t.Errorf("about c it tells %+v, %v", about, err)
	}
	if _, _, err := local.GraphOf(t.Context(), s.opts.StateDir, "nowhere"); !reason.Is(err, reason.ResourceUnknown) {
		t.Errorf("about what is not there: %v", err)
	}
	stop()
	left, running, err := local.GraphOf(t.Context(), s.opts.StateDir, "")
	if err != nil || running || !reflect.DeepEqual(left, live) {
		t.Errorf("the disk tells (running %v)\n%+v\nwant\n%+v, %v", running, left, live, err)
	}
	if _, _, err := local.GraphOf(t.Context(), s.opts.StateDir, "nowhere"); !reason.Is(err, reason.ResourceUnknown) {
		t.Errorf("about what is not there, by the disk: %v", err)
	}
}

// TestGraphIsAnsweredFromAfar: a server that asks gets the same, bounded.
func TestGraphIsAnsweredFromAfar(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a"), fileOf("b"))), wire.Applied)
	var g relations.Graph
	if err := json.Unmarshal([]byte(c.ask(wire.Question{What: wire.AskGraph, Subject: "/a"})), &g); err != nil || len(g.Resources) != 1 || g.Resources[0].Config != "NodeConfig/web" {
		t.Errorf("it tells %+v, %v", g, err)
	}
	if err := json.Unmarshal([]byte(c.ask(wire.Question{What: wire.AskGraph})), &g); err != nil || g.Unrelated != 2 {
		t.Errorf("of all it tells %+v, %v", g, err)
	}
	c.until("what it takes is told", func(r *wire.Report) bool {
		return r.Usage != nil && r.Usage.RSS >= r.Usage.Anonymous && r.Usage.Anonymous > 0
	})
}

// TestEndIsTold: who runs an agent once gets all resources in the end, with how long it took.
func TestEndIsTold(t *testing.T) {
	s := newSite(t)
	s.declare("a", "b", "off|when: node.labels['role'] == 'db'")
	var end []*Report
	var lines []Line
	s.opts.OnEnd, s.opts.OnLine = func(r *Report) { end = append(end, r) }, func(l Line) { lines = append(lines, l) }
	must(t, s.converge())
	if len(end) != 1 || len(end[0].Resources) != 3 || !end[0].Converged {
		t.Fatalf("it ends with %+v", end)
	}
	for _, l := range lines {
		if l.Resource.Outcome == reason.Repaired && (l.Took <= 0 || l.Cause != "declaration") {
			t.Errorf("%s took %v because of %q", l.Resource.Title, l.Took, l.Cause)
		}
	}
	h, err := local.HistoryOf(s.opts.StateDir, store.Asked{Subject: "a"})
	if err != nil || len(h) != 1 || h[0].Took <= 0 || h[0].Cause != "declaration" {
		t.Errorf("the history of a is %+v, %v", h, err)
	}
}
