package workload

import (
	"cmp"
	"maps"
	"slices"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
)

// Home is the node that has the data of a slot.
type Home struct {
	Slot int
	Node string
	// Spare says that nobody is to be in the slot: fewer are wanted, or another copy has stayed. Its data waits until more are wanted again.
	Spare bool
}

// stickOf is the strongest bond to a node of what there is and what may come. Jobs have none: each try has a slot of its own.
func stickOf(v *View) declared.Stick {
	if v.Spec.Mode == declared.RunToCompletion {
		return ""
	}
	used := map[string]bool{v.Was.Rollout.Goal: true, v.Was.Stable.Of: true}
	for i := range v.Instances {
		used[v.Instances[i].Revision] = true
	}
	strongest := v.Spec.Template.Stick()
	for i := range v.Revisions {
		if r := &v.Revisions[i]; used[r.Name] && r.Stick != "" && strongest != declared.MustStick {
			strongest = r.Stick
		}
	}
	return strongest
}

// locate finds where the data of each slot is: where an instance has begun in it last, as long as that Node is there. One that has not begun, such as one
// that was refused, has left nothing, and what was elsewhere before is still there.
func (w *work) locate() {
	w.homes = map[int]Home{}
	for _, h := range w.Was.Homes {
		if n, there := w.Nodes[h.Node]; there && !n.Lost {
			w.homes[h.Slot] = h
		}
	}
	for _, m := range w.members {
		if (m.Attempt > 0 || m.Phase == Starting || m.Phase == Running) && !m.refused() {
			w.settle(m)
		}
		if h, has := w.homes[m.Slot]; has && m.standing == live {
			h.Spare = false
			w.homes[m.Slot] = h
		}
	}
}

// refused: its node has not taken it, or cannot run it. Agents of before told of the attempt that was to come as if it had begun.
func (m *member) refused() bool {
	return m.Phase == Failed && m.Failure != nil && (m.Failure.Code == reason.InstanceRefused || m.Failure.Code == reason.RuntimeUnfit)
}

// located is what there is to be stored of it.
func (w *work) located() []Home {
	var all []Home
	for _, slot := range slices.Sorted(maps.Keys(w.homes)) {
		all = append(all, w.homes[slot])
	}
	return all
}

// settle notes that the data of a slot is where its instance is.
func (w *work) settle(m *member) {
	if n, there := w.Nodes[m.Node]; w.stickOf(m.Revision) == "" || m.Node == "" || !there || n.Lost || w.homes[m.Slot].Node == m.Node {
		return
	}
	w.homes[m.Slot] = Home{Slot: m.Slot, Node: m.Node}
}

func (w *work) stickOf(revision string) declared.Stick {
	if r := w.revision(revision); r != nil && w.stick != "" {
		return r.Stick
	}
	return ""
}

// unstored: where the data of a member is was not stored yet, so that its object is all that knows. It goes when it was.
func (w *work) unstored(m *member) bool {
	h, has := w.homes[m.Slot]
	if !has || h.Node != m.Node {
		return false
	}
	at, stored := slices.BinarySearchFunc(w.Was.Homes, m.Slot, func(h Home, slot int) int { return cmp.Compare(h.Slot, slot) })
	return !stored || w.Was.Homes[at].Node != m.Node
}

// spare is told that nobody comes after a member in its slot.
func (w *work) spare(m *member) {
	if h, has := w.homes[m.Slot]; has {
		h.Spare = true
		w.homes[m.Slot] = h
	}
}

// spareRest marks the last of the slots as spare to which nobody is to come back: there are as many in others as are wanted, or will be. Otherwise somebody
// would take one of them much later, with data that is older than that of others, or wait for its node for ever. Of an abandoned copy it is decided when
// its node is back.
func (w *work) spareRest() {
	if !w.slots {
		return
	}
	kept := map[int]bool{}
	for _, m := range w.members {
		kept[m.Slot] = kept[m.Slot] || m.standing == live || m.standing == abandoned
	}
	for _, c := range w.made {
		kept[c.Slot] = true
	}
	left := w.wanted - w.count(isLive) - len(w.made)
	for _, slot := range slices.Sorted(maps.Keys(w.homes)) {
		h := w.homes[slot]
		if kept[slot] || h.Spare {
			continue
		}
		left--
		h.Spare = left < 0
		w.homes[slot] = h
	}
}

// pin is the node that an instance is to go to because the data of its slot is there, and whether to no other. Empty: any.
func (w *work) pin(slot int, revision string) (nodeName string, must bool) {
	stick := w.stickOf(revision)
	if stick == "" {
		return "", false
	}
	nodeName = w.homes[slot].Node
	return nodeName, nodeName != "" && stick == declared.MustStick
}

// unheard: this leader has not heard yet from the node that has the data of a slot. Who only prefers it would be sent to another one, though it is there.
func (w *work) unheard(slot int, nodeName, revision string) bool {
	if nodeName != "" {
		return false
	}
	at, _ := w.pin(slot, revision)
	return at != "" && w.Nodes[at].Presence == node.Unheard && w.deaf()
}

// unpin takes back those that wait for a node that has their data no more, because there is none of that name: they are made anew, for any node.
func (w *work) unpin() {
	for _, m := range w.of(isLive) {
		if m.Phase != Pending || m.Bound == "" {
			continue
		}
		if at, _ := w.pin(m.Slot, m.Revision); at != m.Bound {
			w.stop(m, reason.Replaced)
		}
	}
}

// waits: it must go to the node that has its data, and that is not heard, or takes nothing.
func (w *work) waits(m *member) bool {
	if m.standing != live || m.Phase != Pending || m.Bound == "" {
		return false
	}
	at, must := w.pin(m.Slot, m.Revision)
	n := w.Nodes[at]
	return must && at == m.Bound && (n.Presence != node.Here || n.Closed)
}

// deserted are the slots whose data waits and that nobody has, in order.
func (w *work) deserted() []int {
	all := []int{}
	for _, slot := range slices.Sorted(maps.Keys(w.homes)) {
		if !w.busy[slot] && !w.homes[slot].Spare {
			all = append(all, slot)
		}
	}
	return all
}

// beyond: an exclusive workload has no such slot, but where data waits in one that it had before it was exclusive. There are no more in all by that. With mode
// PerNode which slot it is says nothing, and of a job each try has another one.
func (w *work) beyond(slot int) bool {
	if h, has := w.homes[slot]; has && !h.Spare {
		return false
	}
	return w.exclusive && slot >= w.wanted && (w.Spec.Mode == "" || w.Spec.Mode == declared.Replicated)
}

// freeSlot is where an instance is made: first in the slots whose data waits, so that a successor has what its predecessor had; then the first that nobody
// has. With mode PerNode data that waits is that of the node.
func (w *work) freeSlot(nodeName string) int {
	if w.returns == nil {
		w.returns = w.deserted()
	}
	for i, slot := range w.returns {
		if nodeName == "" || w.homes[slot].Node == nodeName {
			w.returns = slices.Delete(w.returns, i, i+1)
			return slot
		}
	}
	for w.busy[w.slot] || nodeName != "" && w.homes[w.slot].Node != "" {
		w.slot++
	}
	return w.slot
}
