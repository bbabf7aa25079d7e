package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

var (
	r1 = Target{"r1", 100, ""}
	r2 = Target{"r2", 100, ""}
)

// node has converged on what it has.
func node(name string, has Target) Node {
	return Node{Name: name, Presence: Heard, Assigned: has, Since: start, Report: Report{Of: has, Verdict: Converged}}
}

func nodes(n int, has Target) []Node {
	var all []Node
	for i := range n {
		all = append(all, node(fmt.Sprint("n", i), has))
	}
	return all
}

func failing(n Node, has Target, verdict Verdict) Node {
	n.Assigned, n.Since = has, start.Add(time.Hour)
	n.Report = Report{Of: has, Verdict: verdict, Code: reason.CheckRejected, Message: "unknown directive", Since: start.Add(61 * time.Minute)}
	return n
}

// view is a fleet that has converged on r1 and is to have r2.
func view(all []Node, spec declare.Rollout) View {
	return View{Config: "NodeConfig/x/web", Spec: spec, Target: r2, Nodes: all, Was: Status{Phase: Complete, Target: r1, Proven: r1, ProvenAt: start}}
}

var later = start.Add(65 * time.Minute)

func movesTo(t *testing.T, d Decision, to Target, n int) {
	t.Helper()
	for _, m := range d.Moves {
		if m.Target != to {
			t.Errorf("%s gets %v, want %v", m.Node, m.Target, to)
		}
	}
	if len(d.Moves) != n {
		t.Errorf("%d nodes go on, want %d: %+v", len(d.Moves), n, d)
	}
}

func TestMaxUnavailable(t *testing.T) {
	for _, c := range []struct {
		max         declare.IntOrPercent
		nodes, want int
	}{{"", 5, 1}, {"", 10, 1}, {"", 19, 1}, {"", 20, 2}, {"50%", 3, 1}, {"100%", 7, 7}, {"3", 7, 3}, {"9", 7, 7}} {
		t.Run(fmt.Sprint(c.max, " of ", c.nodes), func(t *testing.T) {
			movesTo(t, Decide(view(nodes(c.nodes, r1), declare.Rollout{MaxUnavailable: c.max}), later), r2, c.want)
		})
	}
}

// Silent nodes, and those not heard yet, count as unavailable and get nothing.
func TestUnavailableNodesTakeUpRoom(t *testing.T) {
	all := nodes(4, r1)
	all[0].Presence, all[1].Presence = Silent, Unheard
	d := Decide(view(all, declare.Rollout{MaxUnavailable: "3"}), later)
	movesTo(t, d, r2, 1)
	d = Decide(view(all, declare.Rollout{MaxUnavailable: "2"}), later)
	movesTo(t, d, r2, 0)
	if d.Status.Phase != Waiting || len(d.Status.Culprits) != 2 || d.Status.Counts != (Counts{Selected: 4, Silent: 1, Unheard: 1, Left: 2}) {
		t.Errorf("status is %+v", d.Status)
	}
}

func TestHalt(t *testing.T) {
	for _, verdict := range []Verdict{Failed, Rejected, Withheld, Quarantined} {
		all := nodes(10, r1)
		all[3] = failing(all[3], r2, verdict)
		d := Decide(view(all, declare.Rollout{MaxUnavailable: "5"}), later)
		movesTo(t, d, r2, 0)
		want := []Culprit{{"n3", reason.CheckRejected, verdict.String() + ": unknown directive", start.Add(61 * time.Minute)}}
		if s := d.Status; s.Phase != Halted || !slices.Equal(s.Culprits, want) || s.Since != later || s.Why == "" {
			t.Errorf("%s: %+v", verdict, s)
		}
		two := 2
		movesTo(t, Decide(view(all, declare.Rollout{MaxUnavailable: "5", HaltOnFailed: &two}), later), r2, 4)
	}
	all := nodes(10, r1)
	all[3].Assigned, all[3].Presence = r2, Silent
	if d := Decide(view(all, declare.Rollout{MaxUnavailable: "5"}), later); d.Status.Phase != Halted || d.Status.Culprits[0].Why != "silent" {
		t.Errorf("with a silent node: %+v", d)
	}
}

