package gc

import (
	"fmt"
	"slices"
)

// standing is what an owner reference is worth.
type standing uint8

const (
	pending   standing = iota // being verified
	solid                     // the owner lives
	mistaken                  // the owner lives, and the reference is wrong
	unknown                   // whether the owner lives cannot be found out
	absent                    // the owner is gone
	closing                   // the owner is being deleted in the foreground
	releasing                 // the owner is being deleted and leaves its dependents behind
)

// owners are the references of one object by what they are worth.
type owners struct {
	kept     int // solid, mistaken or unknown
	pending  int
	gone     []UID // absent or closing
	closing  int
	release  []UID
	mistakes []string
	lookups  []Lookup // to verify now
}

// Decide returns what to do about an object, to be carried out in that order; nothing where nothing is to be done, or where
// that depends on an answer that is on its way.
func (g *Graph) Decide(uid UID) []Decision {
	n := g.nodes[uid]
	if n == nil || n.object == nil {
		return nil
	}
	o := n.object
	all := g.classify(n)
	decisions := n.ask(all)
	switch {
	case len(all.release) > 0:
		return append(decisions, drop(o, all.release, "the owner is deleted and leaves its dependents behind"))
	case o.waiting() && all.closing > 0 && g.circular(n):
		return append(decisions, Decision{Do: Unblock, Object: o.Identity, Version: o.Version, Why: "its owners and its dependents wait for one another"})
	case o.Deleting:
		return append(decisions, n.finish()...)
	case all.pending > 0 || len(all.gone) == 0:
		return decisions
	case all.kept > 0:
		return append(decisions, drop(o, all.gone, "these owners are gone, another one is left"))
	}
	return append(decisions, n.collect(all))
}

// ask returns the questions that classify has noted, and tells of mistakes once.
func (n *node) ask(all owners) []Decision {
	o := n.object
	var decisions []Decision
	for _, l := range all.lookups {
		decisions = append(decisions, Decision{Do: Verify, Object: o.Identity, Version: o.Version, Lookup: l})
	}
	if n.reported || o.Deleting {
		return decisions
	}
	n.reported = len(all.mistakes) > 0
	for _, why := range all.mistakes {
		decisions = append(decisions, Decision{Do: Report, Object: o.Identity, Version: o.Version, Why: why})
	}
	return decisions
}

// classify weighs the owner references of an object, and notes what it asks for.
func (g *Graph) classify(n *node) owners {
	var all owners
	o := n.object
	for _, ref := range o.Owners {
		if ref.UID == o.UID {
			continue // what owns itself lives by itself
		}
		switch s, why := g.weigh(o, ref, &all); s {
		case pending:
			all.pending++
		case mistaken:
			all.kept++
			all.mistakes = append(all.mistakes, why)
		case solid, unknown:
			all.kept++
		case closing:
			all.closing++
			all.gone = append(all.gone, ref.UID)
		case absent:
			all.gone = append(all.gone, ref.UID)
		case releasing:
			all.release = append(all.release, ref.UID)
		}
	}
	return all
}

func (g *Graph) weigh(o *Object, ref Reference, all *owners) (standing, string) {
	n := g.nodes[ref.UID]
	if owner := n.object; owner != nil {
		if why := mistake(o, ref, owner); why != "" {
			return mistaken, why
		}
		switch {
		case owner.orphaning():
			return releasing, ""
		case owner.waiting():
			return closing, ""
		}
		return solid, ""
	}
	if o.Deleting {
		return pending, "" // it goes anyway; nothing is asked for its sake
	}
	l := Lookup{UID: ref.UID, APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: o.Namespace, Name: ref.Name}
	switch n.verdicts[l] {
	case Unasked:
		if n.verdicts == nil {
			n.verdicts = map[Lookup]Verdict{}
		}
		n.verdicts[l] = Asked
		all.lookups = append(all.lookups, l)
	case Lives:
		return solid, ""
	case Absent:
		return absent, ""
	case Elsewhere:
		return mistaken, fmt.Sprintf("its owner %s %s is not in namespace %q: an owner is in the namespace of its dependent or of the cluster", ref.Kind, ref.Name, o.Namespace)
	case Unreadable:
		return unknown, ""
	case Asked:
	}
	return pending, ""
}

// mistake says what is wrong with a reference to an owner that is there; empty where nothing is.
func mistake(o *Object, ref Reference, owner *Object) string {
	switch {
	case owner.Namespace != "" && o.Namespace == "":
		return fmt.Sprintf("its owner %s is in a namespace, and it is not: an object of the cluster has no owner in a namespace", owner.Identity)
	case owner.Namespace != "" && owner.Namespace != o.Namespace:
		return fmt.Sprintf("its owner %s is in another namespace: an owner is in the namespace of its dependent or of the cluster", owner.Identity)
	case owner.Kind != ref.Kind || owner.Name != ref.Name:
		return fmt.Sprintf("its owner reference says %s %s, and the object with that uid is %s", ref.Kind, ref.Name, owner.Identity)
	}
	return ""
}

// finish lets an object that is being deleted go, when nothing is left that it waits for.
func (n *node) finish() []Decision {
	o := n.object
	d := Decision{Do: RemoveFinalizer, Object: o.Identity, Version: o.Version}
	switch {
	case o.Orphan && n.valid.all == 0:
		d.Finalizer, d.Why = FinalizerOrphan, "no dependent refers to it any more"
	case !o.Orphan && o.Foreground && n.valid.blocking == 0:
		d.Finalizer, d.Why = FinalizerForeground, "no dependent blocks it any more"
	default:
		return nil
	}
	return []Decision{d}
}

// collect deletes an object that no owner keeps.
func (n *node) collect(all owners) Decision {
	o := n.object
	d := Decision{Do: Delete, Object: o.Identity, Version: o.Version, Propagation: Background, Why: "all its owners are gone"}
	switch {
	case all.closing > 0 && n.valid.all > 0:
		// Its owner waits for it, so it waits for its own dependents.
		d.Propagation, d.Why = Foreground, "its owner is being deleted in the foreground"
	case o.Orphan:
		d.Propagation = Orphan
	case o.Foreground:
		d.Propagation = Foreground
	}
	return d
}

// circular tells whether an object waits, through dependents that wait for theirs, for itself. Only what is being deleted
// in the foreground is looked at, so most of the time that is nothing.
func (g *Graph) circular(start *node) bool {
	if start.valid.waiting == 0 {
		return false
	}
	seen := map[*node]bool{}
	next := []*node{start}
	for len(next) > 0 {
		n := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[n] || n.valid.blocking == 0 {
			continue
		}
		seen[n] = true
		for uid := range n.dependents {
			d := g.nodes[uid]
			if !d.blocks(n) {
				continue
			}
			if d == start {
				return true
			}
			if d.object.waiting() {
				next = append(next, d)
			}
		}
	}
	return false
}

// blocks tells whether the deletion of owner in the foreground waits for the object.
func (n *node) blocks(owner *node) bool {
	return slices.ContainsFunc(n.object.Owners, func(ref Reference) bool {
		return ref.UID == owner.object.UID && ref.Blocks && mistake(n.object, ref, owner.object) == ""
	})
}

func drop(o *Object, gone []UID, why string) Decision {
	return Decision{Do: DropOwners, Object: o.Identity, Version: o.Version, Owners: gone, Why: why}
}
