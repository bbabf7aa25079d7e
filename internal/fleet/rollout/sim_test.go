package rollout

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 100

// number reads a number from the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// host is what a node really is, whatever the leader knows of it.
type host struct {
	name     string
	wave     string
	assigned Target
	since    time.Time
	has      Target  // what it has taken up
	verdict  Verdict // of that
	here     bool
	heard    bool // by this leader
	refused  []Target
	awaited  bool
}

// known is what the leader knows of it.
func (h *host) known() Node {
	n := Node{Name: h.name, Labels: map[string]string{"wave": h.wave}, Assigned: h.assigned, Since: h.since, Refused: h.refused, Awaited: h.awaited}
	switch {
	case !h.heard:
	case !h.here:
		n.Presence = Silent
	default:
		n.Presence = Heard
	}
	if h.heard {
		n.Report = Report{Of: h.has, Verdict: h.verdict}
	}
	return n
}

// world is a fleet under one config.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Time
	view   View
	hosts  []*host
	made   int
	bad    map[Target]bool // that do not work
	value  pace.Reading    // what is measured; its time is now
	calm   bool            // nothing fails any more
	halted int
	rescue int
	over   int
	back   int // decisions after which all had gone back
	shut   int // decisions in which a gate was not measured, or out of bounds
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{t: t, rng: rng, now: start, bad: map[Target]bool{}}
	w.view = View{Config: "NodeConfig/x/web", Quiet: start.Add(90 * time.Second)}
	for range 1 + rng.IntN(25) {
		w.join()
	}
	w.spec()
	w.retarget()
	return w
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func (w *world) join() {
	w.made++
	w.hosts = append(w.hosts, &host{name: fmt.Sprint("n", w.made), wave: fmt.Sprint(w.rng.IntN(4)), here: true})
}

func (w *world) spec() {
	pick := []declare.IntOrPercent{"", "1", "3", "10%", "35%", "100%"}
	halt := 1 + w.rng.IntN(3)
	w.view.Spec = declare.Rollout{MaxUnavailable: pick[w.rng.IntN(len(pick))], HaltOnFailed: &halt, Pause: w.oneIn(6)}
	if w.oneIn(2) {
		w.view.Spec.OnFailure = declare.RollBack
	}
	if w.oneIn(3) {
		most := declare.Quantity("0.05")
		w.view.Spec.Gates = []declare.Gate{{Name: "errors", Max: &most}}
	}
	if w.oneIn(3) {
		w.view.Spec.Monitor = "1m"
	}
	for i := range w.rng.IntN(3) {
		wave := declare.Wave{Nodes: []declare.IntOrPercent{"", "1", "30%"}[w.rng.IntN(3)], Pause: []string{"", "", "45s"}[w.rng.IntN(3)]}
		if w.oneIn(2) {
			wave.MatchLabels = map[string]string{"wave": fmt.Sprint(i)}
		}
		w.view.Spec.Waves = append(w.view.Spec.Waves, wave)
	}
	w.view.Generation++
}

// measure is what a Prometheus says: nothing at times, and more of what does not work.
func (w *world) measure() {
	w.value = pace.Reading{Value: 0.01}
	switch {
	case w.calm:
	case w.oneIn(8):
		w.value = pace.Reading{Missing: "nobody answers"}
	case w.bad[w.view.Target] && w.oneIn(3), w.oneIn(20):
		w.value.Value = 0.5
	}
}

// retarget declares something new, or goes back to what was there.
func (w *world) retarget() {
	w.view.Generation++
	switch {
	case w.oneIn(3) && w.view.Was.Proven.Revision != "":
		w.view.Target = w.view.Was.Proven
	default:
		w.view.Target = Target{fmt.Sprint("r", w.rng.IntN(5)), 100, fmt.Sprint("root ", w.rng.IntN(3))}
		w.bad[w.view.Target] = w.oneIn(3)
	}
}