// A halt is over when its cause is; until then it is as old as it was.
func TestHaltEndsWithItsCause(t *testing.T) {
	all := nodes(10, r1)
	all[3] = failing(all[3], r2, Failed)
	v := view(all, declare.Rollout{})
	v.Was = Decide(v, later).Status
	if d := Decide(v, later.Add(time.Minute)); d.Status.Phase != Halted || d.Status.Since != later {
		t.Errorf("a minute later: %+v", d.Status)
	}
	all[3].Report.Verdict = Converged
	d := Decide(v, later.Add(2*time.Minute))
	movesTo(t, d, r2, 1)
	if d.Status.Phase != Rolling || d.Status.Since != later.Add(2*time.Minute) {
		t.Errorf("afterwards: %+v", d.Status)
	}
}

// Undo of a halted rollout brings all broken nodes back at once, and the others that have the new revision at the usual pace.
func TestUndo(t *testing.T) {
	all := nodes(20, r1)
	for i := range 8 {
		all[i] = node(all[i].Name, r2)
	}
	for i := range 5 {
		all[i] = failing(all[i], r2, Failed)
	}
	v := view(all, declare.Rollout{MaxUnavailable: "1"})
	v.Target = r1
	d := Decide(v, later)
	movesTo(t, d, r1, 6)
	for i := range 5 {
		if !slices.Contains(d.Moves, Move{all[i].Name, r1}) {
			t.Errorf("%s stays broken", all[i].Name)
		}
	}
	v.Spec.Pause = true
	movesTo(t, Decide(v, later), r1, 0)
	v.Spec.Pause = false
	// What is not proven is no rescue: it goes at the usual pace.
	v.Target = Target{"r3", 100, ""}
	movesTo(t, Decide(v, later), v.Target, 1)
}

func TestPause(t *testing.T) {
	v := view(append(nodes(3, r1), node("new", Target{})), declare.Rollout{Pause: true})
	v.PausedBy = "ada"
	d := Decide(v, later)
	movesTo(t, d, r1, 1) // who has nothing gets what is proven
	if d.Status.Phase != Paused || !strings.Contains(d.Status.Why, "ada") {
		t.Errorf("%+v", d.Status)
	}
	v.Target = r1
	movesTo(t, Decide(v, later), r1, 1)
}

// A newer target takes the place of one on the way: the nodes that are on the way change over first, and no more than allowed are.
func TestNewerTarget(t *testing.T) {
	all := nodes(10, r1)
	all[4].Assigned, all[5].Assigned = r2, r2
	v := view(all, declare.Rollout{MaxUnavailable: "3"})
	v.Target = Target{"r3", 100, ""}
	d := Decide(v, start.Add(time.Minute))
	movesTo(t, d, v.Target, 3)
	for _, name := range []string{"n4", "n5"} {
		if !slices.Contains(d.Moves, Move{name, v.Target}) {
			t.Errorf("%s goes on to r2: %+v", name, d.Moves)
		}
	}
}

// Another priority is another target.
func TestPriorityIsRolledOut(t *testing.T) {
	v := view(nodes(10, r1), declare.Rollout{})
	v.Target = Target{"r1", 200, ""}
	movesTo(t, Decide(v, later), v.Target, 1)
}

// The same nodes go first, whatever the revision.
func TestOrderIsStable(t *testing.T) {
	v := view(nodes(50, r1), declare.Rollout{})
	first := Decide(v, later).Moves
	v.Target = Target{"r3", 100, ""}
	for i, m := range Decide(v, later).Moves {
		if m.Node != first[i].Node {
			t.Errorf("first %v, then %s", first, m.Node)
		}
	}
	v.Config = "NodeConfig/x/db"
	if other := Decide(v, later).Moves; other[0].Node == first[0].Node && other[1].Node == first[1].Node {
		t.Errorf("all configs begin with %v", other)
	}
}

