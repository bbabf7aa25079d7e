package heads

import (
	"bytes"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// retainFor is how long what was replaced is known: the transfer of a large state over a thin link, a megabyte at 2 KB/s.
	retainFor = 10 * time.Minute
	// retainMin and retainPerNode bound how much of it there is, so that nodes that change all the time do not pile up.
	retainMin     = 1024
	retainPerNode = 2
)

// view is what is known of Assignments and Nodes. Its methods do no I/O. What they return as usages is for the caller to pass on.
type view struct {
	mu sync.Mutex // guards what follows, and all that it leads to
	// nodes are those of which there is a Node or an Assignment, by name.
	nodes map[string]*node
	// strangers ask for heads, and no Node with their UID is known yet; gone are those that are known to be no more. Both by UID.
	strangers map[string]*stranger
	gone      map[string]time.Time
	lists     map[catalog.Digest]*listed
	owns      map[catalog.Digest]*own
	layers    map[layerID]*layerUse
	entrusted map[string]map[string]bool // by UID of who keeps heads for others: their names
	retired   []retired                  // the oldest first
	newest    uint64                     // version of all that was seen
}

// node is one node.
type node struct {
	uid         string // of the Node; empty while there is none
	nodeVersion uint64 // of the Node
	seen        uint64 // version of the Assignment, also of one that nothing can be made of, or of its deletion
	present     bool   // there is an Assignment
	assigned    *assigned
	changed     chan struct{} // closed when there may be another head; nil while nobody waits
	signed      signed
	starved     bool   // who waits has got less than there is, because nothing could be signed
	suspect     uint64 // epoch in which its host has shown what the store does not know; 0: it has not
	suspectKey  string // of that host
}

// assigned is what an Assignment comes to.
type assigned struct {
	uid      string // of the node that it is for
	version  uint64
	content  *Content
	list     *listed
	fallback *listed
	own      *own
}

// signed is the head that was signed last, and of what.
type signed struct {
	head           []byte
	epoch, version uint64
	issued         int64
}

// stranger waits for its Node to be known.
type stranger struct {
	since   time.Time
	changed chan struct{}
}

// listed is a catalog list, with how many states have it. Most nodes share theirs with many others.
type listed struct {
	encoded []byte
	layers  []layerID
	states  int
}

// own is the own layer of one node.
type own struct {
	items  []catalog.Item
	states int
}

// layerID is a layer at a root.
type layerID struct {
	config string
	root   catalog.Digest
}

// layerUse is which revision a layer comes from, and how many lists have it.
type layerUse struct {
	revision string
	lists    int
}

// usage is that one list more has a layer, or one less.
type usage struct {
	layerID
	less bool
}

// retired is a state that was replaced.
type retired struct {
	state *assigned
	at    time.Time
}

func newView() *view {
	return &view{
		nodes: map[string]*node{}, strangers: map[string]*stranger{}, gone: map[string]time.Time{},
		lists: map[catalog.Digest]*listed{}, owns: map[catalog.Digest]*own{}, layers: map[layerID]*layerUse{}, entrusted: map[string]map[string]bool{},
	}
}

func (v *view) nodeLocked(name string) *node {
	n := v.nodes[name]
	if n == nil {
		n = &node{}
		v.nodes[name] = n
	}
	return n
}

// wake tells who waits for another head of a node.
func (n *node) wake() {
	n.starved = false
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

func (n *node) waiting() <-chan struct{} {
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.changed
}

// assign notes an Assignment: revisions are the names behind the layers of its list and of its fallback. A nil content is that nothing
// can be made of that version, and what was before stays. News that are old are passed over.
func (v *view) assign(name string, a *assigned, revisions map[layerID]string, now time.Time) []usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodeLocked(name)
	if a.version <= n.seen {
		return nil
	}
	n.seen, n.present, v.newest = a.version, true, max(v.newest, a.version)
	if a.content == nil {
		return nil
	}
	used := v.takeLocked(a, n.assigned, revisions)
	used = append(used, v.retireLocked(n.assigned, now)...)
	v.entrustLocked(name, n.assigned, a)
	n.assigned = a
	n.wake()
	return used
}

// unassign notes that an Assignment is gone since a version.
func (v *view) unassign(name string, version uint64, now time.Time) []usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodes[name]
	if n == nil || version < n.seen {
		return nil
	}
	v.newest = max(v.newest, version)
	used := v.retireLocked(n.assigned, now)
	v.entrustLocked(name, n.assigned, nil)
	// The version stays: nothing older may come back.
	n.seen, n.present, n.assigned = version, false, nil
	v.forgetLocked(name, n)
	return used
}

// enter notes a Node.
func (v *view) enter(name, uid string, version uint64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodeLocked(name)
	if version <= n.nodeVersion {
		return
	}
	v.newest = max(v.newest, version)
	before := n.uid
	n.nodeVersion, n.uid = version, uid
	if before == uid {
		return
	}
	if before != "" {
		v.gone[before] = now
	}
	n.signed, n.suspect = signed{}, 0
	n.wake()
	delete(v.gone, uid)
	if s := v.strangers[uid]; s != nil {
		close(s.changed)
		delete(v.strangers, uid)
	}
}

// leave notes that a Node is gone since a version.
func (v *view) leave(name string, version uint64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodes[name]
	if n == nil || n.uid == "" || version < n.nodeVersion {
		return
	}
	v.newest = max(v.newest, version)
	v.gone[n.uid] = now
	n.uid, n.nodeVersion, n.signed, n.suspect = "", version, signed{}, 0
	n.wake()
	v.forgetLocked(name, n)
}

