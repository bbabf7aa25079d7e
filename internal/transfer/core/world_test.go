package core

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// authority is who signs in all tests.
type authority struct {
	cluster trust.ClusterID
	root    *trust.SigningKey
	heads   *trust.SigningKey
	// operator signs statements.
	operator *trust.SigningKey
	chain    *trust.Chain
}

var theAuthority = sync.OnceValue(func() authority {
	a := authority{cluster: trust.NewClusterID(), root: trust.NewSigningKey(), heads: trust.NewSigningKey(), operator: trust.NewSigningKey()}
	ca, err := trust.NewCA(a.cluster, start)
	if err != nil {
		panic(err)
	}
	a.chain, err = trust.NewChain(trust.Genesis{Cluster: a.cluster, CA: ca, Root: a.root, Heads: a.heads.Public()}, start, start)
	if err != nil {
		panic(err)
	}
	next, err := a.chain.Next(start, trust.SetKey(trust.RoleOperator, a.operator.Public(), start.Add(10*365*24*time.Hour)))
	if err == nil {
		next, err = next.Sign(a.root)
	}
	if err == nil {
		a.chain, err = a.chain.Extend([]trust.Signed{next})
	}
	if err != nil {
		panic(err)
	}
	return a
})

func (a *authority) node() catalog.Node {
	return catalog.Node{Cluster: a.cluster, Name: "web-1", UID: "uid-1"}
}

// layer is one layer at one root.
type layer struct {
	id     string
	trie   catalog.Trie
	bodies map[catalog.Digest][]byte // by digest
}

func newLayer(id string) layer { return layer{id: id, bodies: map[catalog.Digest][]byte{}} }

// with is the layer with another body at a claim, or without any.
func (l layer) with(claim, body string) layer {
	key := catalog.KeyOf(claim)
	change := catalog.Change{Key: key, Deleted: body == ""}
	if body != "" {
		change.Digest = sha256.Sum256([]byte(body))
		l.bodies[change.Digest] = []byte(body) // shared: digests do not collide
	}
	trie, err := l.trie.Apply(catalog.Changes(change))
	if err != nil {
		panic(err) // all of it is in memory
	}
	return layer{id: l.id, trie: trie, bodies: l.bodies}
}

func filled(id string, count int, text string) layer {
	l := newLayer(id)
	rows := make([]catalog.Row, 0, count)
	for i := range count {
		body := fmt.Appendf(nil, "%s %s %d", id, text, i)
		digest := catalog.Digest(sha256.Sum256(body))
		l.bodies[digest] = body
		rows = append(rows, catalog.Row{Key: catalog.KeyOf(fmt.Sprint("claim", i)), Digest: digest})
	}
	l.trie = catalog.Build(rows)
	return l
}

// published is one version.
type published struct {
	version uint64
	root    catalog.Digest
	list    []byte
	layers  []layer
	bytes   uint64 // of all bodies, as the head says
}

// server is the truth, and serves it. What it knows of the past may be lost.
type server struct {
	t       testing.TB
	by      *authority
	history []published
	lists   map[catalog.Digest]published
	known   map[catalog.Digest]catalog.Trie // roots that differences can begin at
	part    int                             // changes of a part
	lying   bool                            // it changes what it sends
	floods  bool                            // it sends rows without end
	tamper  func([]wire.SyncPart)           // what it makes of the parts of an answer

	orders    []layer // that statements are about
	whole     bool    // these are had as a whole, and not by hash
	snapshots bool    // it sends nothing else
	random    *rand.Rand
	asked     struct{ lists, syncs, snapshots, nodes int }
}

func newServer(t testing.TB, random *rand.Rand) *server {
	a := theAuthority()
	return &server{
		t: t, by: &a, random: random, part: 8,
		lists: map[catalog.Digest]published{}, known: map[catalog.Digest]catalog.Trie{},
	}
}

func (s *server) newest() *published { return &s.history[len(s.history)-1] }

// publish makes the next version.
func (s *server) publish(layers ...layer) *published {
	s.t.Helper()
	p := published{layers: layers, version: 1}
	if len(s.history) > 0 {
		p.version = s.newest().version + 1
	}
	var rows []catalog.Layer
	for i, l := range layers {
		rows = append(rows, catalog.Layer{Priority: 1000 - i, ID: l.id, Root: l.trie.Root()})
		s.known[l.trie.Root()] = l.trie
		for r := range l.trie.From(catalog.Digest{}) {
			p.bytes += uint64(len(l.bodies[r.Digest]))
		}
	}
	list, err := catalog.NewList(rows...)
	if err != nil {
		s.t.Fatal(err)
	}
	if p.list, err = list.Encode(); err != nil {
		s.t.Fatal(err)
	}
	p.root = catalog.ListRoot(p.list)
	s.history = append(s.history, p)
	s.lists[p.root] = p
	return s.newest()
}