// step is something that happens in the world.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	switch k := w.rng.IntN(40); {
	case k < 20:
		for _, o := range w.hosts {
			if w.oneIn(3) {
				w.work(o)
			}
		}
	case k < 28:
		for _, o := range w.hosts {
			o.heard = o.heard || o.here && w.oneIn(2)
		}
	case k == 28:
		h.here = false
	case k < 32:
		for _, o := range w.hosts {
			if w.oneIn(2) {
				o.here, o.heard = true, true
			}
		}
	case k == 32 && w.oneIn(2):
		w.spec()
	case k == 33:
		w.retarget()
	case k == 34:
		w.join()
	case k == 35 && len(w.hosts) > 1:
		w.hosts = slices.DeleteFunc(w.hosts, func(o *host) bool { return o == h })
	case k == 36 && w.oneIn(3):
		w.lead()
	case k == 37:
		h.refused = [][]Target{nil, nil, nil, nil, nil, {w.view.Target}, {w.view.Was.Proven}, {w.view.Target, w.view.Was.Proven}}[w.rng.IntN(8)]
	case k == 38:
		h.awaited = !h.awaited
	case k == 39:
		w.view.Gone = w.oneIn(4)
	}
}

// lead is another server that begins to lead: it has heard nobody.
func (w *world) lead() {
	for _, h := range w.hosts {
		h.heard = false
	}
	w.view.Quiet = w.now.Add(90 * time.Second)
}

// work is what an agent does: it takes up what is assigned, and finds out whether it works.
func (w *world) work(h *host) {
	switch {
	case !h.here, h.assigned == Target{}:
	case h.has != h.assigned:
		h.has, h.verdict = h.assigned, Pending
	case w.bad[h.has] && !w.calm:
		h.verdict = []Verdict{Failed, Rejected, Withheld, Quarantined}[w.rng.IntN(4)]
	case w.oneIn(60) && !w.calm:
		h.verdict = Failed
	case w.oneIn(4) && h.verdict == Converged && h.assigned == w.view.Was.Proven && !h.since.After(w.view.Was.ProvenAt):
		h.verdict = Pending // it is busy, most often with something else; before that, others remember that it has converged
	default:
		h.verdict = Converged
	}
}

// decide carries out a decision, and checks it against what the hosts really are.
func (w *world) decide() Decision {
	w.view.Nodes = nil
	for _, h := range w.hosts {
		w.view.Nodes = append(w.view.Nodes, h.known())
	}
	if w.oneIn(3) {
		w.measure()
	}
	if w.value.Missing == "" {
		w.value.At = w.now
	}
	w.view.Gates = map[string]pace.Reading{"errors": w.value}
	d := Decide(w.view, w.now)
	shuffled := w.view
	shuffled.Nodes = slices.Clone(w.view.Nodes)
	w.rng.Shuffle(len(shuffled.Nodes), func(i, j int) {
		shuffled.Nodes[i], shuffled.Nodes[j] = shuffled.Nodes[j], shuffled.Nodes[i]
	})
	if other := Decide(shuffled, w.now); !reflect.DeepEqual(d, other) {
		w.t.Fatalf("in another order it is\n%+v\nnot\n%+v", other, d)
	}
	w.check(d)
	w.checkOver(d)
	w.checkLook(d)
	w.view.Was = d.Status
	for _, m := range d.Moves {
		h := w.host(m.Node)
		h.assigned, h.since = m.Target, w.now
	}
	return d
}

func (w *world) host(name string) *host {
	return w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.name == name })]
}

// allowed is maxUnavailable in other words.
func (w *world) allowed() int {
	return map[declare.IntOrPercent]int{"": max(1, len(w.hosts)/10), "1": 1, "3": 3, "10%": max(1, len(w.hosts)/10),
		"35%": max(1, len(w.hosts)*35/100), "100%": len(w.hosts)}[w.view.Spec.MaxUnavailable]
}

// wrong: what the host has was found not to work, or it takes too long.
func (w *world) wrong(h *host) bool {
	settled := h.has == h.assigned && h.verdict != Pending
	if settled || h.since.IsZero() {
		return settled && h.verdict != Converged
	}
	return w.now.Sub(h.since) >= 10*time.Minute && w.now.Sub(w.view.Quiet) >= 10*time.Minute
}

