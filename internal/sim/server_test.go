package sim

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Bounds of a watch, as package transfer/server has them.
const (
	heartbeatMin = 30 * time.Second
	heartbeatMax = time.Minute
	// partRows is how many changes one part of an answer has: few, so that answers break in their middle.
	partRows = 16
)

// source is whom a host asks: a server or a relay. All that it says may be forged.
type source interface {
	machine() *end
	// watch opens a watch of an agent. The answer comes when it is open; frames may come before.
	watch(s *session, report wire.Report, answer answers[struct{}])
	report(s *session, report wire.Report)
	sync(node string, r wire.SyncRequest, answer answers[[]wire.SyncPart])
	nodes(node string, r wire.NodesRequest, answer answers[wire.NodesReply])
	trust(after uint64) []trust.Signed
}

// session is one watch of an agent.
type session struct {
	agent *agent
	run   int
	id    uint64
	told  []byte // the head that went last
	trust uint64 // number that was told
}

// server signs and serves what the store says. In memory it has a view of it, which may be behind, and lack something.
type server struct {
	end
	w        *world
	view     map[string]*assignment
	seen     uint64 // revision
	stuck    bool   // its watch of the store stands still, and it does not know
	away     bool   // it does not reach the store
	fresh    time.Time
	chain    *trust.Chain
	key      *trust.SigningKey
	signed   map[string]signedHead // by node
	suspects map[string]uint64     // epoch until whose end nothing is signed for a node
	retired  map[catalog.Digest]time.Time
	bases    map[catalog.Digest]bool // layers whose tries are in memory
	sessions map[string][]*session   // by node
	relayed  map[string]*stream      // by relay
}

// signedHead is a head that was signed, and of what.
type signedHead struct {
	head           []byte
	epoch, version uint64
	key            trust.KeyID
	expires        int64
}

func newServer(w *world, name string) *server { return &server{end: end{name: name}, w: w} }

func (s *server) machine() *end { return &s.end }

// start begins with nothing in memory.
func (s *server) start() {
	s.run, s.up = s.run+1, true
	s.view, s.signed, s.suspects = map[string]*assignment{}, map[string]signedHead{}, map[string]uint64{}
	s.retired, s.bases, s.sessions = map[catalog.Digest]time.Time{}, map[catalog.Digest]bool{}, map[string][]*session{}
	s.relayed = map[string]*stream{}
	s.seen, s.fresh, s.stuck, s.chain = 0, time.Time{}, false, nil
	s.w.say("%s starts", s.name)
	s.prove()
	s.compare()
}

// stop ends a server as a crash does. Some who had a connection learn it.
func (s *server) stop() {
	s.up = false
	s.w.say("%s stops", s.name)
	for _, node := range sortedKeys(s.sessions) {
		for _, x := range s.sessions[node] {
			s.w.resets(&s.end, x)
		}
	}
	for _, name := range sortedKeys(s.relayed) {
		s.relayed[name].reset()
	}
	s.sessions, s.relayed = nil, nil
}

// resets tells an agent that its connection is gone. Where that is lost, the connection is half open.
func (w *world) resets(from *end, x *session) {
	if w.chance(0.7) {
		w.send(from, &x.agent.end, func() { x.agent.lost(x.id, errReset) })
	}
}

// every does something again and again in this run.
func (s *server) every(pause time.Duration, do func()) {
	run := s.run
	s.w.after(pause, func() {
		if s.up && s.run == run {
			do()
		}
	})
}

// tell says that the store has something new. The watch brings it in a moment.
func (s *server) tell() {
	if s.up {
		s.every(s.w.within(50*time.Millisecond), s.pull)
	}
}

// pull takes in what the watch of the store has.
func (s *server) pull() {
	if s.away || s.stuck || s.seen == 0 {
		return
	}
	news, known := s.w.store.since(s.seen)
	if !known {
		s.list()
		return
	}
	for _, a := range news {
		s.seen = max(s.seen, a.version)
		if s.w.chance(s.w.faults / 10) {
			s.w.seen.Faults["event dropped"]++
			s.w.say("%s is not told of %s at %d", s.name, a.node, a.version)
			continue
		}
		s.take(a)
	}
	s.seen = max(s.seen, s.w.store.revision)
}

