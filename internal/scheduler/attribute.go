package scheduler

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// attributes are sets of nodes by what nodes are, each kept up to date when a node changes, so that a condition costs one operation on sets
// and not a look at every node.
type attributes struct {
	labels        map[string]*labelled
	architectures map[string]bitset
	runtimes      map[workload.Runtime]bitset
	taints        map[declare.Taint]bitset
	directories   map[string]bitset
	images        map[string]bitset
	cordoned      bitset
	unhealthy     bitset
}

// labelled are the nodes that have a label, and those with each value of it.
type labelled struct {
	any    bitset
	values map[string]bitset
}

func newAttributes() attributes {
	return attributes{labels: map[string]*labelled{}, architectures: map[string]bitset{}, runtimes: map[workload.Runtime]bitset{}, taints: map[declare.Taint]bitset{},
		directories: map[string]bitset{}, images: map[string]bitset{}}
}

// mark puts a node into one of several sets, or takes it out; a set that is empty then is forgotten, because keys come from people.
func mark[K comparable](sets map[K]bitset, key K, node int32, in bool) {
	b := sets[key]
	b.set(node, in)
	if !in && b.first() < 0 {
		delete(sets, key)
		return
	}
	sets[key] = b
}

// set enters what a node is, or takes it out again.
func (a *attributes) set(i int32, n *Node, in bool) {
	for k, v := range n.Labels {
		l := a.labels[k]
		if l == nil {
			l = &labelled{values: map[string]bitset{}}
			a.labels[k] = l
		}
		l.any.set(i, in)
		if mark(l.values, v, i, in); len(l.values) == 0 {
			delete(a.labels, k)
		}
	}
	mark(a.architectures, n.Architecture, i, in)
	for _, r := range n.Runtimes {
		mark(a.runtimes, r, i, in)
	}
	for _, t := range n.Taints {
		mark(a.taints, t.Taint, i, in)
	}
	for _, d := range n.Directories {
		mark(a.directories, d, i, in)
	}
	for _, m := range n.Images {
		mark(a.images, m, i, in)
	}
	a.cordoned.set(i, in && n.Unschedulable)
	a.unhealthy.set(i, in && n.Unhealthy != "")
}

// matching makes into the set of those of all that a selector picks.
func (a *attributes) matching(into *bitset, all bitset, s *declare.Selector) {
	into.copyOf(all, len(all))
	for k, v := range s.MatchLabels {
		if l := a.labels[k]; l != nil {
			into.keep(l.values[v])
		} else {
			into.keep(nil)
		}
	}
	for i := range s.MatchExpressions {
		a.narrow(*into, &s.MatchExpressions[i])
	}
}

// narrow takes out of a set the nodes that one requirement does not pick.
func (a *attributes) narrow(set bitset, r *declare.SelectorRequirement) {
	l := a.labels[r.Key]
	if l == nil {
		l = &labelled{}
	}
	switch r.Operator {
	case declare.OpExists:
		set.keep(l.any)
	case declare.OpDoesNotExist:
		set.drop(l.any)
	case declare.OpNotIn:
		for _, v := range r.Values {
			set.drop(l.values[v])
		}
	default:
		either := make(bitset, len(set))
		for _, v := range r.Values {
			either.join(l.values[v])
		}
		set.keep(either)
	}
}