func TestWaves(t *testing.T) {
	all := nodes(8, r1)
	all[6].Labels, all[7].Labels = map[string]string{"canary": "yes"}, map[string]string{"canary": "yes"}
	canary := declare.Selector{MatchLabels: map[string]string{"canary": "yes"}}
	v := view(all, declare.Rollout{MaxUnavailable: "100%", Waves: []declare.Wave{{Selector: canary}}})
	d := Decide(v, later)
	movesTo(t, d, r2, 2)
	if d.Moves[0].Node < "n6" || d.Moves[1].Node < "n6" {
		t.Errorf("first go %v", d.Moves)
	}
	all[6] = node("n6", r2)
	all[6].Labels = canary.MatchLabels
	movesTo(t, Decide(v, later), r2, 1)
	// One canary that has converged is enough when the other one is switched off; but not none.
	all[7].Presence = Silent
	movesTo(t, Decide(v, later), r2, 6)
	all[6].Presence, all[6].Assigned = Silent, r1
	d = Decide(v, later)
	movesTo(t, d, r2, 0)
	if d.Status.Phase != Waiting || len(d.Status.Culprits) != 2 {
		t.Errorf("without canaries: %+v", d.Status)
	}
}

// Who has nothing gets what is proven; or the new revision, where it stands among those that have it already.
func TestJoining(t *testing.T) {
	v := view(append(nodes(10, r1), node("new", Target{})), declare.Rollout{})
	d := Decide(v, later)
	if !slices.Contains(d.Moves, Move{"new", r1}) || len(d.Moves) != 2 {
		t.Errorf("before all others: %+v", d.Moves)
	}
	for i := range 10 {
		v.Nodes[i] = node(v.Nodes[i].Name, r2)
	}
	v.Nodes[0].Report.Verdict = Pending
	soon := start.Add(time.Minute)
	last := node("new", Target{})
	for i := range 1000 { // a name that stands before another one waits for room to get r2, and does not get r1
		last.Name = fmt.Sprint("new", i)
		v.Nodes[10] = last
		if len(Decide(v, soon).Moves) == 0 {
			break
		}
	}
	v.Nodes[0].Report.Verdict = Converged
	if d := Decide(v, soon); !slices.Equal(d.Moves, []Move{{last.Name, r2}}) {
		t.Errorf("among those that have it: %+v", d.Moves)
	}
}

// Hosts that join take no room from the rollout, but one another.
func TestJoiningIsCountedApart(t *testing.T) {
	all := nodes(10, r1)
	for i := range 3 {
		fresh := node(fmt.Sprint("new", i), r1)
		fresh.Report, fresh.Since = Report{}, start.Add(30*time.Second)
		all = append(all, fresh)
	}
	all = append(all, node("next", Target{}))
	movesTo(t, Decide(view(all, declare.Rollout{MaxUnavailable: "3"}), start.Add(time.Minute)), r2, 3)
	d := Decide(view(all, declare.Rollout{MaxUnavailable: "4"}), start.Add(time.Minute))
	if len(d.Moves) != 5 || !slices.Contains(d.Moves, Move{"next", r1}) {
		t.Errorf("%+v", d)
	}
}

// Failures below haltOnFailed do not hold up the next wave.
func TestToleratedFailureInAWave(t *testing.T) {
	two, all := 2, nodes(6, r1)
	for i := range 3 {
		all[i] = node(all[i].Name, r2)
		all[i].Labels = map[string]string{"canary": "yes"}
	}
	all[2] = failing(all[2], r2, Failed)
	spec := declare.Rollout{MaxUnavailable: "2", HaltOnFailed: &two, Waves: []declare.Wave{{Selector: declare.Selector{MatchLabels: map[string]string{"canary": "yes"}}}}}
	movesTo(t, Decide(view(all, spec), later), r2, 1)
}

// A node that fell silent with the target may be one that it broke: that proves nothing. One that never got it does not matter.
func TestProven(t *testing.T) {
	all := nodes(3, r2)
	all[0].Presence = Silent
	if d := Decide(view(all, declare.Rollout{}), later); d.Status.Proven != r1 {
		t.Errorf("with a silent node that has it: %+v", d.Status)
	}
	all[0].Assigned = r1
	if d := Decide(view(all, declare.Rollout{}), later); d.Status.Proven != r2 || d.Status.ProvenAt != later {
		t.Errorf("with a silent node that has it not: %+v", d.Status)
	}
}

// Nothing goes on before all nodes had the time to be heard.
func TestQuiet(t *testing.T) {
	v := view(nodes(3, r1), declare.Rollout{})
	v.Quiet = later.Add(time.Second)
	d := Decide(v, later)
	movesTo(t, d, r2, 0)
	if d.Status.Phase != Waiting || d.WakeAt != v.Quiet {
		t.Errorf("%+v", d)
	}
	movesTo(t, Decide(v, v.Quiet), r2, 1)
}