// list takes in all that the store has.
func (s *server) list() {
	for _, node := range s.w.store.nodes() {
		s.take(s.w.store.present[node])
	}
	s.seen = s.w.store.revision
}

func (s *server) take(a *assignment) {
	was := s.view[a.node]
	if was != nil && a.version <= was.version {
		return
	}
	if was != nil {
		s.retired[was.root] = s.w.now
		delete(s.retired, a.root)
	}
	s.view[a.node] = a
	for _, l := range a.list {
		s.bases[l.Root] = true
	}
	for _, x := range s.sessions[a.node] {
		s.show(x)
	}
	for _, name := range sortedKeys(s.relayed) {
		s.relayed[name].show(a.node)
	}
}

// prove proves that the view is fresh, and follows the trust documents.
func (s *server) prove() {
	if !s.away {
		if s.seen == 0 {
			s.list()
		}
		if s.seen > s.w.store.revision {
			s.fresh = time.Time{} // the store went back in time
		} else if !s.stuck || s.seen >= s.w.store.revision {
			s.pull()
			s.fresh = s.w.now.Add(freshFor)
		}
		if c := s.w.store.chain; s.chain == nil || c.Current().Number > s.chain.Current().Number {
			s.chain, s.key = c, s.w.store.key
			for _, node := range sortedKeys(s.sessions) {
				for _, x := range s.sessions[node] {
					s.show(x)
				}
			}
		}
	}
	s.every(proveEvery, s.prove)
}

// compare reads everything again, and puts right what the watch has not told.
func (s *server) compare() {
	if !s.away && s.seen > 0 && s.seen <= s.w.store.revision {
		for _, node := range s.w.store.nodes() {
			if a := s.w.store.present[node]; s.view[node] == nil || s.view[node].version < a.version && a.version <= s.seen {
				s.w.say("%s finds that it was not told of %s at %d", s.name, node, a.version)
				s.take(a)
			}
		}
	}
	s.every(compareEvery, s.compare)
}

// epoch is that of the trust documents that the server has; 0 while it has none.
func (s *server) epoch() uint64 {
	if s.chain == nil {
		return 0
	}
	return s.chain.Current().Epoch
}

// head is the newest head of a node that may be signed now, or else the last that was.
func (s *server) head(node string) []byte {
	a := s.view[node]
	if a == nil || s.chain == nil {
		return nil
	}
	last, epoch := s.signed[node], s.epoch()
	may := s.w.now.Before(s.fresh) && s.suspects[node] < epoch && slices.Contains(s.chain.KeysOf(trust.RoleHeads, s.w.now), s.key.Public())
	now := s.w.now.Unix()
	if !may {
		if now >= last.expires {
			return nil
		}
		return last.head
	}
	issued := now - now%int64(signPeriod.Seconds()) // the start of the period
	want := signedHead{epoch: epoch, version: a.version, key: s.key.Public().ID(), expires: issued + int64(headLife.Seconds())}
	if last.epoch == want.epoch && last.version == want.version && last.key == want.key && last.expires == want.expires {
		return last.head
	}
	want.head = signHead(s.w.headOf(a, epoch, issued), s.key)
	s.signed[node] = want
	s.w.truth.signed[signedRoot{node, epoch, a.version, a.root}] = true
	return want.head
}

// headOf is the head of an assignment, before it is signed: it depends on what it is given and on nothing else.
func (w *world) headOf(a *assignment, epoch uint64, issued int64) catalog.Head {
	size := a.bytes
	if a.version%10 == 0 {
		size = 0 // who signs has not counted, and nobody is worse off
	}
	return catalog.Head{
		Cluster: cluster, Node: a.node, UID: uidOf(a.node), Epoch: epoch, Version: a.version, MinProtocol: catalog.HeadProtocol,
		Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: a.root}}, Bytes: size, Consent: a.consent,
		Absorbed: a.absorbed, Issued: issued, Expires: issued + int64(headLife.Seconds()),
	}
}

func uidOf(node string) string { return "uid-of-" + node }

