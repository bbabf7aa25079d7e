package core

import (
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// FuzzMachine sends a host that waits for a layer, or has one, anything at all. It may refuse it, and nothing else.
func FuzzMachine(f *testing.F) {
	part, err := wire.Encode(wire.SyncPart{Kind: wire.SyncDelta, Last: true, Changes: []wire.Change{{Key: catalog.KeyOf("claim1"), Body: []byte("x")}}})
	if err != nil {
		f.Fatal(err)
	}
	reply, err := wire.Encode(wire.NodesReply{Items: [][]byte{{1, 0, 3}, {}, {0}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(part, uint8(0))
	f.Add(reply, uint8(1))
	f.Add(newServer(f, nil).sign(catalog.Head{
		Cluster: theAuthority().cluster, Node: "web-2", UID: "uid-1", Epoch: 1, Version: 9,
		Roots: []catalog.FormatRoot{{Format: catalog.FormatV1}}, Issued: 1, Expires: 2,
	}), uint8(2))
	statement := catalog.Statement{Cluster: theAuthority().cluster, Layer: web, Epoch: 1, Number: 1, Issued: 1, Expires: 1 << 40}
	f.Add(signedStatement(f, statement, theAuthority().operator), uint8(3))
	f.Add(signedStatement(f, statement, theAuthority().heads), uint8(4))
	f.Fuzz(func(t *testing.T, data []byte, way uint8) {
		w := newWorld(t, 1)
		w.server.publish(filled(web, 100, "first"))
		w.boot()
		w.tellNewest()
		w.server.publish(w.layer().with("claim1", "changed"))
		w.feed(HeadCame{Signed: w.server.head(w.server.newest(), w.now)})
		if way&1 != 0 { // by descent
			w.server.forget()
		}
		for range way % 8 {
			w.pass(30 * time.Millisecond)
		}
		w.feed(HeadCame{Signed: data})
		w.feed(StatementCame{Signed: data})
		id := w.open
		w.open = 0 // it is answered, in whatever way
		if part := (wire.SyncPart{}); w.syncs && wire.Decode(data, &part) == nil {
			w.feed(PartCame{ID: id, Part: part})
		}
		if reply := (wire.NodesReply{}); !w.syncs && wire.Decode(data, &reply) == nil {
			w.feed(NodesCame{ID: id, Reply: reply})
		}
		if w.open == 0 {
			w.feed(Failed{ID: id})
		}
		w.pass(10 * time.Minute)
		w.tellNewest()
		if w.active.Version != 2 {
			t.Errorf("the host has version %d", w.active.Version)
		}
	})
}