// headOf is the head of a version before it is signed.
func (s *server) headOf(p *published, now time.Time) catalog.Head {
	return catalog.Head{
		Cluster: s.by.cluster, Node: "web-1", UID: "uid-1", Epoch: s.by.chain.Current().Epoch, Version: p.version,
		Roots:  []catalog.FormatRoot{{Format: catalog.FormatV1, Root: p.root}},
		Bytes:  p.bytes,
		Issued: now.Unix(), Expires: now.Add(24 * time.Hour).Unix(), MinProtocol: 1,
	}
}

func (s *server) sign(h catalog.Head) []byte { return signed(s.t, h, s.by.heads) }

func (s *server) head(p *published, now time.Time) []byte { return s.sign(s.headOf(p, now)) }

func signed(t testing.TB, h catalog.Head, key *trust.SigningKey) []byte {
	t.Helper()
	sh, err := h.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sh.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// of is what a shown head names.
func (s *server) of(head []byte) (published, bool) {
	_, h, err := catalog.DecodeHead(head)
	if err != nil {
		s.t.Fatalf("the host shows a head that cannot be read: %v", err)
	}
	root, _ := h.Root()
	p, found := s.lists[root]
	return p, found
}

func (p *published) layer(id string) (layer, bool) {
	i := slices.IndexFunc(p.layers, func(l layer) bool { return l.id == id })
	if i < 0 {
		return layer{}, false
	}
	return p.layers[i], true
}

// forget is a restart: only what is current is known.
func (s *server) forget() {
	clear(s.known)
	for _, l := range s.newest().layers {
		s.known[l.trie.Root()] = l.trie
	}
}

// sync answers with the parts of a difference.
func (s *server) sync(r wire.SyncRequest) ([]wire.SyncPart, error) {
	p, found := s.of(r.Head)
	l, listed := p.layer(r.Layer)
	if o, ordered := s.order(r.Layer, r.Target); ordered {
		l = o
	}
	if !found || !listed || l.trie.Root() != r.Target {
		return nil, fmt.Errorf("no such layer: %s at %s", r.Layer, r.Target)
	}
	if s.floods {
		s.asked.syncs++
		return flood(r), nil
	}
	base, known := s.known[r.Base]
	kind := wire.SyncDelta
	switch {
	case r.Base == catalog.Digest{}:
		kind, base = wire.SyncSnapshot, catalog.Trie{}
	case !known:
		s.asked.syncs++
		return []wire.SyncPart{{Kind: wire.SyncUnknownBase, Last: true}}, nil
	case s.snapshots, s.random.IntN(4) == 0 && r.Cursor != catalog.Digest{}, s.halved(base, l.trie):
		kind, base = wire.SyncSnapshot, catalog.Trie{}
	}
	if s.asked.syncs++; kind == wire.SyncSnapshot {
		s.asked.snapshots++
	}
	parts := []wire.SyncPart{{Kind: kind}}
	for c := range catalog.Difference(base, l.trie, r.Cursor) {
		if last := &parts[len(parts)-1]; len(last.Changes) == s.part {
			parts = append(parts, wire.SyncPart{Kind: kind})
		}
		last := &parts[len(parts)-1]
		last.Changes = append(last.Changes, wire.Change{Key: c.Key, Deleted: c.Deleted, Body: l.bodies[c.Digest]})
	}
	parts[len(parts)-1].Last = true
	if s.lying {
		s.spoil(parts)
	}
	if s.tamper != nil {
		s.tamper(parts)
	}
	return parts, nil
}

// floodBody is of each row that nobody has declared.
var floodBody = bytes.Repeat([]byte("x"), 1<<20)

// flood is the beginning of an answer that has no end: rows in order, each as a layer may have it.
func flood(r wire.SyncRequest) []wire.SyncPart {
	kind := wire.SyncDelta
	if r.Base == (catalog.Digest{}) {
		kind = wire.SyncSnapshot
	}
	var parts []wire.SyncPart
	for key := r.Cursor; len(parts) < 3; {
		for i := len(key) - 1; i >= 0; i-- {
			if key[i]++; key[i] != 0 {
				break
			}
		}
		parts = append(parts, wire.SyncPart{Kind: kind, Changes: []wire.Change{{Key: key, Body: floodBody}}})
	}
	return parts
}

// halved tells whether more than half of a layer differs.
func (s *server) halved(base, target catalog.Trie) bool {
	n := 0
	for range catalog.Difference(base, target, catalog.Digest{}) {
		n++
	}
	return n > target.Len()/2
}

// spoil changes one thing in an answer.
func (s *server) spoil(parts []wire.SyncPart) {
	p := &parts[s.random.IntN(len(parts))]
	if len(p.Changes) == 0 {
		p.Changes = []wire.Change{{Key: catalog.KeyOf("invented"), Body: []byte("invented")}}
		return
	}
	c := &p.Changes[s.random.IntN(len(p.Changes))]
	switch s.random.IntN(4) {
	case 0:
		c.Body, c.Deleted = []byte("forged"), false
	case 1:
		p.Changes = p.Changes[1:]
	case 2:
		c.Deleted, c.Body = true, nil
	case 3:
		p.Changes[0].Key[31]++
	}
}

// nodes answers by hash.
func (s *server) nodes(r wire.NodesRequest) (wire.NodesReply, error) {
	p, found := s.of(r.Head)
	reply := wire.NodesReply{Items: make([][]byte, len(r.Hashes))}
	if !found {
		return reply, nil
	}
	if r.Layer == wire.CatalogLayer {
		s.asked.lists++
		for i, h := range r.Hashes {
			if h == p.root {
				reply.Items[i] = p.list
			}
		}
		return reply, nil
	}
	s.asked.nodes++
	l, listed := p.layer(r.Layer)
	if !listed {
		return reply, fmt.Errorf("no such layer: %s", r.Layer)
	}
	layers := []layer{l}
	for _, o := range s.orders {
		if o.id == r.Layer && !s.whole {
			layers = append(layers, o)
		}
	}
	nodes := make([]*catalog.Nodes, len(layers))
	for i, l := range layers {
		nodes[i] = catalog.NewNodes(l.trie)
	}
	for i, h := range r.Hashes {
		for at, l := range layers {
			if data, found, err := nodes[at].Encoded(h); found && err == nil {
				reply.Items[i] = data
			} else if body, found := l.bodies[h]; found && s.reachable(l.trie, h) {
				reply.Items[i] = body
			}
		}
		if s.random.IntN(20) == 0 && i > 0 {
			reply.Items = reply.Items[:i] // it left out what did not fit
			break
		}
	}
	if s.lying && len(reply.Items) > 0 {
		reply.Items[s.random.IntN(len(reply.Items))] = []byte("forged")
	}
	return reply, nil
}

// order is a layer that a statement is about.
func (s *server) order(id string, root catalog.Digest) (layer, bool) {
	i := slices.IndexFunc(s.orders, func(l layer) bool { return l.id == id && l.trie.Root() == root })
	if i < 0 {
		return layer{}, false
	}
	return s.orders[i], true
}

func (s *server) reachable(t catalog.Trie, digest catalog.Digest) bool {
	for r := range t.From(catalog.Digest{}) {
		if r.Digest == digest {
			return true
		}
	}
	return false
}

// disk is what a host keeps, durably.
type disk struct {
	t      testing.TB
	kept   Kept
	lists  []catalog.Digest
	texts  map[catalog.Digest][]byte
	layers map[catalog.Digest]layer
	ruined map[catalog.Digest]layer // what is left of layers that were damaged
	fetch  *Fetch
	staged []wire.Change
	full   bool // nothing more can be stored

	cramped uint64 // there is no room for a state that has more; 0: there is

	refused int    // what was not stored
	most    uint64 // bytes of bodies that were ever staged at once
}

func newDisk(t testing.TB) *disk {
	return &disk{t: t, texts: map[catalog.Digest][]byte{}, layers: map[catalog.Digest]layer{}, ruined: map[catalog.Digest]layer{}}
}

func (d *disk) Lists() ([]catalog.Digest, error)         { return d.lists, nil }
func (d *disk) List(root catalog.Digest) ([]byte, error) { return d.texts[root], nil }
func (d *disk) Trie(r catalog.Digest) (catalog.Trie, bool, error) {
	l, ok := d.layers[r]
	return l.trie, ok, nil
}

func (d *disk) Remains(r catalog.Digest) (catalog.Trie, bool, error) {
	l, ok := d.ruined[r]
	return l.trie, ok, nil
}

func (d *disk) Outline(base catalog.Trie) (catalog.Trie, error) { return base.Outline(d.Staged()) }

func (d *disk) Staged() iter.Seq2[catalog.Change, error] {
	var changes []catalog.Change
	for _, c := range d.staged {
		change := catalog.Change{Key: c.Key, Deleted: c.Deleted}
		if !c.Deleted {
			change.Digest = sha256.Sum256(c.Body)
		}
		changes = append(changes, change)
	}
	return catalog.Changes(changes...)
}

// damage takes rows away from a layer, as a disk does; what is left is there under its own root.
func (d *disk) damage(root catalog.Digest, rows int) {
	l := d.layers[root]
	delete(d.layers, root)
	var lost []catalog.Change
	for r := range l.trie.From(catalog.Digest{}) {
		if len(lost) < rows {
			lost = append(lost, catalog.Change{Key: r.Key, Deleted: true})
		}
	}
	trie, err := l.trie.Apply(catalog.Changes(lost...))
	if err != nil {
		d.t.Fatal(err)
	}
	l.trie = trie
	d.ruined[root], d.layers[trie.Root()] = l, l
}

func (d *disk) Room(_ catalog.Digest, bytes uint64) error {
	if d.full || d.cramped > 0 && bytes > d.cramped {
		return errFull
	}
	return nil
}

var errFull = &reason.Error{Code: reason.DiskFull, Doing: "stage a layer"}

// do does an effect that stores something; ok is false for all others.
func (d *disk) do(e Effect) (answer Event, ok bool) {
	if d.full {
		switch e.(type) {
		case Accept, AcceptStatements, PutList, Begin, Append, Commit:
			d.refused++
			return Stored{Err: errFull}, true
		}
	}
	switch e := e.(type) {
	case Accept:
		d.accept(e.Mark, e.Signed)
	case Prolong:
		d.accept(e.Mark, e.Signed)
		return nil, true
	case AcceptStatements:
		d.statements(e.Statements)
	case RememberStatements:
		d.statements(e.Statements)
		return nil, true
	case Remember:
		if v := e.Verdict; of(&v, &d.kept.Mark) {
			d.kept.Verdict = v
		}
		return nil, true
	case Count:
		d.kept.Refused = e.Refused
		return nil, true
	case PutList:
		root := catalog.ListRoot(e.Encoded)
		d.texts[root] = e.Encoded
		d.lists = slices.Insert(slices.DeleteFunc(d.lists, func(x catalog.Digest) bool { return x == root }), 0, root)
	case Begin:
		return Stored{Staged: d.begin(e.Fetch)}, true
	case Append:
		d.staged = append(d.staged, e.Changes...)
		d.most = max(d.most, bytesOf(d.staged))
		return nil, true
	case Settle:
	case Drop:
		d.fetch, d.staged = nil, nil
		return nil, true
	case Commit:
		return Stored{Err: d.commit(e.Target)}, true
	default:
		return nil, false
	}
	return Stored{}, true
}

func (d *disk) accept(mark catalog.Mark, signed []byte) {
	old := d.kept.Mark
	if mark.Epoch < old.Epoch || mark.Epoch == old.Epoch && mark.Version < old.Version {
		d.t.Fatalf("the mark goes back from %d/%d to %d/%d", old.Epoch, old.Version, mark.Epoch, mark.Version)
	}
	d.kept.Mark, d.kept.Head = mark, signed
	if !of(&d.kept.Verdict, &mark) {
		d.kept.Verdict = wire.Verdict{}
	}
}

// statements keeps statements, none of which may go back.
func (d *disk) statements(list []Statement) {
	for i := range list {
		for _, have := range d.kept.Statements {
			if have.Layer == list[i].Layer && (list[i].Epoch < have.Epoch || list[i].Epoch == have.Epoch && list[i].Number < have.Number) {
				d.t.Fatalf("the statement about %s goes back from %d to %d", have.Layer, have.Number, list[i].Number)
			}
		}
	}
	if len(list) > StatementsMax {
		d.t.Fatalf("%d statements are kept", len(list))
	}
	d.kept.Statements = list
}

func (d *disk) begin(f Fetch) Staged {
	if d.fetch == nil || *d.fetch != f {
		d.fetch, d.staged = &f, nil
	}
	var staged Staged
	for _, c := range d.staged {
		staged.Count, staged.Last = staged.Count+1, c.Key
		staged.Bytes += uint64(len(c.Body))
	}
	return staged
}

func (d *disk) commit(target catalog.Trie) error {
	if d.fetch == nil || target.Root() != d.fetch.Target {
		d.t.Fatalf("a layer is put together for which no stage is open")
	}
	base, fetch, staged := d.layers[d.fetch.Base], *d.fetch, d.staged
	trie, err := base.trie.Apply(d.Staged())
	d.fetch, d.staged = nil, nil
	if err != nil || trie.Root() != fetch.Target {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "put a layer together", Cause: err}
	}
	l := layer{trie: trie, bodies: map[catalog.Digest][]byte{}}
	for i, c := range staged {
		if i > 0 && bytes.Compare(staged[i-1].Key[:], c.Key[:]) >= 0 {
			d.t.Fatalf("the stage is not in the order of its keys")
		}
		if !c.Deleted {
			l.bodies[sha256.Sum256(c.Body)] = c.Body
		}
	}
	for r := range trie.From(catalog.Digest{}) {
		if l.bodies[r.Digest] == nil {
			if l.bodies[r.Digest] = base.bodies[r.Digest]; l.bodies[r.Digest] == nil {
				return &reason.Error{Code: reason.StateCorrupt, Doing: "put a layer together"}
			}
		}
	}
	d.layers[fetch.Target] = l
	return nil
}
