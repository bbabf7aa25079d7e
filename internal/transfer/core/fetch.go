package core

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// errHash is of what was sent in answer to a hash.
var errHash = errors.New("what was sent has not the hash that was asked for")

// way is how a layer is fetched.
type way uint8

const (
	byDifference way = iota // to the base; a snapshot when there is none
	byDescent               // by hash
	bySnapshot
)

// progress is how far the goal has come. What is staged outlives it.
type progress struct {
	waits   waiting
	id      uint64 // of the last request
	request uint64 // that is open
	hashes  []catalog.Digest
	list    catalog.List // that is being stored

	aside bool // what came last is of nobody who was asked

	open    bool // the stage is, for fetch
	fetch   Fetch
	way     way
	wrong   int // times in a row that the layer came wrong
	base    catalog.Trie
	staged  Staged
	asked   catalog.Digest // cursor of the open Sync
	held    *wire.SyncPart // first part of a snapshot in place of a difference, until its stage is open
	descent *catalog.Descent
	target  *catalog.Trie    // of a descent that has come to its end
	needs   []catalog.Change // of that, not staged yet
}

// fetch does the next thing for the goal, and reports whether another one may follow.
func (m *Machine) fetch() bool {
	g := m.goal
	if g.list == nil {
		return m.fetchList()
	}
	for i := range g.list {
		l := &g.list[i]
		if there, err := m.there(l.Root); err != nil {
			m.local(err)
			return false
		} else if !there {
			m.begin()
			m.fetchLayer(l)
			return false
		}
	}
	return m.hand()
}

// begin notes that something is asked for because of the goal.
func (m *Machine) begin() {
	if !m.goal.begun {
		m.goal.begun = true
		m.pace.began = m.now
	}
}

// leave forgets how far the goal has come. An open request is ended.
func (m *Machine) leave() {
	if m.progress.waits == forAnswer {
		m.do(Cancel{ID: m.progress.request})
	}
	m.progress = progress{id: m.progress.id}
}

// pause is after something that failed; it is at least so long.
func (m *Machine) pause(atLeast time.Duration) {
	m.pace.retry = m.now.Add(max(m.pace.backoff.Next(m.random), atLeast))
}

// failed is after a source that did not answer.
func (m *Machine) failed(after time.Duration) {
	if f := m.progress.fetch; m.lacked(f.Target) {
		m.reject(reason.RootUnknown, fmt.Sprintf("nobody who was asked has layer %s at %s; where an operator has ordered it, bring the order once more", f.Layer, f.Target))
	}
	m.progress.waits = forNothing
	m.pause(after)
	m.goal.failed = true
	m.sources.next(m.now)
}

// unanswering is after a request that has come to nothing. A source that has sent what cannot be read is as one that has lied.
func (m *Machine) unanswering(e *Failed) {
	if !m.answers(e.ID) {
		return
	}
	if e.Garbled {
		m.nonsense(e.Err)
		m.sources.blame(m.now)
	}
	m.failed(e.After)
}

// nonsense counts what cannot be read.
func (m *Machine) nonsense(err error) {
	m.count(func(r *wire.Refused) { r.Content++ })
	m.do(Disbelieve{Doubt: DoubtContent, Err: err})
}

// answers tells whether an answer is to the request that is open, and counts it as no longer open if so.
func (m *Machine) answers(id uint64) bool {
	return m.progress.waits == forAnswer && m.progress.request == id
}

func (m *Machine) ask() (id uint64, source int) {
	m.progress.id++
	m.progress.request, m.progress.waits = m.progress.id, forAnswer
	return m.progress.id, m.sources.current
}

func (m *Machine) askNodes(layer string, hashes []catalog.Digest) {
	m.begin()
	id, source := m.ask()
	m.progress.hashes = hashes
	m.do(Nodes{ID: id, Source: source, Request: wire.NodesRequest{Head: m.goal.signed, Layer: layer, Hashes: hashes}})
}

// fetchList takes the list of the goal from what is held, or asks for it.
func (m *Machine) fetchList() bool {
	root := m.goal.mark.Root
	l, err := m.listOf(root)
	switch {
	case err != nil:
		m.local(err)
		return false
	case l != nil:
		m.goal.list = l
		return true
	case m.active != nil && m.active.mark.Root == root:
		m.putList(m.active.plain) // the disk has lost it, and it is known here
		return false
	}
	m.askNodes(wire.CatalogLayer, []catalog.Digest{root})
	return false
}

// putList stores the list of the goal.
func (m *Machine) putList(l catalog.List) {
	encoded, err := l.Encode()
	if err != nil {
		m.local(err)
		return
	}
	m.progress.list, m.progress.waits = l, forList
	m.do(PutList{Encoded: encoded})
}

// nonNil makes a list of no layers one that is there.
func nonNil(l catalog.List) catalog.List {
	if l == nil {
		return catalog.List{}
	}
	return l
}