// check is invariants 1 to 3, of what nodes are to have now.
func (w *world) check(d Decision) {
	proven, target := d.Status.Proven, d.Status.Goal
	unavailable, joining, disturbed, joined := 0, 0, 0, 0
	for _, h := range w.hosts {
		onTheWay := h.assigned != Target{} && !w.wrong(h) && !(h.has == h.assigned && h.verdict == Converged) && !w.busy(h)
		old := h.assigned == proven && !h.since.After(d.Status.ProvenAt)
		switch {
		case !h.heard || !h.here, h.assigned == target && h.assigned != Target{} && w.wrong(h) && !old:
			unavailable++
		case onTheWay && h.assigned == proven && proven != target:
			joining++
		case onTheWay:
			unavailable++
		}
	}
	for _, m := range d.Moves {
		h := w.host(m.Node)
		wrong, has := w.wrong(h), h.assigned != Target{}
		onTheWay := has && !wrong && !(h.has == h.assigned && h.verdict == Converged)
		switch {
		case !h.heard || !h.here || w.now.Before(w.view.Quiet):
			w.t.Fatalf("%s gets %v and is not there, or not yet", m.Node, m.Target)
		case h.assigned == m.Target:
			w.t.Fatalf("%s gets %v and has it", m.Node, m.Target)
		case slices.Contains(h.refused, m.Target):
			w.t.Fatalf("%s gets %v, which is refused", m.Node, m.Target)
		case m.Target != target && (m.Target != proven || has):
			w.t.Fatalf("%s gets %v, which is neither the target nor proven, or has %v", m.Node, m.Target, h.assigned)
		case m.Target != target && w.view.Gone:
			w.t.Fatalf("%s gets %v, which is gone", m.Node, m.Target)
		case m.Target != target:
			joined++
			continue
		case target == proven && wrong:
			w.rescue++
			if w.view.Spec.Pause {
				w.t.Fatalf("%s gets %v while it is paused", m.Node, m.Target)
			}
			continue
		case onTheWay && h.assigned != proven:
			// It is counted among the unavailable.
		default:
			disturbed++
		}
		if w.view.Spec.Pause && (target != proven || has) || d.Status.Phase == Halted {
			w.t.Fatalf("%s gets %v, and it is %s", m.Node, m.Target, d.Status.Phase)
		}
	}
	if disturbed > 0 && unavailable+disturbed > w.allowed() {
		w.t.Fatalf("%d go on while %d are unavailable, of %d; allowed are %d: %+v", disturbed, unavailable, len(w.hosts), w.allowed(), d)
	}
	if joined > 0 && joining+joined > w.allowed() {
		w.t.Fatalf("%d join while %d do; allowed are %d", joined, joining, w.allowed())
	}
	w.checkHalt(d)
}

// busy: it had converged on what is proven, and has said nothing against it since.
func (w *world) busy(h *host) bool {
	was := w.view.Was
	return h.assigned == was.Proven && !h.since.After(was.ProvenAt) && (h.has != h.assigned || h.verdict == Pending)
}

// checkHalt: who has the target and is in a bad way halts it.
func (w *world) checkHalt(d Decision) {
	bad := 0
	for _, h := range w.hosts {
		old := h.assigned == d.Status.Proven && !h.since.After(d.Status.ProvenAt)
		if h.assigned == d.Status.Goal && h.heard && (!h.here || w.wrong(h)) && !old {
			bad++
		}
	}
	if bad >= *w.view.Spec.HaltOnFailed {
		w.halted++
		if d.Status.Phase != Halted && !w.view.Spec.Pause {
			w.t.Fatalf("%d are in a bad way, and it is %+v", bad, d.Status)
		}
	}
	c := d.Status.Counts
	if c.Selected != len(w.hosts) || c.Selected != c.Done+c.OnTheWay+c.Failed+c.Silent+c.Unheard+c.Refused+c.Left {
		w.t.Fatalf("counts of %d hosts: %+v", len(w.hosts), c)
	}
}

