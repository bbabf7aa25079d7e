package workload

import (
	"slices"
	"strings"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// standing is what an instance counts as.
type standing uint8

const (
	live      standing = iota // is there, or is to be
	leaving                   // was asked to stop, and may still run
	abandoned                 // nobody hears it, or somebody stands in for it
	dropped                   // nothing of it runs
)

// member is an instance of this workload.
type member struct {
	*Instance
	standing  standing
	goal      bool // it has the revision that instances are to have, or gets it in place
	available bool // it is ready for long enough, and its node is heard
	presence  node.Presence
}

// work is a decision under way.
type work struct {
	*View
	terms
	now     time.Time
	alarm   pace.Alarm
	d       Decision
	s       *Status
	r       *Rollout
	members []*member    // by slot and name
	busy    map[int]bool // slots that somebody has, of an earlier workload of this name too
	slot    int          // all before are somebody's
	homes   map[int]Home // by slot: where data is
	returns []int        // slots whose data waits for a successor; nil: not looked for yet
	made    []Create
	taken   map[string]reason.Code // UIDs that an earlier decision took away, which is perhaps not carried out yet
	orphans []string               // abandoned ones that nobody stands in for; nil: not looked for yet
	stalled []*member              // unreachable, and held by the brake
	extra   [2]int                 // instances that are started before others leave: of what is old, and of the goal
	broken  string                 // what gate says that the rollout has failed; empty: none
	shut    string                 // by what gate it is held up; empty: none
	held    map[*member]int        // whose leaving is held up, and of what kind one is started before: index of extra, or -1
}

func newWork(v *View, now time.Time) *work {
	wanted := v.Wanted
	if v.Spec.Mode == declared.PerNode {
		wanted = len(v.Eligible)
	}
	w := &work{View: v, terms: termsWith(&v.Spec, max(wanted, 0), stickOf(v)), now: now, alarm: pace.Alarm{Now: now}, busy: make(map[int]bool, len(v.Instances)), held: map[*member]int{}, taken: map[string]reason.Code{}}
	w.d.Generation = v.Generation
	w.d.Status = v.Was
	w.d.Status.Leaving = nil
	w.s, w.r = &w.d.Status, &w.d.Status.Rollout
	w.present()
	for _, t := range v.Was.Taken {
		w.taken[t.UID] = t.Why
	}
	all := make([]member, len(v.Instances))
	w.members = make([]*member, 0, len(all))
	for i := range v.Instances {
		in := &v.Instances[i]
		if in.Owner != v.UID {
			w.busy[in.Slot] = true
			continue
		}
		all[i] = w.memberOf(in)
		w.members = append(w.members, &all[i])
	}
	slices.SortFunc(w.members, func(a, b *member) int {
		if a.Slot != b.Slot {
			return a.Slot - b.Slot
		}
		return strings.Compare(a.Name, b.Name)
	})
	w.locate()
	return w
}

// present brings the times of the stored status into the clock of this leader. That of the one before may have been ahead, and what is waited for would
// be waited for longer by as much: nothing was after now, and no wait lasts longer from now than it is long.
func (w *work) present() {
	longest := max(w.keepOld, w.monitor)
	for i := range w.Spec.Rollout.Steps {
		longest = max(longest, span(w.Spec.Rollout.Steps[i].Pause, 0))
	}
	for _, t := range []struct {
		at    *time.Time
		after time.Duration
	}{
		{&w.s.Backoff.Until, w.s.Backoff.pause()}, {&w.r.Clock, longest}, {&w.r.Held, 0}, {&w.r.Passed, 0}, {&w.r.Ended, 0}, {&w.r.Scaled, 0},
	} {
		if most := w.now.Add(t.after); t.at.After(most) {
			*t.at = most
		}
	}
}

func (w *work) memberOf(in *Instance) member {
	m := member{Instance: in, presence: node.Here, goal: in.Revision == w.Was.Rollout.Goal}
	n := w.Nodes[in.Node]
	if in.Node != "" {
		m.presence = n.Presence
	}
	switch {
	case in.Phase.Ended(), n.Lost && in.Node != "":
		m.standing = dropped
	case in.Abandoned:
		m.standing = abandoned
	case in.Phase == Terminating, w.taken[in.UID] != 0:
		m.standing = leaving
	}
	ready := in.Phase == Running && !in.ReadySince.IsZero() && m.standing < dropped && w.alarm.Passed(in.ReadySince.Add(w.minReady))
	m.available = ready && m.presence == node.Here
	return m
}

// deaf: nodes have not had the time to be heard. What would be taken away, or given up, stays.
func (w *work) deaf() bool { return !w.alarm.Passed(w.Quiet) }

func (w *work) revision(name string) *Revision {
	for i := range w.Revisions {
		if w.Revisions[i].Name == name {
			return &w.Revisions[i]
		}
	}
	return nil
}

func (w *work) number(name string) int {
	if r := w.revision(name); r != nil {
		return r.Number
	}
	return 0
}

func (w *work) count(which func(*member) bool) int {
	n := 0
	for _, m := range w.members {
		if which(m) {
			n++
		}
	}
	return n
}

func isLive(m *member) bool      { return m.standing == live }
func isFresh(m *member) bool     { return m.standing == live && m.goal }
func isOld(m *member) bool       { return m.standing == live && !m.goal }
func isLeaving(m *member) bool   { return m.standing == leaving }
func isAvailable(m *member) bool { return m.standing == live && m.available }
func isFreshAvailable(m *member) bool {
	return isFresh(m) && m.available
}

// updated: it has the goal, and its host has said so. What was not changed in place came with its revision: hosts that do not tell, and what they have not
// begun, count by what they were told, as long as they are heard.
func (w *work) updated(m *member) bool {
	if m.Taken == "" {
		return m.goal && !m.away()
	}
	return m.goal && m.Taken == declared.HashIn(w.Name, w.r.Goal)
}

// done: it is to be there, has the goal, and works.
func (w *work) done(m *member) bool { return isFreshAvailable(m) && w.updated(m) }

// away: its node is not heard, so nothing can be said of it.
func (m *member) away() bool { return m.presence != node.Here }

// of are the members of a kind, in order.
func (w *work) of(which func(*member) bool) []*member {
	var all []*member
	for _, m := range w.members {
		if which(m) {
			all = append(all, m)
		}
	}
	return all
}

// stop asks a member to end. What was available is written down as taken, and there is a bound on that: what is beyond it waits.
func (w *work) stop(m *member, why reason.Code) bool {
	if m.available && m.standing == live && !w.take(m.UID, why) {
		w.alarm.At = w.now
		return false
	}
	w.d.Stop = append(w.d.Stop, Stop{Mark{m.Name, m.UID}, why})
	m.available = false
	if m.standing == live { // what was abandoned does not count, and goes on doing so
		m.standing = leaving
	}
	return true
}

// take spends from what may be taken away. Of those taken before, only what still looks as if it was not is kept.
func (w *work) take(uid string, why reason.Code) bool {
	if w.s.Budget == w.Was.Budget {
		w.s.Budget++
		w.s.Taken = nil
		for _, m := range w.members {
			if m.Phase < Terminating && w.taken[m.UID] != 0 {
				w.s.Taken = append(w.s.Taken, Taken{m.UID, w.taken[m.UID]})
			}
		}
	}
	if len(w.s.Taken) >= takeMax {
		return false
	}
	w.s.Taken = append(w.s.Taken, Taken{uid, why})
	return true
}

// create makes an instance, in a slot that nobody has. An exclusive workload has no slots but those that are wanted: an instance's
// identity is its slot, and is not given to a second one while the first may run.
func (w *work) create(revision, nodeName string) bool {
	if !w.alarm.Passed(w.s.Backoff.Until) {
		return false
	}
	if len(w.made) >= createMax {
		w.alarm.At = w.now
		return false
	}
	slot := w.freeSlot(nodeName)
	if w.beyond(slot) || w.unheard(slot, nodeName, revision) {
		return false
	}
	w.busy[slot] = true
	c := Create{Slot: slot, Revision: revision, Node: nodeName, Must: nodeName != "", Replaces: w.orphan()}
	if nodeName == "" {
		c.Node, c.Must = w.pin(slot, revision)
	}
	if h, has := w.homes[slot]; has {
		h.Spare = false
		w.homes[slot] = h
	}
	w.made = append(w.made, c)
	return true
}

// orphan is the next abandoned instance that nobody stands in for.
func (w *work) orphan() string {
	if w.orphans == nil {
		w.orphans = w.allOrphans()
	}
	if len(w.orphans) == 0 {
		return ""
	}
	uid := w.orphans[0]
	w.orphans = w.orphans[1:]
	return uid
}

func (w *work) allOrphans() []string {
	stood := map[string]bool{}
	for _, m := range w.members {
		if m.standing != dropped {
			stood[m.Replaces] = true
		}
	}
	all := []string{}
	for _, m := range w.members {
		if m.standing == abandoned && m.Phase != Terminating && !stood[m.UID] {
			all = append(all, m.UID)
		}
	}
	return all
}
