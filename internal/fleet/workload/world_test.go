package workload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// quality is what becomes of instances of a template.
type quality uint8

const (
	good quality = iota
	slow
	flapping
	dead // it never becomes ready, and its agents say so
	mute // it never becomes ready, and nobody says why
)

// machine is a node as it really is.
type machine struct {
	name     string
	linked   bool // its agent reaches a server
	stale    bool // its agent takes in no other revision
	cut      time.Time
	heard    bool // by this leader
	gone     time.Time
	room     int
	cordoned bool
}

// copyOf is an instance: what is stored of it, and what really runs.
type copyOf struct {
	Instance
	runs    bool
	changed bool     // in place
	has     string   // hash of the revision that its agent has taken in
	said    []Report // by its agent, in order
}

// world is a small fleet under one workload: what is stored, what really is, and a leader that may be replaced at any moment.
type world struct {
	t         *testing.T
	rng       *rand.Rand
	now       time.Time
	view      View
	machines  []*machine
	copies    []*copyOf
	template  int // what the spec declares
	templates map[string]int
	qualities map[int]quality
	made      int
	alike     int // templates that follow each other and run the same; 0: none do
	calm      bool
	staged    bool // nothing happens by chance
	trace     []string
	seen      map[string]int // what happened, to see that the simulation does something
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{t: t, rng: rng, now: start, alike: 2, templates: map[string]int{}, qualities: map[int]quality{}, seen: map[string]int{}}
	w.view = View{Name: "web", UID: "w1", Generation: 1, Wanted: rng.IntN(8), Quiet: start}
	if w.oneIn(6) {
		w.view.Spec.Mode = declared.PerNode
	}
	for i := range 3 + rng.IntN(5) {
		w.machines = append(w.machines, &machine{name: fmt.Sprint("n", i), linked: true, heard: true, room: 2 + rng.IntN(5)})
	}
	w.terms()
	return w
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func pick[T any](w *world, all ...T) T { return all[w.rng.IntN(len(all))] }

// terms declares how it changes, at random.
func (w *world) terms() {
	s := &w.view.Spec
	s.Rollout = declared.Rollout{
		Strategy:       pick(w, declared.Rolling, declared.Rolling, declared.Canary, declared.BlueGreen),
		MaxSurge:       pick[declare.IntOrPercent](w, "", "1", "50%", "0"),
		MaxUnavailable: pick[declare.IntOrPercent](w, "", "1", "50%", "100%"),
		MaxFailures:    pick[declare.IntOrPercent](w, "", "2", "50%"),
		MinReady:       pick(w, "", "5s", "30s"), Monitor: pick(w, "", "1m"), KeepOld: pick(w, "", "2m"),
		Promotion: pick(w, declared.AutomaticPromotion, declared.AutomaticPromotion, declared.ManualPromotion),
		OnFailure: pick(w, declare.RollBack, declare.RollBack, declare.Halt), ProgressDeadline: pick(w, "", "3m", "0s"),
	}
	if most := declare.Quantity("0.05"); w.oneIn(4) {
		s.Rollout.Gates = []declare.Gate{{Name: "errors", Max: &most}}
	}
	if s.Rollout.Strategy == declared.Canary {
		s.Rollout.Steps = []declared.CanaryStep{{Replicas: "1", Pause: pick(w, "", "1m")}, {Replicas: pick[declare.IntOrPercent](w, "50%", "2")}}
	}
	s.DisruptionBudget = pick(w, nil, nil, &declared.DisruptionBudget{MaxUnavailable: "1"}, &declared.DisruptionBudget{MinAvailable: "50%", UnhealthyHoldUp: true})
	if s.OnUnreachable == nil {
		s.OnUnreachable = pick(w, &declared.OnUnreachable{After: "1m", Reconnect: pick(w, "", declared.KeepReplacement, declared.KeepLongestReady)},
			&declared.OnUnreachable{Action: declared.KeepUnreachable}, &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "2m"})
	}
}