// A node that does not say what became of it is a failed one after ten minutes.
func TestLate(t *testing.T) {
	all := nodes(5, r1)
	all[2].Assigned, all[2].Since = r2, later
	v := view(all, declare.Rollout{})
	if d := Decide(v, later.Add(lateAfter-1)); d.Status.Phase != Rolling || d.WakeAt != later.Add(lateAfter) || len(d.Moves) > 0 {
		t.Errorf("on the way: %+v", d)
	}
	if d := Decide(v, later.Add(lateAfter)); d.Status.Phase != Halted || d.Status.Culprits[0].Since != later {
		t.Errorf("late: %+v", d)
	}
	// A new leader has heard no report yet.
	v.Quiet = later.Add(lateAfter)
	if d := Decide(v, later.Add(lateAfter)); d.Status.Phase != Rolling || d.WakeAt != v.Quiet.Add(lateAfter) {
		t.Errorf("under a new leader: %+v", d)
	}
}

// What is kept out somewhere is passed over, and told at the end.
func TestRefused(t *testing.T) {
	all := nodes(3, r1)
	all[0].Refused, all[1].Refused = []Target{r2}, []Target{r1}
	d := Decide(view(all, declare.Rollout{MaxUnavailable: "100%"}), later)
	movesTo(t, d, r2, 2)
	all[1], all[2] = node("n1", r2), node("n2", r2)
	d = Decide(view(all, declare.Rollout{}), later)
	if s := d.Status; s.Phase != Waiting || len(s.Culprits) != 1 || s.Culprits[0].Node != "n0" || s.Proven != r2 {
		t.Errorf("%+v", s)
	}
}

// What goes wrong on a node after the rollout is that node's affair.
func TestFailureAfterwardsHoldsUpNobody(t *testing.T) {
	all := append(nodes(10, r1), node("new", Target{}))
	all[0].Report.Verdict = Failed
	v := view(all, declare.Rollout{})
	v.Target = r1
	d := Decide(v, later)
	movesTo(t, d, r1, 1)
	all[1].Since, all[1].Report.Verdict = later, Failed // got it only now
	if d = Decide(v, later); d.Status.Phase != Halted || len(d.Moves) > 0 {
		t.Errorf("%+v", d)
	}
}

// A rollout is over once: a node that fails or falls silent afterwards does not open it again.
func TestCompleteStays(t *testing.T) {
	all := nodes(4, r1)
	all[0].Report.Verdict, all[1].Presence, all[2].Presence = Failed, Silent, Unheard
	v := view(all, declare.Rollout{})
	v.Target = r1
	if d := Decide(v, later); d.Status.Phase != Complete || d.Status.Since != v.Was.Since || d.Status.Counts != (Counts{Selected: 4, Done: 1, Failed: 1, Silent: 1, Unheard: 1}) {
		t.Errorf("%+v", d.Status)
	}
	all[1].Since = later
	if d := Decide(v, later); d.Status.Phase != Halted {
		t.Errorf("with a silent node that got it only now: %+v", d.Status)
	}
}

// A node that is busy is not on the way again, however long: with the same target nothing begins anew, neither where it was proven nor on a
// node that has joined since, also while another one is in a bad way.
func TestBusyNodeOpensNothing(t *testing.T) {
	for _, bad := range []bool{false, true} {
		all := nodes(3, r1)
		if bad {
			all[0].Report.Verdict = Failed
		}
		fresh := node("new", r1)
		fresh.Since = later.Add(-time.Minute)
		fresh.Report = Report{}
		v := view(append(all, fresh), declare.Rollout{})
		v.Target, v.Was.Target = r1, r1
		now := later
		want := func(phase Phase, done, onTheWay int) {
			t.Helper()
			d := Decide(v, now)
			if bad {
				done--
			}
			if d.Status.Phase != phase || d.Status.Counts.Done != done || d.Status.Counts.OnTheWay != onTheWay || len(d.Moves) > 0 {
				t.Fatalf("with a bad one %v: %+v", bad, d)
			}
			v.Was = d.Status
			now = now.Add(20 * time.Minute)
		}
		want(Rolling, 3, 1)
		v.Nodes[3].Report = Report{Of: r1, Verdict: Converged}
		want(Complete, 4, 0)
		since := v.Was.Since
		v.Nodes[1].Report.Verdict, v.Nodes[3].Report = Pending, Report{}
		want(Complete, 4, 0)
		if v.Was.Since != since {
			t.Errorf("it is complete since %s, and not since %s", v.Was.Since, since)
		}
		v.Nodes[3].Since = now // it was taken from it, and given again
		now = now.Add(time.Second)
		want(Rolling, 3, 1)
	}
}