func (m *Machine) listCame(items [][]byte) {
	switch {
	case len(items) != 1 || len(items[0]) == 0:
		m.failed(0)
		return
	case catalog.ListRoot(items[0]) != m.goal.mark.Root:
		m.lied("the list of layers", errHash)
		m.failed(0)
		return
	}
	m.progress.waits = forNothing
	l, err := catalog.DecodeList(items[0])
	if err != nil {
		m.poison(err)
		return
	}
	m.pace.backoff.Reset()
	m.progress.list, m.progress.waits = nonNil(l), forList
	m.do(PutList{Encoded: items[0]})
}

// lied counts that something came which nobody asked for, and blames the source if it was that.
func (m *Machine) lied(what string, why error) {
	m.nonsense(&reason.Error{Code: reason.TransferWrong, Doing: "fetch " + what, Cause: why})
	if !m.progress.aside {
		m.sources.blame(m.now)
	}
}

// poison is after something that is signed and is not to be used. Nobody is to blame but who signed it.
func (m *Machine) poison(err error) {
	e := reason.Of(err)
	m.do(Drop{})
	m.refuse(verdictOn(m.goal.mark, wire.Rejected, e.Code, e.Error(), m.now))
}

// fetchLayer goes on with a layer: where it was left, or from the beginning.
func (m *Machine) fetchLayer(l *catalog.Layer) {
	p := &m.progress
	if p.open && p.fetch.Target == l.Root && p.fetch.Layer == l.ID {
		m.askLayer()
		return
	}
	if err := m.held.Room(m.goal.root, m.goal.size); err != nil {
		m.local(err)
		return
	}
	wrong, id := p.wrong, p.id
	if p.fetch.Target != l.Root {
		wrong = 0
	}
	*p = progress{id: id, wrong: wrong, fetch: Fetch{Layer: l.ID, Target: l.Root}, way: way(wrong)}
	if m.lacked(l.Root) {
		p.way = bySnapshot
	}
	if p.way != bySnapshot {
		base, whole, found, err := m.baseOf(l)
		if err != nil {
			m.local(err)
			return
		}
		if found {
			p.fetch.Base, p.base = base.Root(), base
			if !whole {
				p.way = byDescent
			}
		}
	}
	m.openStage()
}

func (m *Machine) openStage() {
	m.progress.open, m.progress.waits, m.progress.staged = false, forBegin, Staged{}
	m.do(Begin{Fetch: m.progress.fetch})
}

// opened takes over what was staged before.
func (m *Machine) opened(staged Staged) {
	p := &m.progress
	p.open = true
	p.staged = staged
	if part := p.held; part != nil {
		p.held = nil
		p.waits = forAnswer // the same answer goes on
		m.part(part)
		return
	}
	m.askLayer()
}

// restage begins the stage anew.
func (m *Machine) restage() {
	m.do(Drop{})
	m.openStage()
}

// askLayer asks for what comes next of the layer.
func (m *Machine) askLayer() {
	if m.progress.way == byDescent {
		m.descend()
		return
	}
	p := &m.progress
	from, ok := p.staged.next()
	if !ok {
		m.restage()
		return
	}
	m.begin()
	id, source := m.ask()
	p.asked = from
	m.do(Sync{ID: id, Source: source, Request: wire.SyncRequest{
		Head: m.goal.signed, Layer: p.fetch.Layer, Base: p.fetch.Base, Target: p.fetch.Target, Cursor: from,
	}})
}

// next is the first key that is not staged; false when the last is the last that there can be.
func (s *Staged) next() (catalog.Digest, bool) {
	if s.Count == 0 {
		return catalog.Digest{}, true
	}
	return following(s.Last)
}

// following is the key after another one; false when there is none.
func following(key catalog.Digest) (catalog.Digest, bool) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i]++; key[i] != 0 {
			return key, true
		}
	}
	return catalog.Digest{}, false
}

func (m *Machine) partCame(e PartCame) {
	if m.answers(e.ID) {
		m.progress.aside = e.Aside
		m.part(&e.Part)
	}
}

// part takes in one part of a difference or a snapshot.
func (m *Machine) part(part *wire.SyncPart) {
	p := &m.progress
	switch {
	case part.Kind == wire.SyncUnknownBase && p.fetch.Base != catalog.Digest{}:
		p.way = byDescent
		m.do(Cancel{ID: p.request})
		p.waits = forNothing
		m.descend()
		return
	case part.Kind == wire.SyncUnknownBase:
		m.failed(0) // it does not have the target either
		return
	case part.Kind == wire.SyncSnapshot && p.fetch.Base != catalog.Digest{}:
		m.turnToSnapshot(part)
		return
	case part.Kind != wire.SyncSnapshot && part.Kind != wire.SyncDelta:
		m.wrong(fmt.Errorf("a part of kind %d", part.Kind))
		return
	}
	err := p.check(part)
	bodies := bytesOf(part.Changes)
	if err == nil && m.goal.bytes+p.staged.Bytes+bodies > bytesMax(m.goal.size) {
		err = fmt.Errorf("more came than the %d bytes that are signed", m.goal.size)
	}
	if reason.Is(err, reason.BodyTooLarge) {
		m.otherwise(err) // it may be signed, then the source is not to blame: by hash that is known
		return
	}
	if err != nil {
		m.wrong(err)
		return
	}
	if len(part.Changes) > 0 {
		m.pace.backoff.Reset() // it gets on
		m.append(part.Changes)
	}
	if part.Last {
		p.waits = forSettle
		m.do(Settle{})
	}
}

