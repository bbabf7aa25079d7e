package held

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// centre is a server that has the states of one host: everything that is asked for comes at once, and is counted.
type centre struct {
	t       *testing.T
	cluster trust.ClusterID
	heads   *trust.SigningKey
	chain   *trust.Chain
	now     time.Time

	version uint64
	list    []byte
	tries   map[catalog.Digest]catalog.Trie
	bodies  map[catalog.Digest][]byte

	syncs, bytes int // of answers
	activated    uint64
}

func newCentre(t *testing.T) *centre {
	c := &centre{t: t, cluster: trust.NewClusterID(), heads: trust.NewSigningKey(), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		tries: map[catalog.Digest]catalog.Trie{}, bodies: map[catalog.Digest][]byte{}}
	ca, err := trust.NewCA(c.cluster, c.now)
	must(t, err)
	c.chain, err = trust.NewChain(trust.Genesis{Cluster: c.cluster, CA: ca, Root: trust.NewSigningKey(), Heads: c.heads.Public()}, c.now, c.now)
	must(t, err)
	return c
}

// layer makes a layer of so many bodies of some 100 bytes, of which some are others.
func (c *centre) layer(count int, changed ...int) catalog.Trie {
	var rows []catalog.Row
	for i := range count {
		body := fmt.Appendf(nil, "body %d %s", i, strings.Repeat("x", 100))
		for _, n := range changed {
			if n == i {
				body = append(body, " changed"...)
			}
		}
		r := catalog.Row{Key: catalog.KeyOf(fmt.Sprint("claim", i)), Digest: sha256.Sum256(body)}
		rows = append(rows, r)
		c.bodies[r.Digest] = body
	}
	t := catalog.Build(rows)
	c.tries[t.Root()] = t
	return t
}

// publish makes a version of one layer, and returns its head.
func (c *centre) publish(layer catalog.Trie) []byte {
	c.t.Helper()
	list, err := catalog.NewList(catalog.Layer{Priority: 1, ID: "a", Root: layer.Root()})
	must(c.t, err)
	c.list, err = list.Encode()
	must(c.t, err)
	c.version++
	h := catalog.Head{Cluster: c.cluster, Node: "web-1", UID: "uid", Epoch: c.chain.Current().Epoch, Version: c.version,
		Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.ListRoot(c.list)}}, Bytes: 100 << 20,
		Issued: c.now.Unix(), Expires: c.now.Add(time.Hour).Unix(), MinProtocol: 1}
	signed, err := h.Sign(c.heads)
	must(c.t, err)
	b, err := signed.Encode()
	must(c.t, err)
	return b
}

// start is what a host does when it begins, with what it has.
func (c *centre) start(s *Store) *core.Machine {
	c.t.Helper()
	kept, err := s.Kept()
	must(c.t, err)
	m := core.New(core.Options{Node: catalog.Node{Cluster: c.cluster, Name: "web-1", UID: "uid"}, Chain: c.chain, Kept: kept, Held: s, Sources: 1,
		Random: rand.New(rand.NewPCG(1, 1))})
	c.feed(m, s, core.Began{})
	return m
}

func (c *centre) feed(m *core.Machine, s *Store, e core.Event) {
	c.t.Helper()
	for steps := 0; e != nil; steps++ {
		if steps > 1_000 {
			c.t.Fatal("it does not come to rest")
		}
		effects := m.Step(c.now, e)
		e = nil
		for _, effect := range effects {
			if e = c.do(s, effect); e != nil {
				break
			}
		}
	}
}

func (c *centre) do(s *Store, e core.Effect) core.Event {
	switch e := e.(type) {
	case core.Accept:
		return core.Stored{Err: s.Accept(e.Mark, e.Signed)}
	case core.PutList:
		return core.Stored{Err: s.PutList(e.Encoded)}
	case core.Begin:
		staged, err := s.Begin(e.Fetch)
		return core.Stored{Staged: staged, Err: err}
	case core.Append:
		must(c.t, s.Append(e.Changes))
	case core.Settle:
		return core.Stored{}
	case core.Drop:
		must(c.t, s.Drop())
	case core.Commit:
		return core.Stored{Err: s.Commit(e.Target)}
	case core.Activate:
		c.activated++
		return core.Judged{Verdict: wire.Verdict{Type: wire.Applied}}
	case core.Sync:
		c.syncs++
		return core.PartCame{ID: e.ID, Part: c.sync(e.Request)}
	case core.Nodes:
		reply := c.nodes(e.Request)
		for _, item := range reply.Items {
			c.bytes += len(item)
		}
		return core.NodesCame{ID: e.ID, Reply: reply}
	}
	return nil
}