func nodeOf(name string) catalog.Node {
	return catalog.Node{Cluster: cluster, Name: name, UID: uidOf(name)}
}

// shown judges the highest head that a host has accepted: one that is above the view is looked for in the store.
func (s *server) shown(node string, mark catalog.Mark, answer answers[struct{}]) {
	if done, err := s.judge(node, mark); done {
		answer(struct{}{}, err)
		return
	}
	s.every(s.w.within(catchUpMax), func() {
		done, err := s.judge(node, mark)
		if !done {
			err = &reason.Error{Code: reason.ServerBehind, Doing: "go on", After: time.Second}
		}
		answer(struct{}{}, err)
	})
}

// judge says what there is to say of a mark; false when the server may know more in a moment.
func (s *server) judge(node string, mark catalog.Mark) (bool, error) {
	epoch, a := s.epoch(), s.view[node]
	switch {
	case s.suspects[node] >= max(epoch, 1):
		return true, suspicion(node)
	case mark.Version == 0 || mark.Epoch < epoch || mark.Epoch == epoch && a != nil && mark.Version <= a.version:
		return true, nil
	case s.away:
		return true, &reason.Error{Code: reason.StoreUnreachable, Doing: "look for the newest state of " + node, After: time.Second}
	case mark.Epoch > s.w.store.chain.Current().Epoch, s.w.store.present[node] != nil && s.w.store.present[node].version < mark.Version:
		s.suspects[node] = mark.Epoch
		s.w.say("%s suspects a rollback: %s has shown %d", s.name, node, mark.Version)
		return true, suspicion(node)
	}
	return false, nil
}

func suspicion(node string) error {
	return &reason.Error{Code: reason.RollbackSuspected, Doing: "serve " + node, After: 30 * time.Second}
}

// watch is part of source.
func (s *server) watch(x *session, report wire.Report, answer answers[struct{}]) {
	node := x.agent.node
	s.shown(node, report.Have, func(_ struct{}, err error) {
		if err != nil {
			answer(struct{}{}, err)
			return
		}
		open := slices.DeleteFunc(s.sessions[node], func(o *session) bool { return o.agent == x.agent })
		s.sessions[node] = append(open, x)
		if len(s.sessions[node]) > 2 {
			s.w.broken("T2", "%s has %d watches of %s", s.name, len(s.sessions[node]), node)
		}
		answer(struct{}{}, nil)
		s.show(x)
		s.beat(x)
	})
}

// has tells whether a watch is open.
func (s *server) has(x *session) bool { return slices.Contains(s.sessions[x.agent.node], x) }

// beat repeats the head as the heartbeat, as long as the watch is open.
func (s *server) beat(x *session) {
	s.every(heartbeatMin+s.w.within(heartbeatMax-heartbeatMin), func() {
		if !s.has(x) {
			return
		}
		if x.agent.run != x.run || !x.agent.up { // the kernel of a host that is there says so, and one that is not is noticed as well
			s.sessions[x.agent.node] = slices.DeleteFunc(s.sessions[x.agent.node], func(o *session) bool { return o == x })
			return
		}
		x.told = nil
		s.show(x)
		s.beat(x)
	})
}

// show sends the newest head, where it is another one than the last.
func (s *server) show(x *session) {
	f := wire.Frame{}
	if head := s.head(x.agent.node); head != nil && !bytes.Equal(head, x.told) {
		f.Head, x.told = head, head
	}
	if s.chain != nil && s.chain.Current().Number > x.trust {
		x.trust = s.chain.Current().Number
		f.Trust = x.trust
	}
	if f.Head == nil && f.Trust == 0 {
		return
	}
	s.w.send(&s.end, &x.agent.end, func() { x.agent.frame(x.id, f) })
}

// report is part of source.
func (s *server) report(*session, wire.Report) {}

// trust is part of source.
func (s *server) trust(after uint64) []trust.Signed {
	if s.chain == nil {
		return nil
	}
	return s.chain.After(after)
}