// hash collides often, as long as nobody has found that.
func hash(template, collisions int) string {
	if collisions == 0 {
		return fmt.Sprint("h", template%4)
	}
	return fmt.Sprint("h", template, ".", collisions)
}

// snapshot is what a leader sees.
func (w *world) snapshot() View {
	v := w.view
	v.Hash = hash(w.template, v.Was.Collisions)
	v.Instances, v.Nodes, v.Eligible = nil, map[string]Node{}, nil
	v.Revisions = slices.Clone(v.Revisions)
	for i := range v.Revisions {
		v.Revisions[i].Same = w.templates[v.Revisions[i].Name] == w.template
		v.Revisions[i].Stick = v.Spec.Template.Stick()
		if w.alike > 0 {
			v.Revisions[i].Runs = fmt.Sprint("r", w.templates[v.Revisions[i].Name]/w.alike)
		}
	}
	for _, c := range w.copies {
		v.Instances = append(v.Instances, c.Instance)
	}
	for _, m := range w.machines {
		v.Nodes[m.name] = Node{Presence: w.presence(m), Gone: m.gone, Missed: m.gone, Closed: m.cordoned}
		if !m.cordoned {
			v.Eligible = append(v.Eligible, m.name)
		}
	}
	w.rng.Shuffle(len(v.Instances), func(i, j int) { v.Instances[i], v.Instances[j] = v.Instances[j], v.Instances[i] })
	return v
}

// presence is that of package node: what was not heard since the leader began is unheard at first, then gone.
func (w *world) presence(m *machine) node.Presence {
	switch {
	case !m.heard && w.now.Before(w.view.Quiet):
		return node.Unheard
	case !m.heard || !m.linked:
		return node.Gone
	}
	return node.Here
}

// measured is what somebody measures for gates, now and then, where nothing is staged.
func (w *world) measured() {
	switch {
	case w.calm:
		w.view.Gates = map[string]pace.Reading{"errors": {At: w.now}}
	case w.oneIn(40):
		w.view.Gates = map[string]pace.Reading{"errors": {At: w.now, Value: 0.5}}
	case w.oneIn(20):
		w.view.Gates = map[string]pace.Reading{"errors": {Missing: "nobody answers"}}
	case w.oneIn(3):
		w.view.Gates = map[string]pace.Reading{"errors": {At: w.now, Value: 0.05}}
	}
}

// tick is what happens by itself as time goes on.
func (w *world) tick(by time.Duration) {
	w.now = w.now.Add(by)
	if !w.staged {
		w.measured()
	}
	for _, m := range w.machines {
		m.heard = m.heard || m.linked && !w.now.Before(w.view.Quiet) // whoever can has spoken by then
		switch away := w.presence(m) == node.Gone; {
		case away && m.gone.IsZero():
			m.gone = w.now
		case !away && m.heard:
			m.gone = time.Time{}
		}
	}
	fence := w.view.Spec.OnUnreachable
	for _, c := range w.copies {
		m := w.machine(c.Node)
		if fence.Action == declared.FenceUnreachable && m != nil && !m.linked && !w.now.Before(m.cut.Add(span(fence.After, 0)+30*time.Second)) {
			c.runs = false // the agent ends it by its own clock
		}
	}
}

func (w *world) machine(name string) *machine {
	if i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.name == name }); i >= 0 {
		return w.machines[i]
	}
	return nil
}

// work is what the scheduler and the agent do for one instance.
func (w *world) work(c *copyOf) {
	m := w.machine(c.Node)
	switch {
	case c.Node == "" && c.Phase == Terminating:
		c.Phase = Done
	case c.Node == "":
		w.bind(c)
	case !m.linked || !m.heard:
	case c.Phase == Terminating:
		c.runs = false
		w.report(c, Done, false)
	case c.Phase < Terminating && !c.runs:
		c.runs, c.has = true, w.hashOf(c.Revision)
		w.report(c, Starting, false)
	case c.has != w.hashOf(c.Revision) && c.Phase < Terminating && !m.stale:
		c.has = w.hashOf(c.Revision)
		w.report(c, c.Phase, !c.ReadySince.IsZero())
	case c.Phase == Starting:
		w.report(c, Running, false)
	case c.Phase == Running:
		w.probe(c)
	}
}

