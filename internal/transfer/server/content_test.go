package server

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/snapshots"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// parts reads the answer to a sync to its end. It fails when that is no last part, but for a nil error.
func (h *host) parts(r wire.SyncRequest) (parts []wire.SyncPart, whole bool) {
	h.rig.t.Helper()
	resp, err := h.post(h.rig.t.Context(), wire.PathSync, encode(h.rig.t, r))
	if err != nil {
		h.rig.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		h.rig.t.Fatalf("refused: %+v", problemOf(h.rig.t, resp))
	}
	for {
		var p wire.SyncPart
		switch err := wire.ReadFrame(resp.Body, &p); {
		case errors.Is(err, io.EOF):
			return parts, whole
		case err != nil:
			h.rig.t.Fatal(err)
		case whole:
			h.rig.t.Fatal("something comes after the last part")
		}
		parts = append(parts, p)
		whole = p.Last
	}
}

// take does to a trie what parts say, and checks their order and size.
func take(t *testing.T, base catalog.Trie, parts []wire.SyncPart, kind wire.SyncKind) catalog.Trie {
	t.Helper()
	var last catalog.Digest
	var changes []catalog.Change
	for _, p := range parts {
		if p.Kind != kind {
			t.Errorf("a part of kind %d, want %d", p.Kind, kind)
		}
		size := 0
		for _, c := range p.Changes {
			if bytes.Compare(last[:], c.Key[:]) >= 0 {
				t.Error("keys are not in order")
			}
			last = c.Key
			size += len(c.Body)
			change := catalog.Change{Key: c.Key, Deleted: c.Deleted}
			if !c.Deleted {
				change.Digest = sha256.Sum256(c.Body)
			}
			changes = append(changes, change)
		}
		if size > wire.PartBytesMax && len(p.Changes) > 1 {
			t.Errorf("a part of %d changes has %d bytes of bodies", len(p.Changes), size)
		}
	}
	got, err := base.Apply(catalog.Changes(changes...))
	if err != nil {
		t.Error(err)
	}
	return got
}

// TestSync: from nothing, from a root that is known, from one that is not, and from one that has little in common.
func TestSync(t *testing.T) {
	r := newRig(t, nil)
	id := r.add("web-1")
	const layer = "default/web"
	old, target := r.layer(layer, 1_000, 0, 2_000), r.layer(layer, 990, 7, 2_000)
	far := r.layer(layer, 1_000, 1_000, 2_000)
	none := r.layer("default/empty", 0, 0, 0)
	head := r.head(id, 5, listOf(t, catalog.Layer{Priority: 3, ID: layer, Root: target.Root()}, catalog.Layer{ID: "default/empty", Root: none.Root()}))
	h := r.as("web-1")
	for name, c := range map[string]struct {
		layer  string
		base   catalog.Digest
		have   catalog.Trie
		want   catalog.Trie
		kind   wire.SyncKind
		change int
	}{
		"nothing there": {layer, catalog.Digest{}, catalog.Trie{}, target, wire.SyncSnapshot, 990},
		"a known base":  {layer, old.Root(), old, target, wire.SyncDelta, 17},
		"the same":      {layer, target.Root(), target, target, wire.SyncDelta, 0},
		"another one":   {layer, far.Root(), catalog.Trie{}, target, wire.SyncSnapshot, 990},
		"unknown base":  {layer, catalog.Digest{1}, old, old, wire.SyncUnknownBase, 0},
		"empty":         {"default/empty", catalog.Digest{1}, catalog.Trie{}, none, wire.SyncSnapshot, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h.rig.t = t
			root := target.Root()
			if c.layer != layer {
				root = none.Root()
			}
			parts, whole := h.parts(wire.SyncRequest{Head: head, Layer: c.layer, Base: c.base, Target: root})
			got := take(t, c.have, parts, c.kind)
			n := 0
			for _, p := range parts {
				n += len(p.Changes)
			}
			if !whole || got.Root() != c.want.Root() || n != c.change {
				t.Errorf("%d parts with %d changes, want %d; root %s, want %s", len(parts), n, c.change, got.Root(), c.want.Root())
			}
		})
	}
}

