// Package peers draws which other hosts a host asks while it reaches no server: some of its environment and zone. Everything here is pure.
//
// A list is drawn anew only when a quarter of it has gone, or could be there and is not: it stands in the signed state of its node, and each
// other one is a version more for its host to fetch. So a group that grows from one to many is drawn about ten times, and a host that
// comes and goes changes nothing. A host that is not heard now is not gone: most are back in a while, and nothing better is known.
package peers

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"
)

const (
	// DrawnMax is how many a list has. A word goes to ten thousand hosts by way of them in four steps, with half of them gone in five; and
	// they take a kilobyte of the node's own layer.
	DrawnMax = 16
	// quarter is the part of a list that has to change.
	quarter = 4
)

// Peer is an entry of a list.
type Peer struct{ Name, UID, Address string }

// Node is a node of which a host has joined.
type Node struct {
	Name, UID string
	Group     string // its environment and zone: nobody has peers of another one
	// Address is where its host answers others, as far as it was heard; empty where it does not, or is not heard now.
	Address string
	Silent  bool // it is not heard now
	Has     []Peer
}

// Draw returns the lists that are to be replaced, by the UIDs of their nodes. The same nodes come to the same lists.
func Draw(nodes []Node) map[string][]Peer {
	byUID, groups := map[string]*Node{}, map[string][]*Node{}
	for i := range nodes {
		n := &nodes[i]
		byUID[n.UID] = n
		if n.Address != "" {
			groups[n.Group] = append(groups[n.Group], n)
		}
	}
	for _, group := range groups {
		slices.SortFunc(group, func(a, b *Node) int { return cmp.Compare(a.UID, b.UID) })
	}
	drawn := map[string][]Peer{}
	for i := range nodes {
		n := &nodes[i]
		if n.Silent {
			continue // it could not fetch it
		}
		if n.Address == "" {
			if len(n.Has) > 0 {
				drawn[n.UID] = nil // it takes no part any more
			}
			continue
		}
		if list, other := n.draw(byUID, groups[n.Group]); other {
			drawn[n.UID] = list
		}
	}
	return drawn
}

// draw is the list of a node, and whether it replaces the one that it has.
func (n *Node) draw(byUID map[string]*Node, group []*Node) ([]Peer, bool) {
	var stay []Peer
	silent := 0 // of those that stay
	for _, p := range n.Has {
		of := byUID[p.UID]
		if of == nil || of.Group != n.Group || of.Name != p.Name || of.Address != p.Address && !(of.Silent && of.Address == "") {
			continue
		}
		if of.Address == "" {
			silent++
		}
		stay = append(stay, p)
	}
	ideal := min(DrawnMax, len(group)-1+silent)
	changed := len(n.Has) - len(stay) + max(ideal-len(stay), 0)
	if changed == 0 || changed*quarter < max(len(n.Has), ideal) {
		return nil, false
	}
	var list []Peer
	for _, at := range n.sample(len(group)) {
		if of := group[at]; of != n {
			list = append(list, Peer{of.Name, of.UID, of.Address})
		}
	}
	list = list[:min(len(list), DrawnMax)]
	for _, p := range stay { // where there are few, those that are not heard now are better than nobody
		if len(list) < ideal && byUID[p.UID].Address == "" {
			list = append(list, p)
		}
	}
	return list, true
}

// sample draws places of a group: one more than a list has, as the node itself may be among them, or all. Each is as likely as any other.
func (n *Node) sample(size int) []int {
	seed := sha256.Sum256([]byte("tako/peers/1\n" + n.UID + "\n" + strconv.Itoa(size)))
	random := rand.New(rand.NewPCG(binary.BigEndian.Uint64(seed[:]), binary.BigEndian.Uint64(seed[8:])))
	if size <= 4*DrawnMax {
		return random.Perm(size)[:min(size, DrawnMax+1)]
	}
	places := make([]int, 0, DrawnMax+1)
	for len(places) <= DrawnMax {
		if at := random.IntN(size); !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	return places
}