// report is what an agent says of an instance that it has; a start is a new attempt.
func (w *world) report(c *copyOf, phase Phase, ready bool) {
	r := Report{UID: c.UID, Attempt: c.Attempt, Phase: phase, Ready: ready, Failure: c.Failure, Taken: c.has}
	if phase == Starting {
		r.Attempt++
	}
	c.said = append(c.said, r)
	var counts bool
	if c.Instance, counts = Observe(c.Instance, r, w.now); !counts {
		w.t.Fatalf("%+v does not count for %+v", r, c.Instance)
	}
}

// late is a report that comes late, of what an instance was before, or of another one of its name. It changes nothing (I5).
func (w *world) late(c, of *copyOf) {
	for _, r := range of.said {
		if of == c && r.Attempt == c.Attempt && r.Phase >= c.Phase {
			continue // of these the session of the agent knows the order
		}
		if got, counts := Observe(c.Instance, r, w.now); counts && (of != c || r.Phase < Terminating) {
			w.t.Fatalf("%+v counts for %+v, which becomes %+v", r, c.Instance, got)
		}
	}
}

// hashOf is what an agent says of a revision that it has taken in.
func (w *world) hashOf(revision string) string { return strings.TrimPrefix(revision, w.view.Name+"-") }

func (w *world) bind(c *copyOf) {
	at := w.rng.IntN(len(w.machines))
	for i := range w.machines {
		m := w.machines[(at+i)%len(w.machines)]
		if c.Bound != "" && c.Bound != m.name {
			continue
		}
		used := 0
		for _, o := range w.copies {
			if o.Node == m.name && !o.Phase.Ended() {
				used++
			}
		}
		if used < m.room && m.linked && m.heard && !m.cordoned && c.Phase == Pending {
			c.Node, c.Phase = m.name, Placed
			return
		}
	}
}

func (w *world) probe(c *copyOf) {
	ready := !c.ReadySince.IsZero()
	switch q := w.qualities[w.templates[c.Revision]]; {
	case q == dead && w.oneIn(3) && c.Failure == nil:
		c.Failure = &Failure{Code: reason.RolloutFailed, Message: "GET /healthz: 500", Since: w.now}
	case (q == dead || q == mute) && ready && c.changed: // its probe has become another one
		w.report(c, Running, false)
	case q == dead, q == mute:
	case q == slow && !ready && !w.oneIn(10):
	case q == flapping && ready && w.oneIn(3) && !w.calm:
		w.report(c, Running, false)
	case !ready:
		w.report(c, Running, true)
	}
}

// step is something that happens.
func (w *world) step() {
	w.tick(time.Duration(w.rng.IntN(20)) * time.Second)
	if len(w.copies) > 0 {
		for range 3 {
			w.work(w.copies[w.rng.IntN(len(w.copies))])
		}
		w.late(w.copies[w.rng.IntN(len(w.copies))], w.copies[w.rng.IntN(len(w.copies))])
	}
	m := w.machines[w.rng.IntN(len(w.machines))]
	switch w.rng.IntN(50) {
	case 0, 1:
		if m.linked {
			m.linked, m.cut = false, w.now
		}
	case 2, 3, 4, 5:
		w.link(m, w.oneIn(4))
	case 6:
		w.lead()
	case 7, 8, 9:
		m.heard = m.linked || m.heard
	case 10:
		w.retarget()
	case 11:
		w.view.Wanted = w.rng.IntN(8)
		w.view.Generation++
	case 12:
		w.view.Spec.Rollout.Pause = w.oneIn(3)
		w.view.Generation++
	case 13:
		pause := w.view.Spec.Rollout.Pause
		w.terms()
		w.view.Spec.Rollout.Pause = pause
		w.view.Generation++
	case 14:
		w.drain(m)
	case 15, 16:
		w.undrain(m)
	case 17:
		w.view.Approval = Approval{w.view.Was.Rollout.Goal, w.rng.IntN(3)}
	case 18:
		w.view.Brake = pick(w, "", "", "half of the fleet is gone")
	case 19:
		if len(w.copies) > 0 {
			c := w.copies[w.rng.IntN(len(w.copies))]
			c.Leave = &Leave{Why: reason.Preempted, Since: w.now}
		}
	}
}