// TestOwnWord: the head that the server gives the node now is known to be its own; the same of another node is not.
func TestOwnWord(t *testing.T) {
	r := newRig(t, nil)
	id := r.add("web-1")
	r.add("db-1")
	target := r.layer("l", 10, 0, 0)
	head := r.head(id, 5, listOf(t, catalog.Layer{ID: "l", Root: target.Root()}))
	r.change(func() { r.keys = nil }) // nothing can be verified
	ask := wire.SyncRequest{Head: head, Layer: "l", Target: target.Root()}
	for _, name := range []string{"web-1", "db-1"} {
		if status, p := r.as(name).call(wire.PathSync, ask, nil); p == nil || p.Code != "TK1012" {
			t.Errorf("%s, before: %d %+v", name, status, p)
		}
	}
	r.give("web-1", head)
	if parts, whole := r.as("web-1").parts(ask); !whole || len(parts) != 1 || len(parts[0].Changes) != 10 {
		t.Errorf("%+v", parts)
	}
	if status, p := r.as("db-1").call(wire.PathSync, ask, nil); p == nil || p.Code != "TK1012" {
		t.Errorf("of another node: %d %+v", status, p)
	}
}

// TestSyncResumes: what was cut off goes on at its cursor, and its parts are those of one way.
func TestSyncResumes(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Times.Send = time.Nanosecond }) // one part each time
	id := r.add("web-1")
	const layer = "default/web"
	old, target := r.layer(layer, 3_000, 0, 2_000), r.layer(layer, 3_000, 1_000, 2_000)
	head := r.head(id, 5, listOf(t, catalog.Layer{ID: layer, Root: target.Root()}))
	h := r.as("web-1")
	for _, base := range []catalog.Trie{{}, old} {
		ask := wire.SyncRequest{Head: head, Layer: layer, Target: target.Root()}
		kind := wire.SyncSnapshot
		if base.Len() > 0 {
			ask.Base, kind = base.Root(), wire.SyncDelta
		}
		for tries := 0; ; tries++ {
			parts, whole := h.parts(ask)
			base = take(t, base, parts, kind)
			if whole {
				if tries < 5 {
					t.Errorf("it took %d tries only", tries)
				}
				break
			}
			if len(parts) != 1 || tries > 100 {
				t.Fatalf("%d parts, try %d", len(parts), tries)
			}
			last := parts[0].Changes[len(parts[0].Changes)-1].Key
			ask.Cursor = after(last)
		}
		if base.Root() != target.Root() {
			t.Errorf("root %s, want %s", base.Root(), target.Root())
		}
	}
}

// keeping is where snapshots are kept in a test.
func keeping(t testing.TB) *snapshots.Store {
	t.Helper()
	s, err := snapshots.New(filepath.Join(t.TempDir(), "snapshots"), snapshots.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSecondHost: what one host without anything was sent, the next one gets without a body being read, wherever he is cut off; what differs
// from a base is not kept.
func TestSecondHost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots, o.Times.Send = keeping(t), time.Nanosecond }) // one part each time
	const layer = "default/web"
	old, target := r.layer(layer, 3_000, 0, 2_000), r.layer(layer, 3_000, 1_000, 2_000)
	var read atomic.Int64
	r.change(func() {
		l := r.layers[layer][target.Root()]
		body := l.Body
		l.Body = func(d catalog.Digest) ([]byte, bool) { read.Add(1); return body(d) }
		r.layers[layer][target.Root()] = l
	})
	for i, c := range []struct {
		base  catalog.Trie
		kind  wire.SyncKind
		reads bool
	}{{kind: wire.SyncSnapshot, reads: true}, {kind: wire.SyncSnapshot}, {base: old, kind: wire.SyncDelta, reads: true}, {base: old, kind: wire.SyncDelta, reads: true}} {
		name := fmt.Sprint("web-", i)
		head := r.head(r.add(name), 5, listOf(t, catalog.Layer{ID: layer, Root: target.Root()}))
		ask := wire.SyncRequest{Head: head, Layer: layer, Target: target.Root()}
		if c.base.Len() > 0 {
			ask.Base = c.base.Root()
		}
		h, before, got, tries := r.as(name), read.Load(), c.base, 1
		for ; ; tries++ {
			parts, whole := h.parts(ask)
			if got = take(t, got, parts, c.kind); whole {
				break
			}
			last := parts[0].Changes
			ask.Cursor = after(last[len(last)-1].Key)
		}
		if got.Root() != target.Root() || tries < 5 {
			t.Errorf("host %d has root %s after %d calls, want %s", i, got.Root(), tries, target.Root())
		}
		if n := read.Load() - before; (n > 0) != c.reads {
			t.Errorf("%d bodies were read for host %d", n, i)
		}
	}
}