// checkLook is invariants 5 and 6.
func (w *world) checkLook(d Decision) {
	s, target := &d.Status, w.view.Target
	failed := s.Failed.Of == target && s.Failed.Generation == w.view.Generation
	looked := len(w.view.Spec.Gates) > 0 && target != w.view.Was.Proven && !s.First.IsZero() && s.Goal == target
	if failed || looked && w.value.Missing != "" {
		w.shut++
	}
	for _, m := range d.Moves {
		if m.Target != target {
			continue
		}
		h := w.host(m.Node)
		switch {
		case failed && target != s.Proven:
			w.t.Fatalf("%s gets %v, which has failed: %+v", m.Node, m.Target, s)
		case looked && (w.value.Missing != "" || w.value.Value > 0.05) && s.First.Before(w.now):
			w.t.Fatalf("%s gets %v, and the gate measures %+v: %+v", m.Node, m.Target, w.value, s)
		case target != s.Proven && !h.awaited && w.early(h, s.Passed):
			w.t.Fatalf("%s gets %v before a wave was looked at that it is not in: %+v", m.Node, m.Target, s)
		}
	}
	if was := &w.view.Was; looked && w.value.Missing == "" && w.value.Value > 0.05 && s.First.Before(w.now) && (s.Proven == target || was.Target == target && was.Waves == s.Waves && s.Passed > was.Passed) {
		w.t.Fatalf("it goes on, and the gate measures %+v: %+v", w.value, s)
	}
	if s.Goal != target && (s.Goal != w.view.Was.Proven || !failed || w.view.Spec.OnFailure != declare.RollBack) {
		w.t.Fatalf("it goes back, and nobody wants that: %+v", s)
	}
	if s.Phase == RolledBack {
		w.back++
		for _, h := range w.hosts {
			if h.assigned != s.Proven || h.assigned == target {
				w.t.Fatalf("it is rolled back, and %s is to have %v: %+v", h.name, h.assigned, s)
			}
		}
	}
}

// early: a host that no wave up to one may take, because its labels are others.
func (w *world) early(h *host, passed int) bool {
	waves := w.view.Spec.Waves
	for i := 0; i <= passed && i < len(waves); i++ {
		if waves[i].Matches(map[string]string{"wave": h.wave}) {
			return false
		}
	}
	return passed < len(waves)
}

// checkOver: what is complete stays so for as long as all have the same, and nothing is wrong with anybody.
func (w *world) checkOver(d Decision) {
	over := w.view.Was.Phase == Complete && w.view.Was.Target == w.view.Target
	for _, h := range w.hosts {
		over = over && h.assigned == w.view.Target && !h.since.After(w.view.Was.ProvenAt)
	}
	if over && len(w.hosts) > 0 && (d.Status.Phase != Complete || d.Status.Since != w.view.Was.Since) {
		w.t.Fatalf("it was complete, nobody got anything, and it is %+v", d.Status)
	}
	if d.Status.Phase != Complete || len(w.hosts) == 0 {
		return
	}
	w.over++
	for _, h := range w.hosts {
		if h.assigned != w.view.Target || h.since.After(d.Status.ProvenAt) {
			w.t.Fatalf("it is complete, and %s is not part of that: %+v", h.name, d.Status)
		}
	}
}

// heal makes the world quiet: then the rollout must end.
func (w *world) heal() {
	w.calm, w.view.Spec.Pause = true, false
	w.view.Generation++
	w.measure()
	for round := range 20 * (len(w.hosts) + 10) {
		for _, h := range w.hosts {
			h.here, h.heard, h.refused = true, true, nil
			w.work(h)
		}
		w.now = w.now.Add(5 * time.Second)
		if d := w.decide(); d.Status.Phase == Complete {
			if len(d.Moves) > 0 || d.Status.Proven != w.view.Target {
				w.t.Fatalf("complete, and %+v", d)
			}
			return
		} else if round == 20*(len(w.hosts)+10)-1 {
			w.t.Fatalf("it does not end: %+v", d)
		}
	}
}

func TestSimulation(t *testing.T) {
	halted, rescued, moves, back, shut, over := 0, 0, 0, 0, 0, 0
	first, last := uint64(1), max(number("TAKO_SEEDS", simSeeds), simSeeds)
	if one := number("TAKO_SEED", 0); one != 0 {
		first, last = one, one
	}
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 1)))
			for range 400 {
				w.step()
				moves += len(w.decide().Moves)
			}
			w.heal()
			halted, rescued, back, shut, over = halted+w.halted, rescued+w.rescue, back+w.back, shut+w.shut, over+w.over
		}) {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
	if first != last && (halted == 0 || rescued == 0 || moves == 0 || back == 0 || shut == 0) {
		t.Errorf("the simulations halted %d times, rescued %d nodes, moved %d, went back %d times and were held up by gates %d times", halted, rescued, moves, back, shut)
	}
	t.Logf("%d decisions with a halt, %d nodes rescued, %d moves, %d decisions after which all had gone back, %d with a gate in the way, %d when it was complete", halted, rescued, moves, back, shut, over)
}
