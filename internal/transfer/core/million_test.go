package core

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const million = 1_000_000

// vast is a million rows that are computed where they are read. One of them may be gone.
type vast struct {
	gone int
	read int // leaves
}

// spread is how far keys lie apart: as evenly as hashes do.
const spread = ^uint64(0) / million

func vastRow(i int) catalog.Row {
	r := catalog.Row{Digest: catalog.Digest{1}}
	binary.BigEndian.PutUint64(r.Key[:], uint64(i)*spread)
	return r
}

func (v *vast) Leaf(path catalog.Digest, depth int) ([]catalog.Row, error) {
	v.read++
	first := binary.BigEndian.Uint64(path[:])
	var rows []catalog.Row
	for i := int((first + spread - 1) / spread); i < million; i++ {
		r := vastRow(i)
		if binary.BigEndian.Uint64(r.Key[:])>>(64-4*depth) != first>>(64-4*depth) {
			break
		}
		if i != v.gone {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (v *vast) Damaged(error) {}

func (v *vast) trie() (catalog.Trie, error) {
	var b catalog.Builder
	for i := range million {
		if i == v.gone {
			continue
		}
		if err := b.Add(vastRow(i)); err != nil {
			return catalog.Trie{}, err
		}
	}
	return b.Trie(v), nil
}

// shelf holds what a host has that begins with a layer of a million rows.
type shelf struct {
	lists  []catalog.Digest
	texts  map[catalog.Digest][]byte
	tries  map[catalog.Digest]catalog.Trie
	fetch  Fetch
	staged []catalog.Change
	bytes  uint64
}

func (s *shelf) Lists() ([]catalog.Digest, error)         { return s.lists, nil }
func (s *shelf) List(root catalog.Digest) ([]byte, error) { return s.texts[root], nil }
func (s *shelf) Room(catalog.Digest, uint64) error        { return nil }
func (s *shelf) Staged() iter.Seq2[catalog.Change, error] { return catalog.Changes(s.staged...) }
func (s *shelf) Outline(base catalog.Trie) (catalog.Trie, error) {
	return base.Outline(s.Staged())
}
func (s *shelf) Trie(root catalog.Digest) (catalog.Trie, bool, error) {
	t, found := s.tries[root]
	return t, found, nil
}
func (s *shelf) Remains(catalog.Digest) (catalog.Trie, bool, error) {
	return catalog.Trie{}, false, nil
}

// do does an effect that stores something.
func (s *shelf) do(e Effect) Event {
	switch e := e.(type) {
	case PutList:
		root := catalog.ListRoot(e.Encoded)
		s.texts[root], s.lists = e.Encoded, append([]catalog.Digest{root}, s.lists...)
	case Begin:
		s.fetch, s.staged = e.Fetch, nil
	case Append:
		for _, c := range e.Changes {
			change := catalog.Change{Key: c.Key, Deleted: c.Deleted}
			if !c.Deleted {
				change.Digest = sha256.Sum256(c.Body)
			}
			s.staged, s.bytes = append(s.staged, change), s.bytes+uint64(len(c.Body))
		}
		return nil
	case Commit:
		s.tries[e.Target.Root()] = e.Target
	case Accept, Settle:
	case Activate:
		return Judged{Verdict: wire.Verdict{Type: wire.Applied}}
	default:
		return nil
	}
	return Stored{}
}

// TestTransferCase12_DeleteOneOfAMillion: one row less of a million costs a few hundred bytes, and a few leaves at either end.
func TestTransferCase12_DeleteOneOfAMillion(t *testing.T) {
	c := casetest.Start(t)
	before, after := &vast{gone: -1}, &vast{gone: 314_159}
	base, err := before.trie()
	c.NoError(err, "build the layer")
	target, err := after.trie()
	c.NoError(err, "build the layer without a row")
	w := newWorld(t, 1) // for its authority
	texts := map[catalog.Digest][]byte{}
	var heads [][]byte
	for i, trie := range []catalog.Trie{base, target} {
		list, err := catalog.NewList(catalog.Layer{Priority: 1, ID: web, Root: trie.Root()})
		c.NoError(err, "make a list")
		encoded, err := list.Encode()
		c.NoError(err, "encode a list")
		p := published{version: uint64(i + 1), root: catalog.ListRoot(encoded)}
		texts[p.root] = encoded
		heads = append(heads, w.server.head(&p, w.now))
	}
	held := &shelf{texts: map[catalog.Digest][]byte{}, tries: map[catalog.Digest]catalog.Trie{base.Root(): base}}
	m := New(Options{Node: w.server.by.node(), Chain: w.server.by.chain, Held: held, Sources: 1, Random: rand.New(rand.NewPCG(1, 1))})
	up, down, read := 0, 0, 0
	serve := func(e Effect) Event {
		switch e := e.(type) {
		case Nodes: // the list alone
			c.Equal(e.Request.Layer, wire.CatalogLayer, "what is asked for by hash")
			return NodesCame{ID: e.ID, Reply: wire.NodesReply{Items: [][]byte{texts[e.Request.Hashes[0]]}}}
		case Sync:
			c.Equal(e.Request.Base, base.Root(), "the base")
			request, err := wire.Encode(e.Request)
			c.NoError(err, "encode the request")
			up += len(request)
			before.read, after.read = 0, 0
			part := wire.SyncPart{Kind: wire.SyncDelta, Last: true}
			for change, err := range catalog.Difference(base, target, e.Request.Cursor) {
				c.NoError(err, "compare the layers")
				part.Changes = append(part.Changes, wire.Change{Key: change.Key, Deleted: change.Deleted})
			}
			read = before.read + after.read
			before.read, after.read = 0, 0
			var b bytes.Buffer
			c.NoError(wire.WriteFrame(&b, part), "write the answer")
			down += b.Len()
			return PartCame{ID: e.ID, Part: part}
		}
		return held.do(e)
	}
	for _, head := range heads {
		for e := Event(HeadCame{Signed: head}); e != nil; {
			effects := m.Step(w.now, e)
			e = nil
			for _, effect := range effects {
				if e = serve(effect); e != nil {
					break
				}
			}
		}
		w.now = w.now.Add(time.Minute)
	}
	c.Equal(m.Status().Have.Version, uint64(2), "the version that is accepted")
	c.Check(!m.Status().Open, "the host stands at %+v", m.Status())
	c.Equal(held.tries[target.Root()].Len(), million-1, "rows of the layer that the host has")
	c.Check(down > 0 && down <= 400, "%d bytes down", down)
	c.Check(down+up <= 1<<10, "%d bytes down, %d up", down, up)
	c.Check(read <= 2, "the server read %d leaves", read)
	c.Check(before.read <= 1 && after.read == 0, "the host read %d leaves", before.read+after.read)
}

// TestMuchDiffersByHash: a layer that has little in common with what is held comes as a snapshot, however the host has begun.
func TestMuchDiffersByHash(t *testing.T) {
	w := calm(t, 20)
	w.server.part = 5_000
	w.server.publish(filled(web, descentRowsMax+10_000, "many"))
	w.server.forget() // so that the host begins by hash
	before := w.server.asked
	w.tellNewest()
	w.pass(time.Minute)
	if w.active.Version != 2 {
		t.Fatalf("the host has version %d: %+v", w.active.Version, w.machine.Status())
	}
	if n := w.server.asked.snapshots - before.snapshots; n != 1 || w.machine.Status().Refused.Content > 0 {
		t.Errorf("%d snapshots, and it has refused %+v", n, w.machine.Status().Refused)
	}
	if n := w.server.asked.nodes - before.nodes; n == 0 || n > 2*descentRowsMax/wire.HashesMax {
		t.Errorf("%d requests by hash", n)
	}
	// The other way round: nearly all that is held goes.
	w.server.publish(filled(web, 20, "few"))
	w.server.forget()
	w.tellNewest()
	w.pass(time.Minute)
	if w.active.Version != 3 {
		t.Errorf("the host has version %d: %+v", w.active.Version, w.machine.Status())
	}
}

// TestRemains: of a layer that was damaged only what is missing is fetched, by hash; and so is it of one whose base was.
func TestRemains(t *testing.T) {
	for _, newer := range []bool{false, true} {
		w := calm(t, 2_000)
		root := w.layer().trie.Root()
		w.disk.damage(root, 1)
		before := w.server.asked
		if newer { // was accepted, and not fetched, before the host was started again
			p := w.server.publish(w.layer().with("claim3", "changed"))
			w.disk.accept(catalog.Mark{Epoch: 1, Version: p.version, Root: p.root, Issued: w.now.Unix(), Expires: w.now.Add(time.Hour).Unix()}, w.server.head(p, w.now))
			w.boot()
		} else {
			w.feed(Reread{})
		}
		w.pass(time.Minute)
		if w.active.Version != w.server.newest().version || w.machine.Status().Open {
			t.Fatalf("the host has version %d: %+v", w.active.Version, w.machine.Status())
		}
		if n := w.server.asked.syncs - before.syncs; n > 0 {
			t.Errorf("%d differences and snapshots", n)
		}
		if len(w.disk.staged) > 0 || w.disk.layers[w.layer().trie.Root()].trie.Len() != 2_000 {
			t.Error("the layer is not whole")
		}
	}
}

// TestUnreadableBase: what cannot be read for now is tried again, and what is damaged is fetched in another way; nobody is blamed.
func TestUnreadableBase(t *testing.T) {
	for _, code := range []reason.Code{reason.InputOutput, reason.StateCorrupt} {
		w := calm(t, 500)
		first := w.layer()
		failing := &failingRows{err: &reason.Error{Code: code, Doing: "read a leaf"}}
		w.machine.tries[first.trie.Root()] = first.trie.Lean(failing)
		w.server.publish(first.with("claim3", "changed"))
		w.tellNewest()
		w.pass(time.Minute)
		delete(w.machine.tries, first.trie.Root())
		w.pass(5 * time.Minute)
		if s := w.machine.Status(); w.active.Version != 2 || s.Refused.Content > 0 || failing.asked == 0 {
			t.Errorf("%s: the host has version %d: %+v", fmt.Sprint(code), w.active.Version, s)
		}
	}
}

type failingRows struct {
	err   error
	asked int
}

func (f *failingRows) Leaf(catalog.Digest, int) ([]catalog.Row, error) {
	f.asked++
	return nil, f.err
}

func (f *failingRows) Damaged(error) {}