func (c *centre) sync(r wire.SyncRequest) wire.SyncPart {
	base, known := c.tries[r.Base]
	part := wire.SyncPart{Kind: wire.SyncDelta, Last: true}
	switch {
	case r.Base == (catalog.Digest{}):
		part.Kind = wire.SyncSnapshot
	case !known:
		return wire.SyncPart{Kind: wire.SyncUnknownBase, Last: true}
	}
	for d := range catalog.Difference(base, c.tries[r.Target], r.Cursor) {
		part.Changes = append(part.Changes, wire.Change{Key: d.Key, Deleted: d.Deleted, Body: c.bodies[d.Digest]})
		c.bytes += len(d.Key) + len(c.bodies[d.Digest])
	}
	return part
}

func (c *centre) nodes(r wire.NodesRequest) wire.NodesReply {
	list, err := catalog.DecodeList(c.list)
	must(c.t, err)
	nodes := catalog.NewNodes(c.tries[list[0].Root])
	var reply wire.NodesReply
	for _, h := range r.Hashes {
		item, found, err := nodes.Encoded(h)
		must(c.t, err)
		if !found {
			if item = c.bodies[h]; h == catalog.ListRoot(c.list) {
				item = c.list
			}
		}
		reply.Items = append(reply.Items, item)
	}
	return reply
}

// flip changes a bit of the body of a claim in the file of a layer.
func flip(t *testing.T, dir string, layer catalog.Trie, body []byte) {
	t.Helper()
	p := filepath.Join(dir, layersName, layer.Root().String())
	b, err := os.ReadFile(p)
	must(t, err)
	at := bytes.Index(b, body)
	if at < 0 {
		t.Fatal("the body is not in that file")
	}
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{b[at+20] ^ 1}, int64(at+20))
	must(t, errors.Join(err, f.Close()))
}

// TestTransferCase17_FlippedBit: a bit that the disk has changed in a layer of many rows is found, and costs the branch that it is in.
func TestTransferCase17_FlippedBit(t *testing.T) {
	c := casetest.Start(t)
	const rows, lost = 20_000, 77
	body := fmt.Appendf(nil, "body %d %s", lost, strings.Repeat("x", 100))
	whole := func(t *testing.T, c *casetest.Case, s *Store, layer catalog.Trie, bodies map[catalog.Digest][]byte) {
		t.Helper()
		trie, found, err := s.Trie(layer.Root())
		c.NoError(err, "read the layer")
		if !c.Check(found, "the layer is not there") {
			return
		}
		wrong := 0
		for r, err := range trie.From(catalog.Digest{}) {
			c.NoError(err, "read a row")
			if got, err := s.Body(layer.Root(), r.Key); err != nil || !bytes.Equal(got, bodies[r.Digest]) {
				wrong++
			}
		}
		c.Equal(wrong, 0, "bodies that are not what they were")
		c.Equal(trie.Len(), layer.Len(), "rows")
	}
	for _, when := range []string{"at the start", "while it is in use", "within the hour"} {
		for _, where := range []string{"in its own file", "in the file that it builds upon"} {
			t.Run(when+" "+where, func(t *testing.T) {
				c := c.Sub(t)
				dir, centre := t.TempDir(), newCentre(t)
				s := open(t, dir)
				layer := centre.layer(rows)
				damaged := layer
				m := centre.start(s)
				centre.feed(m, s, core.HeadCame{Signed: centre.publish(layer)})
				if where != "in its own file" {
					layer = centre.layer(rows, 5)
					centre.feed(m, s, core.HeadCame{Signed: centre.publish(layer)})
				}
				c.Equal(centre.activated, centre.version, "states that were handed over")
				flip(t, dir, damaged, body)
				centre.bytes, centre.syncs = 0, 0
				switch when {
				case "at the start":
					c.NoError(s.Close(), "close")
					s = open(t, dir)
					centre.start(s)
				case "within the hour":
					good, err := s.Check(t.Context())
					c.Check(!good && err == nil, "the check finds nothing: %v", err)
					centre.feed(m, s, core.Reread{})
				default:
					_, err := s.Body(layer.Root(), catalog.KeyOf(fmt.Sprint("claim", lost)))
					c.Check(reason.Is(err, reason.StateCorrupt), "a damaged body is read: %v", err)
					centre.feed(m, s, core.Reread{})
				}
				c.Check(centre.bytes > 100 && centre.bytes <= 3_500, "%d bytes were fetched of a layer of %d", centre.bytes, rows*150)
				c.Equal(centre.syncs, 0, "differences and snapshots that were asked for")
				c.Equal(centre.activated, centre.version+1, "states that were handed over")
				c.Check(len(s.Troubles()) > 0, "nobody was told")
				good, err := s.Check(t.Context())
				c.Check(good && err == nil, "a check finds more: %v", err)
				whole(t, c, s, layer, centre.bodies)
				c.NoError(s.Close(), "close")
				s = open(t, dir)
				centre.bytes = 0
				centre.start(s)
				c.Equal(centre.bytes, 0, "bytes that were fetched after another start")
				c.Equal(len(s.Troubles()), 0, "damage that is told of after another start")
				whole(t, c, s, layer, centre.bodies)
			})
		}
	}
}