// showing verifies the head that is shown with a call, and returns the list that it names.
func (s *server) showing(node string, head []byte) (catalog.List, catalog.Digest, error) {
	if s.chain == nil {
		return nil, catalog.Digest{}, errRefused
	}
	signed, h, err := catalog.DecodeHead(head)
	if err != nil {
		return nil, catalog.Digest{}, err
	}
	if own := s.signed[node]; !bytes.Equal(own.head, head) {
		if h, err = signed.Verify(s.chain.KeysOf(trust.RoleHeads, s.w.now), nodeOf(node)); err != nil {
			return nil, catalog.Digest{}, err
		}
	}
	root, _ := h.Root()
	a := s.view[node]
	at, retired := s.retired[root]
	switch {
	case a != nil && a.root == root:
	case !retired || s.w.now.Sub(at) > retainFor:
		return nil, root, &reason.Error{Code: reason.RootUnknown, Doing: "serve " + node}
	}
	return s.w.truth.lists[root], root, nil
}

// sync is part of source.
func (s *server) sync(node string, r wire.SyncRequest, answer answers[[]wire.SyncPart]) {
	list, _, err := s.showing(node, r.Head)
	if err == nil && !slices.ContainsFunc(list, func(l catalog.Layer) bool { return l.ID == r.Layer && l.Root == r.Target }) {
		err = &reason.Error{Code: reason.NotListed, Doing: fmt.Sprintf("serve %s of %s", r.Layer, node)}
	}
	if err != nil {
		answer(nil, err)
		return
	}
	l := s.w.truth.layers[r.Target]
	s.bases[r.Target] = true // it was compiled anew, where it had been forgotten
	switch base := s.w.truth.layers[r.Base]; {
	case r.Base == catalog.Digest{}:
		answer(partsOf(wire.SyncSnapshot, catalog.Trie{}, l, r.Cursor), nil)
	case base == nil || !s.bases[r.Base]:
		answer([]wire.SyncPart{{Kind: wire.SyncUnknownBase, Last: true}}, nil)
	case differ(base.trie, l.trie) > l.trie.Len()/2:
		answer(partsOf(wire.SyncSnapshot, catalog.Trie{}, l, r.Cursor), nil)
	default:
		answer(partsOf(wire.SyncDelta, base.trie, l, r.Cursor), nil)
	}
}

func differ(a, b catalog.Trie) (n int) {
	for range catalog.Difference(a, b, catalog.Digest{}) {
		n++
	}
	return n
}

// partsOf is a difference in parts.
func partsOf(kind wire.SyncKind, base catalog.Trie, l *layer, from catalog.Digest) []wire.SyncPart {
	parts := []wire.SyncPart{{Kind: kind}}
	for c, err := range catalog.Difference(base, l.trie, from) {
		must(0, err)
		if len(parts[len(parts)-1].Changes) == partRows {
			parts = append(parts, wire.SyncPart{Kind: kind})
		}
		last := &parts[len(parts)-1]
		last.Changes = append(last.Changes, wire.Change{Key: c.Key, Deleted: c.Deleted, Body: l.bodies[c.Digest]})
	}
	parts[len(parts)-1].Last = true
	return parts
}

// nodes is part of source.
func (s *server) nodes(node string, r wire.NodesRequest, answer answers[wire.NodesReply]) {
	list, root, err := s.showing(node, r.Head)
	if err != nil {
		answer(wire.NodesReply{}, err)
		return
	}
	reply := wire.NodesReply{Items: make([][]byte, len(r.Hashes))}
	if r.Layer == wire.CatalogLayer {
		for i, h := range r.Hashes {
			if h == root {
				reply.Items[i] = must(list.Encode())
			}
		}
		answer(reply, nil)
		return
	}
	at := slices.IndexFunc(list, func(l catalog.Layer) bool { return l.ID == r.Layer })
	if at < 0 {
		answer(wire.NodesReply{}, &reason.Error{Code: reason.NotListed, Doing: "serve " + node})
		return
	}
	l := s.w.truth.layers[list[at].Root]
	tries := catalog.NewNodes(l.trie)
	for i, h := range r.Hashes {
		if data, found, err := tries.Encoded(h); err == nil && found {
			reply.Items[i] = data
		} else if body, found := l.bodies[h]; found {
			reply.Items[i] = body
		}
	}
	answer(reply, nil)
}