// link brings a node back; a host that has booted meanwhile starts everything anew.
func (w *world) link(m *machine, booted bool) {
	for _, c := range w.copies {
		if c.Node == m.name && booted && !m.linked {
			c.runs, c.ReadySince = false, time.Time{}
		}
		if c.Node == m.name && !c.runs {
			c.ReadySince = time.Time{}
		}
	}
	m.linked, m.heard = true, true
	m.gone = time.Time{}
}

// lead is another server that begins to lead: what it knows is what is stored.
func (w *world) lead() {
	for _, m := range w.machines {
		m.heard = false
	}
	w.view.Quiet = w.now.Add(90 * time.Second)
}

func (w *world) retarget() {
	w.template = w.rng.IntN(6)
	if _, known := w.qualities[w.template]; !known {
		w.qualities[w.template] = pick(w, good, good, slow, flapping, dead, mute)
	}
	w.view.Generation++
}

func (w *world) drain(m *machine) {
	m.cordoned = true
	for _, c := range w.copies {
		if c.Node == m.name && c.Leave == nil {
			c.Leave = &Leave{Why: reason.NodeDrained, Since: w.now}
		}
	}
}

func (w *world) undrain(m *machine) {
	m.cordoned = false
	for _, c := range w.copies {
		if c.Node == m.name {
			c.Leave = nil
		}
	}
}

// carry does what was decided; only the first so many writes of it, where it is cut off.
func (w *world) carry(d *Decision, writes int) {
	left := func() bool { writes--; return writes >= 0 }
	w.view.Was = d.Status // first of all
	if d.Make != nil && left() {
		w.templates[d.Make.Name] = w.template
		w.view.Revisions = append(w.view.Revisions, *d.Make)
	}
	for _, mark := range d.Drop {
		if left() {
			w.copies = slices.DeleteFunc(w.copies, func(c *copyOf) bool { return c.UID == mark.UID })
		}
	}
	for _, u := range d.Update {
		if c := w.copy(u.UID); left() {
			c.Revision, c.changed = u.Revision, true
		}
	}
	for _, s := range d.Stop {
		if c := w.copy(s.UID); left() {
			c.Phase = Terminating
		}
	}
	for _, mark := range d.Abandon {
		if c := w.copy(mark.UID); left() {
			c.Abandoned, c.Losses = true, c.Losses+1
		}
	}
	for _, mark := range d.Reclaim {
		if c := w.copy(mark.UID); left() {
			c.Abandoned = false
		}
	}
	if r := d.Renumber; r != nil && left() {
		at := slices.IndexFunc(w.view.Revisions, func(o Revision) bool { return o.Name == r.Name })
		w.view.Revisions[at].Number = r.Number
	}
	for _, name := range d.Forget {
		if left() {
			w.view.Revisions = slices.DeleteFunc(w.view.Revisions, func(r Revision) bool { return r.Name == name })
		}
	}
	for _, n := range d.Create {
		if left() {
			w.add(n)
		}
	}
}

func (w *world) add(n Create) {
	w.made++
	c := &copyOf{Instance: Instance{Name: fmt.Sprint("web-", n.Slot), UID: fmt.Sprint("i", w.made), Owner: w.view.UID, Slot: n.Slot, Revision: n.Revision, Replaces: n.Replaces}}
	switch {
	case w.view.Spec.Mode == declared.PerNode:
		c.Node, c.Phase = n.Node, Placed
	case n.Must:
		c.Bound = n.Node
	}
	w.copies = append(w.copies, c)
}

func (w *world) copy(uid string) *copyOf {
	if i := slices.IndexFunc(w.copies, func(c *copyOf) bool { return c.UID == uid }); i >= 0 {
		return w.copies[i]
	}
	w.t.Fatalf("there is no instance %s", uid)
	return nil
}
