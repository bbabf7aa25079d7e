package fit

import (
	"maps"
	"slices"
)

// Ledger is who holds what on one node. It is the agent's: the scheduler keeps the same sums of all nodes. One goroutine owns it.
//
// An instance that is changed in place stays the same holder: what it had counts as free for it, it keeps the pieces of hardware that it had,
// and what it does not need any more is free for others once, when the change is admitted. An instance that takes the place of another one
// waits until that has released its ports.
type Ledger struct {
	node    Node
	holders map[string]*holding
}

type holding struct {
	request Request
	devices map[string][]string
}

// NewLedger is the ledger of a node that nobody holds anything of.
func NewLedger(n Node) *Ledger { return &Ledger{node: placed(n), holders: map[string]*holding{}} }

// SetNode changes what the node is and has. What is held stays held, even of what is not there any more.
func (l *Ledger) SetNode(n Node) { l.node = placed(n) }

func placed(n Node) Node {
	n.Capacity = n.Capacity.Placed()
	return n
}

// Admit takes an instance, or changes one that is there, or says why not; then nothing has changed. The conditions under which instances
// come do not drive away one that is there.
func (l *Ledger) Admit(instance string, r Request) []Refusal {
	left := l.left(instance)
	was, there := l.holders[instance]
	var why []Refusal
	if there {
		why = Held(&left, &r)
	} else {
		why = Check(&l.node, &left, &r)
	}
	if len(why) > 0 {
		return why
	}
	h := &holding{request: r, devices: map[string][]string{}}
	taken := l.taken(instance)
	for _, d := range r.Devices {
		var kept []string
		if there {
			kept = was.devices[d.Name]
		}
		h.devices[d.Name] = pick(l.node.Devices[d.Name], kept, taken[d.Name], int(d.Count))
	}
	l.holders[instance] = h
	return nil
}

// Hold takes an instance with the pieces of hardware that it has, whatever is there: what runs holds what it has, also on a node that has
// become smaller.
func (l *Ledger) Hold(instance string, r Request, devices map[string][]string) {
	l.holders[instance] = &holding{request: r, devices: maps.Clone(devices)}
}

// pick chooses pieces: those that were had first, then in order.
func pick(all, kept []string, taken map[string]bool, count int) []string {
	var chosen []string
	for _, id := range slices.Concat(kept, all) {
		if len(chosen) < count && !taken[id] && slices.Contains(all, id) && !slices.Contains(chosen, id) {
			chosen = append(chosen, id)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// Release is called when the processes of an instance have ended. Calling it again does nothing.
func (l *Ledger) Release(instance string) { delete(l.holders, instance) }

// Devices are the pieces of hardware that an instance holds, by kind.
func (l *Ledger) Devices(instance string) map[string][]string {
	if h := l.holders[instance]; h != nil {
		return maps.Clone(h.devices)
	}
	return nil
}

// Left is what nobody holds.
func (l *Ledger) Left() Left { return l.left("") }

// left is what nobody but one instance holds.
func (l *Ledger) left(but string) Left {
	left := Left{Amounts: l.node.Capacity, Devices: map[string]int64{}, Ports: map[Port]string{}}
	taken := l.taken(but)
	for name, all := range l.node.Devices {
		for _, id := range all {
			if !taken[name][id] {
				left.Devices[name]++
			}
		}
	}
	for name, h := range l.holders {
		if name == but {
			continue
		}
		left.Amounts = left.Amounts.Minus(h.request.Amounts)
		for _, p := range h.request.Ports {
			left.Ports[p] = name
		}
	}
	return left
}

// taken are the pieces of hardware that others than one instance hold.
func (l *Ledger) taken(but string) map[string]map[string]bool {
	taken := map[string]map[string]bool{}
	for name, h := range l.holders {
		if name == but {
			continue
		}
		for kind, ids := range h.devices {
			if taken[kind] == nil {
				taken[kind] = map[string]bool{}
			}
			for _, id := range ids {
				taken[kind][id] = true
			}
		}
	}
	return taken
}