// after is the key right after another.
func after(d catalog.Digest) catalog.Digest {
	for i := len(d) - 1; i >= 0; i-- {
		if d[i]++; d[i] != 0 {
			break
		}
	}
	return d
}

// TestLargestBody: one body of the greatest size goes through, as the only one of its part.
func TestLargestBody(t *testing.T) {
	r := newRig(t, nil)
	id := r.add("web-1")
	target := r.layer("l", 3, 0, 1<<20)
	head := r.head(id, 5, listOf(t, catalog.Layer{ID: "l", Root: target.Root()}))
	parts, whole := r.as("web-1").parts(wire.SyncRequest{Head: head, Layer: "l", Target: target.Root()})
	if got := take(t, catalog.Trie{}, parts, wire.SyncSnapshot); !whole || got.Root() != target.Root() || len(parts) != 3 {
		t.Errorf("%d parts, root %s, want %s", len(parts), got.Root(), target.Root())
	}
}

// TestNodes: a host that has nothing in common finds everything by hash, from the list on.
func TestNodes(t *testing.T) {
	r := newRig(t, nil)
	id := r.add("web-1")
	target := r.layer("l", 5_000, 0, 3_000)
	list := listOf(t, catalog.Layer{ID: "l", Root: target.Root()})
	head := r.head(id, 5, list)
	h := r.as("web-1")
	ask := func(layer string, hashes ...catalog.Digest) [][]byte {
		t.Helper()
		var reply wire.NodesReply
		if status, p := h.call(wire.PathNodes, wire.NodesRequest{Head: head, Layer: layer, Hashes: hashes}, &reply); p != nil {
			t.Fatalf("%d %+v", status, p)
		}
		if len(reply.Items) != len(hashes) {
			t.Fatalf("%d items for %d hashes", len(reply.Items), len(hashes))
		}
		return reply.Items
	}
	encoded, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	items := ask(wire.CatalogLayer, catalog.ListRoot(encoded), catalog.Digest{1})
	if !bytes.Equal(items[0], encoded) || items[1] != nil {
		t.Errorf("%q", items)
	}
	descent := catalog.NewDescent(target.Root(), catalog.Trie{}, 10_000)
	for wanted := descent.Wanted(wire.HashesMax); len(wanted) > 0; wanted = descent.Wanted(wire.HashesMax) {
		for _, item := range ask("l", wanted...) {
			if len(item) > 0 {
				if err := descent.Take(item); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if got, err := descent.Built(); err != nil || got.Root() != target.Root() {
		t.Fatalf("%v, %v", got.Root(), err)
	}
	// Bodies; one that is none of them is empty. What does not fit is left out.
	var digests []catalog.Digest
	for row := range target.From(catalog.Digest{}) {
		if digests = append(digests, row.Digest); len(digests) == wire.HashesMax-1 {
			break
		}
	}
	for i, item := range ask("l", append(digests, catalog.Digest{1})...) {
		if i < len(digests) && sha256.Sum256(item) != digests[i] || i == len(digests) && item != nil {
			t.Fatalf("item %d has %d bytes", i, len(item))
		}
	}
	large := r.layer("large", 10, 0, 1<<20)
	head = r.head(id, 6, listOf(t, catalog.Layer{ID: "large", Root: large.Root()}))
	digests = nil
	for row := range large.From(catalog.Digest{}) {
		digests = append(digests, row.Digest)
	}
	n := 0
	for _, item := range ask("large", digests...) {
		if item != nil {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d bodies of 1 MiB were sent at once", n)
	}
}

// refusal is what a node must not get: what is asked for, the answer, and whether that is in the audit log.
type refusal struct {
	who     string
	path    string
	message any
	status  int
	code    string
	audited bool
}

// TestForeignContent is scenario 8: a node asks for what belongs to another node, or to nobody.
func TestForeignContent(t *testing.T) {
	r := newRig(t, nil)
	me, other := r.add("web-1"), r.add("db-1")
	mine, theirs := r.layer("mine", 100, 0, 0), r.layer("theirs", 100, 1, 0)
	newer := r.layer("mine", 100, 2, 0)
	myList, theirList := listOf(t, catalog.Layer{ID: "mine", Root: mine.Root()}), listOf(t, catalog.Layer{ID: "theirs", Root: theirs.Root()})
	myHead, theirHead := r.head(me, 5, myList), r.head(other, 5, theirList)
	forged := r.sign(catalog.Head{Node: me.Name, UID: me.UID, Version: 6}, theirList, trust.NewSigningKey())
	elsewhere := r.sign(catalog.Head{Cluster: trust.NewClusterID(), Node: me.Name, UID: me.UID, Version: 6}, theirList, r.key)
	earlier := r.sign(catalog.Head{Node: me.Name, UID: "uid-of-a-node-before", Version: 6}, theirList, r.key)
	tampered := slices.Clone(myHead)
	tampered[len(tampered)-1] ^= 1
	lost := r.head(me, 7, listOf(t, catalog.Layer{ID: "lost", Root: catalog.Digest{1}}))
	lostList := r.head(me, 8, listOf(t, catalog.Layer{ID: "lost", Root: catalog.Digest{2}}))
	r.change(func() {
		maps.DeleteFunc(r.lists, func(_ catalog.Digest, data []byte) bool {
			l, err := catalog.DecodeList(data)
			return err == nil && l[0].Root == (catalog.Digest{2})
		})
	})
	var body catalog.Digest
	for row := range theirs.From(catalog.Digest{}) {
		if d, has, _ := mine.Get(row.Key); !has || d != row.Digest {
			body = row.Digest
			break
		}
	}
	sync := func(head []byte, layer string, target catalog.Digest) wire.SyncRequest {
		return wire.SyncRequest{Head: head, Layer: layer, Target: target}
	}
	nodes := func(head []byte, layer string, hash catalog.Digest) wire.NodesRequest {
		return wire.NodesRequest{Head: head, Layer: layer, Hashes: []catalog.Digest{hash}}
	}
	hosts := map[string]*host{"web-1": r.as("web-1"), "db-1": r.as("db-1")}
	for name, c := range map[string]refusal{
		"the head of another node":          {"web-1", wire.PathSync, sync(theirHead, "theirs", theirs.Root()), 403, "TK1012", true},
		"the same, by hash":                 {"web-1", wire.PathNodes, nodes(theirHead, "theirs", theirs.Root()), 403, "TK1012", true},
		"of another key":                    {"web-1", wire.PathSync, sync(forged, "theirs", theirs.Root()), 403, "TK1012", true},
		"of another cluster":                {"web-1", wire.PathSync, sync(elsewhere, "theirs", theirs.Root()), 403, "TK1012", true},
		"of a node with this name before":   {"web-1", wire.PathSync, sync(earlier, "theirs", theirs.Root()), 403, "TK1012", true},
		"tampered with":                     {"web-1", wire.PathSync, sync(tampered, "mine", mine.Root()), 403, "TK1012", true},
		"no head":                           {"web-1", wire.PathSync, sync(nil, "mine", mine.Root()), 400, "TK1040", true},
		"a layer of another node":           {"web-1", wire.PathSync, sync(myHead, "theirs", theirs.Root()), 403, "TK1041", true},
		"the same, by hash only":            {"web-1", wire.PathNodes, nodes(myHead, "theirs", theirs.Root()), 403, "TK1041", true},
		"its root under the own layer":      {"web-1", wire.PathSync, sync(myHead, "mine", theirs.Root()), 403, "TK1041", true},
		"a root that is not assigned":       {"web-1", wire.PathSync, sync(myHead, "mine", newer.Root()), 403, "TK1041", true},
		"a root by hash":                    {"web-1", wire.PathNodes, nodes(myHead, "mine", theirs.Root()), 403, "TK1041", true},
		"a body of another node":            {"web-1", wire.PathNodes, nodes(myHead, "mine", body), 403, "TK1041", true},
		"a list of another node":            {"web-1", wire.PathNodes, nodes(myHead, wire.CatalogLayer, mustRoot(t, theirList)), 403, "TK1041", true},
		"nothing":                           {"web-1", wire.PathNodes, wire.NodesRequest{Head: myHead, Layer: "mine"}, 400, "TK1040", true},
		"too much":                          {"web-1", wire.PathNodes, wire.NodesRequest{Head: myHead, Layer: "mine", Hashes: make([]catalog.Digest, wire.HashesMax+1)}, 400, "TK1040", true},
		"a layer that is not kept":          {"web-1", wire.PathSync, sync(lost, "lost", catalog.Digest{1}), 410, "TK1042", false},
		"the same, by hash of its root":     {"web-1", wire.PathNodes, nodes(lost, "lost", catalog.Digest{1}), 410, "TK1042", false},
		"a catalog that is not kept":        {"web-1", wire.PathSync, sync(lostList, "lost", catalog.Digest{2}), 410, "TK1042", false},
		"another one's head, the other way": {"db-1", wire.PathSync, sync(myHead, "mine", mine.Root()), 403, "TK1012", true},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, hosts[c.who]) })
	}
}

func mustRoot(t *testing.T, l catalog.List) catalog.Digest {
	t.Helper()
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return catalog.ListRoot(data)
}

func (c *refusal) check(t *testing.T, h *host) {
	t.Helper()
	r := h.rig
	before := len(r.refusals)
	status, p := h.call(c.path, c.message, nil)
	if p == nil || status != c.status || p.Code != c.code || p.Message == "" {
		t.Fatalf("%d %+v, want %d %s", status, p, c.status, c.code)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.refusals[before:]
	if c.audited != (len(told) == 1) {
		t.Fatalf("the audit log has %+v", told)
	}
	if c.audited && (told[0].Who.Name != c.who || told[0].Call != c.path || told[0].Code.String() != c.code || told[0].Status != c.status || !told[0].From.IsLoopback()) {
		t.Errorf("the audit log has %+v", told[0])
	}
}

// TestTransferCase19_BaseIsUnknown: a server that does not know the root that a host has, since it has just started, says so; what the
// host then finds by hash is only what it does not have.
func TestTransferCase19_BaseIsUnknown(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t, nil)
	id := r.add("web-1")
	old, target := r.layer("l", 2_000, 0, 0), r.layer("l", 2_000, 1, 0)
	head := r.head(id, 5, listOf(t, catalog.Layer{ID: "l", Root: target.Root()}))
	r.change(func() { delete(r.layers["l"], old.Root()) })
	h := r.as("web-1")
	parts, whole := h.parts(wire.SyncRequest{Head: head, Layer: "l", Base: old.Root(), Target: target.Root()})
	c.Equal(parts, []wire.SyncPart{{Kind: wire.SyncUnknownBase, Last: true}}, "the answer")
	c.Check(whole, "the answer has no end")
	descent, asked := catalog.NewDescent(target.Root(), old, 10_000), 0
	for wanted := descent.Wanted(wire.HashesMax); len(wanted) > 0; wanted = descent.Wanted(wire.HashesMax) {
		asked += len(wanted)
		var reply wire.NodesReply
		_, p := h.call(wire.PathNodes, wire.NodesRequest{Head: head, Layer: "l", Hashes: wanted}, &reply)
		c.Check(p == nil, "refused: %+v", p)
		for _, item := range reply.Items {
			c.NoError(descent.Take(item), "take a node")
		}
	}
	got, err := descent.Built()
	c.NoError(err, "build the trie")
	c.Equal(got.Root(), target.Root(), "root")
	c.Check(asked <= 4, "%d nodes were asked for, of one change in 2,000", asked)
}

// TestTransferCase41_SnapshotsStarveNobody: snapshots have their places, and deltas theirs; who waits for too long is told to come again.
func TestTransferCase41_SnapshotsStarveNobody(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t, func(o *Options) {
		o.Limits.Snapshots, o.Limits.Deltas = 1, 1
		o.Times.Turn = 20 * time.Millisecond
	})
	id := r.add("web-1")
	old, target := r.layer("l", 100, 0, 0), r.layer("l", 100, 1, 0)
	head := r.head(id, 5, listOf(t, catalog.Layer{ID: "l", Root: target.Root()}))
	h := r.as("web-1")
	leave, err := r.server.budgets.snapshots.Enter(t.Context(), "web-2", hostPlaces, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	status, p := h.call(wire.PathSync, wire.SyncRequest{Head: head, Layer: "l", Target: target.Root()}, nil)
	c.Check(status == http.StatusServiceUnavailable && p.Code == reason.TransferBusy.String() && p.RetryAfter >= 20, "without a place: %d %+v", status, p)
	c.Equal(len(r.refusals), 0, "lines in the audit log")
	parts, whole := h.parts(wire.SyncRequest{Head: head, Layer: "l", Base: old.Root(), Target: target.Root()})
	c.Check(whole && len(parts[0].Changes) == 1, "a small change does not come through: %+v", parts)
	leave()
	_, whole = h.parts(wire.SyncRequest{Head: head, Layer: "l", Target: target.Root()})
	c.Check(whole, "with a place a snapshot does not come through")
}

// TestOneHostTakesNoPlacesFromOthers: a host that asks for much at once, and does not read it, keeps nobody else from what is his.
func TestOneHostTakesNoPlacesFromOthers(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Limits.Snapshots, o.Limits.NodeConnections = hostPlaces+1, 10
		o.Times.Turn = 20 * time.Millisecond
	})
	greedy, other := r.add("greedy"), r.add("other")
	target := r.layer("l", 100, 0, 64<<10)
	list := listOf(t, catalog.Layer{ID: "l", Root: target.Root()})
	ask := encode(t, wire.SyncRequest{Head: r.head(greedy, 5, list), Layer: "l", Target: target.Root()})
	refused := 0
	for range hostPlaces + 3 {
		resp, err := r.as("greedy").post(t.Context(), wire.PathSync, ask)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() // of what it says nothing is read until then
		if resp.StatusCode == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d of %d calls were refused, want 3", refused, hostPlaces+3)
	}
	if _, whole := r.as("other").parts(wire.SyncRequest{Head: r.head(other, 5, list), Layer: "l", Target: target.Root()}); !whole {
		t.Error("another host gets nothing meanwhile")
	}
	// The last byte comes before the place is given back.
	places := r.server.budgets.snapshots
	boots.Eventually(t, time.Minute, "no place is taken but those of the host that has something open", func() (string, bool) {
		return fmt.Sprint(places.Taken()), places.Taken() <= hostPlaces
	})
}
