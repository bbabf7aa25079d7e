package converge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
)

func TestAgentCase09_TwoManagersFightOverOneVertex(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.settle()
	repairs, looks, contended := 0, 0, 0
	for began := r.now; r.now.Sub(began) < 24*time.Hour; {
		for len(r.flying) > 0 {
			if r.flying[0].Verb == Check {
				looks++
				r.endOp(0, differs)
			} else {
				repairs++
				r.endOp(0, changed)
			}
		}
		if r.e.Status(0).Outcome.String() == "contended" {
			contended++
		}
		r.pass(time.Second)
		r.touch("a") // the other one has changed it back
	}
	// 5 repairs, and then one after 1, 2, 4, .. 32 minutes and each hour.
	c.Check(repairs >= 5+20 && repairs <= 5+6+24, "%d repairs in a day", repairs)
	c.Check(looks <= repairs*2+2, "%d looks for %d repairs", looks, repairs)
	c.Check(contended > 23*60*60, "told as contended in %d of 86400 seconds", contended)
}

func TestAgentCase16_TenChangesOneRefresh(t *testing.T) {
	c := casetest.Start(t)
	var files, edges []string
	for i := range 10 {
		files = append(files, fmt.Sprint("f", i))
		edges = append(edges, fmt.Sprintf("f%d!service", i))
	}
	r := newRig(t, draw(t, 1, strings.Join(files, " ")+" service", edges...), Options{Lanes: []Lane{{Parallel: 3, Batch: 1}}}, Resume{})
	refreshes := 0
	for len(r.flying) > 0 {
		switch op := r.flying[0]; {
		case op.Verb == Check && op.name != "check service":
			r.endOp(0, differs)
		case op.Verb == Refresh:
			refreshes++
			c.Equal(len(r.pending()), 10, "durable notifications when the refresh is done")
			fallthrough
		default:
			r.endOp(0, Result{InSync: true, Changed: true})
		}
	}
	c.Equal(refreshes, 1, "refreshes")
	c.Equal(len(r.pending()), 0, "durable notifications in the end")
}

func TestAgentCase26_CycleThroughAnAutomaticEdge(t *testing.T) {
	c := casetest.Start(t)
	vertices := []Vertex{{Key: "/srv", Title: "directory /srv"}, {Key: "/srv/a", Title: "file /srv/a"}, {Key: "make", Title: "exec make"}}
	parent := Edge{From: 0, To: 1, Kind: Auto, Why: "parent directory"}
	other := Edge{From: 0, To: 2, Kind: Auto, Why: "parent directory"}

	g, cycles := NewGraph(vertices, []Edge{parent, other, {From: 1, To: 0}})
	c.Equal(cycles, []Cycle(nil), "cycles with an automatic edge")
	c.Equal(g.Dropped(), []Edge{parent}, "edges that yield")
	c.Equal(g.Order(), []ID{1, 0, 2}, "order")

	_, cycles = NewGraph(vertices, []Edge{parent, other, {From: 2, To: 1}, {From: 1, To: 2, Kind: Notify}})
	if c.Equal(len(cycles), 1, "real cycles") {
		c.Equal(cycles[0].Explain(func(id ID) string { return vertices[id].Title }),
			"file /srv/a notifies exec make; file /srv/a requires exec make", "explanation")
	}
}

func TestAgentCase27_AFailureInTheMiddle(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t, draw(t, 1, "a b c d x y", "a>b", "b>c", "c>d", "x>y"), Options{}, Resume{})
	for len(r.flying) > 0 {
		switch r.flying[0].name {
		case "apply b":
			r.endOp(0, full)
		default:
			r.endOp(0, changed)
		}
	}
	status := map[string]string{}
	for _, v := range r.e.Graph().Vertices {
		st := r.e.Status(r.id(string(v.Key)))
		status[v.Title] = st.Outcome.String()
		if st.BlockedBy != None {
			status[v.Title] += " by " + r.e.Graph().Vertices[st.BlockedBy].Title
		}
	}
	c.Equal(status, map[string]string{"a": "repaired", "b": "failed", "c": "blocked by b", "d": "blocked by c", "x": "repaired", "y": "repaired"}, "outcomes")
	c.Check(r.e.Quiet(), "not quiet")

	r.wait()
	for len(r.flying) > 0 {
		r.endOp(0, changed)
	}
	for _, name := range []string{"b", "c", "d"} {
		c.Equal(r.e.Status(r.id(name)).Outcome.String(), "repaired", name+" after the cure")
	}
}

func TestAgentCase34_ClockJumpsByYears(t *testing.T) {
	c := casetest.Start(t)
	const years = 10 * 365 * 24 * time.Hour
	for name, jump := range map[string]time.Duration{"forwards": years, "backwards": -years} {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			o := Options{Lanes: []Lane{{Parallel: 9, Batch: 1, Burst: 2, Every: time.Minute}}}
			r := newRig(t, draw(t, 1, "ok bad d0 d1 d2 d3 d4 d5"), o, Resume{})
			r.settle()
			r.touch("bad", "d0", "d1", "d2", "d3", "d4", "d5")
			ops := 0
			run := func() {
				for ; len(r.flying) > 0 && ops < 1000; ops++ {
					switch op := r.flying[0]; {
					case op.name == "check bad":
						r.endOp(0, full)
					case op.Verb == Check:
						r.endOp(0, differs)
					default:
						r.endOp(0, changed)
					}
				}
			}
			run()
			ops = 0
			r.pass(jump)
			run()
			c.Check(ops <= 1+2*6, "%d operations at once", ops)
			c.Check(r.wake > 0 && r.wake <= 10*time.Minute, "wakes after %v", r.wake)
			for began := r.now; r.now.Sub(began) < 20*time.Minute; {
				r.wait()
				run()
			}
			c.Check(ops <= 120, "%d operations in 20 minutes", ops)
			for i := range 6 {
				r.is(fmt.Sprint("d", i), "repaired: drift")
			}
			ops = 0
			r.touch("ok")
			run()
			c.Equal(ops, 2, "operations for an event")
		})
	}
}