// forget lets go of a node of which nothing is left.
func (v *view) forgetLocked(name string, n *node) {
	if n.uid == "" && !n.present {
		n.wake()
		delete(v.nodes, name)
	}
}

// take counts a state in: what it shares with others is kept once.
func (v *view) takeLocked(a, before *assigned, revisions map[layerID]string) []usage {
	c := a.content
	var used []usage
	a.list, used = v.takeListLocked(c.Root, c.Encoded, c.List, revisions, used)
	c.List, c.Encoded = nil, nil
	if c.Fallback != nil {
		list, err := catalog.DecodeList(c.Fallback)
		if err != nil {
			panic("heads: a list that was just encoded is none") // ContentOf has
		}
		a.fallback, used = v.takeListLocked(c.Try.Fallback, c.Fallback, list, revisions, used)
		c.Fallback = nil
	}
	if c.Own != nil {
		a.own = v.owns[c.OwnRoot]
		if a.own == nil {
			if before != nil && before.own != nil {
				keepItems(c.Own, before.own.items)
			}
			a.own = &own{items: c.Own}
			v.owns[c.OwnRoot] = a.own
		}
		a.own.states++
		c.Own = nil
	}
	return used
}

// keepItems puts those of the state before in the place of equal ones, both in order of their claims. The state before stays for a while, and of the
// instances of a node nearly all are the same in the next one.
func keepItems(items, before []catalog.Item) {
	for i := range items {
		for len(before) > 0 && before[0].Claim < items[i].Claim {
			before = before[1:]
		}
		if len(before) > 0 && before[0].Claim == items[i].Claim && bytes.Equal(before[0].Body, items[i].Body) {
			items[i] = before[0]
		}
	}
}

func (v *view) takeListLocked(root catalog.Digest, encoded []byte, list catalog.List, revisions map[layerID]string, used []usage) (*listed, []usage) {
	l := v.lists[root]
	if l == nil {
		l = &listed{encoded: encoded}
		for _, layer := range list {
			if layer.ID == wire.OwnLayer {
				continue
			}
			id := layerID{layer.ID, layer.Root}
			u := v.layers[id]
			if u == nil {
				u = &layerUse{}
				v.layers[id] = u
			}
			u.lists++
			l.layers, used = append(l.layers, id), append(used, usage{layerID: id})
		}
		v.lists[root] = l
	}
	for _, id := range l.layers {
		v.layers[id].revision = revisions[id] // the newest is there the longest
	}
	l.states++
	return l, used
}

// retire keeps a state that was replaced for a while, and lets go of those that are too old or too many.
func (v *view) retireLocked(a *assigned, now time.Time) []usage {
	if a != nil {
		v.retired = append(v.retired, retired{a, now})
	}
	var used []usage
	most := retainMin + retainPerNode*len(v.nodes)
	for len(v.retired) > 0 && (len(v.retired) > most || now.Sub(v.retired[0].at) > retainFor) {
		used = append(used, v.releaseLocked(v.retired[0].state)...)
		v.retired[0] = retired{} // the array stays for a while
		v.retired = v.retired[1:]
	}
	return used
}

func (v *view) releaseLocked(a *assigned) []usage {
	used := v.releaseListLocked(a.content.Root, a.list)
	if a.fallback != nil {
		used = append(used, v.releaseListLocked(a.content.Try.Fallback, a.fallback)...)
	}
	if a.own != nil {
		if a.own.states--; a.own.states == 0 {
			delete(v.owns, a.content.OwnRoot)
		}
	}
	return used
}

func (v *view) releaseListLocked(root catalog.Digest, l *listed) []usage {
	if l.states--; l.states > 0 {
		return nil
	}
	delete(v.lists, root)
	var used []usage
	for _, id := range l.layers {
		u := v.layers[id]
		if u.lists--; u.lists == 0 {
			delete(v.layers, id)
		}
		used = append(used, usage{id, true})
	}
	return used
}

// sweep lets go of what is too old.
func (v *view) sweep(now time.Time) []usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	for uid, at := range v.gone {
		if now.Sub(at) > retainFor {
			delete(v.gone, uid)
		}
	}
	return v.retireLocked(nil, now)
}

// wakeStarved tells everybody who got less than there is, and all nodes if so wanted.
func (v *view) wakeStarved(all bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range v.nodes {
		if n.starved || all {
			n.wake()
		}
	}
}

// settle tells strangers who have waited since before a moment, at which the view was complete, that there is no such node.
func (v *view) settle(complete, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for uid, s := range v.strangers {
		if s.since.Before(complete) {
			v.gone[uid] = now
			close(s.changed)
			delete(v.strangers, uid)
		}
	}
}

// list is the encoded list of a root.
func (v *view) list(root catalog.Digest) ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.lists[root]; l != nil {
		return l.encoded, true
	}
	return nil, false
}

// ownItems are the items of a node's own layer with that root.
func (v *view) ownItems(root catalog.Digest) ([]catalog.Item, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if o := v.owns[root]; o != nil {
		return o.items, true
	}
	return nil, false
}

// revision is which revision a layer at a root comes from.
func (v *view) revision(id layerID) (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if u := v.layers[id]; u != nil {
		return u.revision, true
	}
	return "", false
}
