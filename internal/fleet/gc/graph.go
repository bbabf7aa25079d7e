package gc

import (
	"slices"
)

// node is one UID that was observed or that somebody refers to.
type node struct {
	object     *Object            // nil: not observed
	dependents map[UID]int        // how many references of each refer here; a reference to itself is not counted
	verdicts   map[Lookup]Verdict // what live reads said; only while not observed
	valid      references         // only while observed
	reported   bool               // the mistakes of object's references were told
}

// references counts the references to an observed object that are no mistake: who is elsewhere can neither hold up its deletion
// nor be deleted for it.
type references struct {
	all      int
	blocking int // with blockOwnerDeletion
	waiting  int // of dependents that are being deleted in the foreground
}

// Graph is who owns whom. Use NewGraph.
type Graph struct {
	nodes map[UID]*node
	last  []Reference // the owners of the object that was observed last
}

// NewGraph returns an empty graph.
func NewGraph() *Graph { return &Graph{nodes: map[UID]*node{}} }

// Len is how many objects are observed or referred to.
func (g *Graph) Len() int { return len(g.nodes) }

// Identities returns the identities of the observed objects of a kind, in no order: what a new listing is compared with.
func (g *Graph) Identities(kind GroupKind) []Identity {
	var found []Identity
	for _, n := range g.nodes {
		if n.object != nil && n.object.Kind == kind {
			found = append(found, n.object.Identity)
		}
	}
	return found
}

// Observe tells of an object as it is now, new or changed. The graph keeps o. It returns the objects to decide about, sorted.
func (g *Graph) Observe(o Object) []UID {
	n := g.node(o.UID)
	old := n.object
	// Tens of thousands that come one after the other have the same owners, and have them in memory once.
	switch {
	case old != nil && slices.Equal(o.Owners, old.Owners):
		o.Owners = old.Owners
	case slices.Equal(o.Owners, g.last):
		o.Owners = g.last
	}
	g.last = o.Owners
	touched := map[UID]bool{o.UID: true}
	if old != nil {
		g.touchOwners(touched, old, &o)
		g.unlink(old)
		n.reported = n.reported && slices.Equal(old.Owners, o.Owners)
	}
	n.object, n.verdicts = &o, nil
	if old == nil {
		g.recount(n)
	}
	g.link(&o)
	g.touchOwners(touched, &o, old)
	if old == nil || old.waiting() != o.waiting() || old.orphaning() != o.orphaning() {
		touchDependents(touched, n)
	}
	return sorted(touched)
}

// Forget tells that an object is gone. It returns the objects to decide about, sorted. An object that comes back, because it
// was only its kind that could not be seen for a while, is observed anew.
func (g *Graph) Forget(uid UID) []UID {
	n := g.nodes[uid]
	if n == nil || n.object == nil {
		return nil
	}
	touched := map[UID]bool{}
	g.touchOwners(touched, n.object, nil)
	touchDependents(touched, n)
	old := n.object
	g.unlink(old)
	n.object, n.reported, n.valid = nil, false, references{}
	g.release(uid)
	return sorted(touched)
}

// Answer tells what a live read said. It returns the objects to decide about, sorted.
func (g *Graph) Answer(l Lookup, v Verdict) []UID {
	n := g.nodes[l.UID]
	if n == nil || n.object != nil {
		return nil // nobody refers to it any more, or it was observed meanwhile
	}
	if _, asked := n.verdicts[l]; !asked {
		return nil
	}
	n.verdicts[l] = v
	touched := map[UID]bool{}
	touchDependents(touched, n)
	return sorted(touched)
}

// Recheck forgets what may not be so any more: that an owner which is not observed lives, is elsewhere, or cannot be read.
// It returns the objects to decide about, sorted. Its driver calls it every now and then.
func (g *Graph) Recheck() []UID {
	touched := map[UID]bool{}
	for _, n := range g.nodes {
		for l, v := range n.verdicts {
			if v == Lives || v == Elsewhere || v == Unreadable {
				delete(n.verdicts, l)
				touchDependents(touched, n)
			}
		}
	}
	return sorted(touched)
}

func (g *Graph) node(uid UID) *node {
	n := g.nodes[uid]
	if n == nil {
		n = &node{}
		g.nodes[uid] = n
	}
	return n
}

// release drops a node that stands for nothing.
func (g *Graph) release(uid UID) {
	if n := g.nodes[uid]; n != nil && n.object == nil && len(n.dependents) == 0 {
		delete(g.nodes, uid)
	}
}

func (g *Graph) link(o *Object) {
	for _, ref := range o.Owners {
		if ref.UID == o.UID {
			continue
		}
		n := g.node(ref.UID)
		if n.dependents == nil {
			n.dependents = map[UID]int{}
		}
		n.dependents[o.UID]++
		n.count(o, ref, 1)
	}
}

func (g *Graph) unlink(o *Object) {
	for _, ref := range o.Owners {
		if ref.UID == o.UID {
			continue
		}
		n := g.nodes[ref.UID]
		n.count(o, ref, -1)
		if n.dependents[o.UID]--; n.dependents[o.UID] == 0 {
			delete(n.dependents, o.UID)
		}
		g.release(ref.UID)
	}
}

// count adds a reference of o to the observed object that it refers to, or takes it away.
func (n *node) count(o *Object, ref Reference, by int) {
	if n.object == nil || mistake(o, ref, n.object) != "" {
		return
	}
	n.valid.all += by
	if ref.Blocks {
		n.valid.blocking += by
	}
	if o.waiting() {
		n.valid.waiting += by
	}
}

// recount counts the references to an object that was not observed until now.
func (g *Graph) recount(n *node) {
	for uid := range n.dependents {
		dependent := g.nodes[uid].object
		for _, ref := range dependent.Owners {
			if ref.UID == n.object.UID {
				n.count(dependent, ref, 1)
			}
		}
	}
}

// touchOwners adds the owners of o for whom it matters that o is not like other (which may be nil) any more: those that wait
// to go, and those that learn that a dependent waits.
func (g *Graph) touchOwners(touched map[UID]bool, o, other *Object) {
	same := other != nil && other.waiting() == o.waiting()
	for _, ref := range o.Owners {
		if same && slices.Contains(other.Owners, ref) {
			continue
		}
		owner := g.nodes[ref.UID]
		if owner == nil || owner.object == nil {
			continue
		}
		if owner.object.Deleting || o.waiting() {
			touched[ref.UID] = true
		}
	}
}

func touchDependents(touched map[UID]bool, n *node) {
	for uid := range n.dependents {
		touched[uid] = true
	}
}

func sorted(set map[UID]bool) []UID {
	list := make([]UID, 0, len(set))
	for uid := range set {
		list = append(list, uid)
	}
	slices.Sort(list)
	return list
}