func TestNothingToDo(t *testing.T) {
	v := view(nil, declare.Rollout{})
	if d := Decide(v, later); d.Status.Phase != Empty || d.Status.Proven != r1 {
		t.Errorf("without nodes: %+v", d)
	}
	v = view(nodes(3, r1), declare.Rollout{})
	v.Target = Target{}
	if d := Decide(v, later); d.Status.Phase != Empty || len(d.Moves) > 0 {
		t.Errorf("without a revision: %+v", d)
	}
	v.Target = r1
	if d := Decide(v, later); d.Status.Phase != Complete || len(d.Moves) > 0 || d.Status.Since != v.Was.Since {
		t.Errorf("complete: %+v", d)
	}
}

// Another value that a revision takes from elsewhere goes from node to node, and halts, as another revision does.
func TestContentIsPaced(t *testing.T) {
	rotated := Target{"r1", 100, "another root"}
	v := view(nodes(10, r1), declare.Rollout{MaxUnavailable: "2"})
	v.Was.Proven, v.Was.ProvenAt, v.Target = r1, start, rotated
	d := Decide(v, start.Add(time.Hour))
	if len(d.Moves) != 2 || d.Moves[0].Target != rotated || d.Status.Phase != Rolling || d.Status.Proven != r1 {
		t.Fatalf("%+v", d)
	}
	n := &v.Nodes[slices.IndexFunc(v.Nodes, func(n Node) bool { return n.Name == d.Moves[0].Node })]
	n.Assigned, n.Since, n.Report = rotated, start.Add(time.Hour), Report{Of: rotated, Verdict: Failed}
	v.Was = d.Status
	if d = Decide(v, start.Add(time.Hour)); len(d.Moves) != 0 || d.Status.Phase != Halted {
		t.Fatalf("%+v", d)
	}
	// Who puts the old value back has the old target, and the node that failed gets it at once.
	v.Was, v.Target = d.Status, r1
	if d = Decide(v, start.Add(time.Hour)); len(d.Moves) != 1 || d.Moves[0] != (Move{n.Name, r1}) {
		t.Errorf("%+v", d)
	}
}

// What is proven and cannot be made any more goes to nobody: who is new waits for the target.
func TestProvenIsGone(t *testing.T) {
	for _, gone := range []bool{false, true} {
		v := view(append(nodes(3, r1), node("new", Target{})), declare.Rollout{Pause: true})
		v.Was.Proven, v.Was.ProvenAt, v.Target, v.Gone = r1, start, r2, gone
		if d := Decide(v, start.Add(time.Hour)); len(d.Moves) == 0 != gone {
			t.Errorf("gone %v: %+v", gone, d)
		}
	}
}

// Where another config waits for this one is the next node, whatever the order and the waves, within maxUnavailable.
func TestAwaitedNodeIsNext(t *testing.T) {
	for last := range 5 {
		v := view(nodes(5, r1), declare.Rollout{MaxUnavailable: "1", Waves: []declare.Wave{{Selector: declare.Selector{MatchLabels: map[string]string{"wave": "first"}}}}})
		v.Was.Proven, v.Was.ProvenAt, v.Target = r1, start, r2
		v.Nodes[(last+1)%5].Labels = map[string]string{"wave": "first"}
		v.Nodes[last].Awaited = true
		if d := Decide(v, start.Add(time.Hour)); len(d.Moves) != 1 || d.Moves[0].Node != v.Nodes[last].Name {
			t.Errorf("%s is awaited: %+v", v.Nodes[last].Name, d)
		}
		v.Spec.Pause = true
		if d := Decide(v, start.Add(time.Hour)); len(d.Moves) != 0 {
			t.Errorf("paused: %+v", d)
		}
	}
}