// append stages changes.
func (m *Machine) append(changes []wire.Change) {
	s := &m.progress.staged
	s.Count, s.Last, s.Bytes = s.Count+len(changes), changes[len(changes)-1].Key, s.Bytes+bytesOf(changes)
	m.do(Append{Changes: changes})
}

// bytesSlack is what all bodies of a state may have above what its head says: who signs may not have counted the node's own layer, and
// what is so small fills no disk.
const bytesSlack = 4 << 20

// bytesMax is how many bytes of bodies are staged, over all layers, as long as nothing but their source speaks for them. What has come by
// hash is of the state that was signed, whatever the head says of its size: a head that says too little costs the descent.
func bytesMax(signed uint64) uint64 { return min(signed, math.MaxUint64-bytesSlack) + bytesSlack }

func bytesOf(changes []wire.Change) (n uint64) {
	for i := range changes {
		n += uint64(len(changes[i].Body))
	}
	return n
}

// turnToSnapshot is when a source sends all rows in place of a difference.
func (m *Machine) turnToSnapshot(part *wire.SyncPart) {
	p := &m.progress
	if p.asked == (catalog.Digest{}) {
		p.held = part
	} else { // it has begun in the middle
		m.do(Cancel{ID: p.request})
	}
	m.leaveBase()
}

// check looks whether the changes of a part keep to the bounds. Whether they are right is told by the root in the end.
func (p *progress) check(part *wire.SyncPart) error {
	if len(part.Changes) == 0 && !part.Last {
		return errors.New("a part is empty, and not the last one")
	}
	if p.staged.Count+len(part.Changes) > p.base.Len()+catalog.EntriesMax {
		return errors.New("there are more changes than a layer may have entries")
	}
	least, ok := p.staged.next()
	for i := range part.Changes {
		c := &part.Changes[i]
		switch {
		case !ok || bytes.Compare(c.Key[:], least[:]) < 0:
			return errors.New("changes are not in order")
		case c.Deleted && (len(c.Body) > 0 || p.fetch.Base == catalog.Digest{}):
			return errors.New("a deletion of what is not there")
		case !c.Deleted && len(c.Body) == 0:
			return errors.New("a body of no bytes")
		case len(c.Body) > declare.BodyBytesMax:
			return tooLarge(len(c.Body))
		}
		least, ok = following(c.Key)
	}
	return nil
}

func tooLarge(size int) error {
	return &reason.Error{Code: reason.BodyTooLarge, Doing: "take an entry", Cause: fmt.Errorf("its body has %d bytes, the limit is %d", size, declare.BodyBytesMax)}
}

// finish puts the layer together out of what is staged, and stores it if it is the one that was asked for.
func (m *Machine) finish() {
	p := &m.progress
	t, err := m.held.Outline(p.base)
	switch {
	case err != nil:
		m.unread(err)
		return
	case t.Root() != p.fetch.Target || t.Len() > catalog.EntriesMax:
		m.wrong(fmt.Errorf("it has the root %s, and %s is signed", t.Root(), p.fetch.Target))
		return
	}
	p.target, p.waits = &t, forCommit
	m.do(Commit{Target: t})
}

func (m *Machine) committed() {
	p := &m.progress
	delete(m.lacking, p.fetch.Target)
	m.goal.bytes += p.staged.Bytes
	m.pace.backoff.Reset()
	m.progress = progress{id: p.id}
}

// wrong is after a layer that came, and is not what was asked for.
func (m *Machine) wrong(why error) {
	m.lied("layer "+m.progress.fetch.Layer, why)
	m.otherwise(why)
}

// otherwise tries the next way to get a layer; after the last one a pause is made.
func (m *Machine) otherwise(why error) {
	p := &m.progress
	if p.waits == forAnswer {
		m.do(Cancel{ID: p.request})
	}
	m.do(Drop{})
	fetch, wrong, id := p.fetch, p.wrong+1, p.id
	*p = progress{id: id, fetch: Fetch{Layer: fetch.Layer, Target: fetch.Target}, wrong: wrong}
	if wrong <= int(bySnapshot) {
		return
	}
	p.wrong = 0
	m.pause(rejectedPause)
	m.goal.failed = true
	long := min(rejectedPause<<min(m.goal.rounds, 16), rejectedMax)
	m.goal.rounds++
	m.goal.start = m.now.Add(long + time.Duration(m.random.Int64N(int64(long))))
	m.reject(reason.TransferWrong, fmt.Sprintf("layer %s came wrong three times: %s", fetch.Layer, why))
}
