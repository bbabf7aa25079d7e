package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

func TestTransferCase3_HeadDoubledAfterwards(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	before, head := w.requests, w.server.head(w.server.newest(), w.now)
	for i := range 100 {
		if i == 50 {
			w.boot()
		}
		w.feed(HeadCame{Signed: head})
		w.pass(time.Second)
	}
	w.is(c, 2)
	c.Equal(w.requests, before, "requests for what is held, over a restart")
	c.Equal(w.machine.Status().Refused, wire.Refused{}, "what was refused")
	c.Equal(w.alarms, 0, "alarms")
}

// TestTransferCase7_OneOpLessOrMore: whatever a relay makes of a difference, the host has in the end what was signed, from somebody else, and
// asks that relay nothing for ten minutes.
func TestTransferCase7_OneOpLessOrMore(t *testing.T) {
	c := casetest.Start(t)
	last := catalog.Digest{}
	for i := range last {
		last[i] = 0xff
	}
	for name, change := range map[string]func(p *wire.SyncPart){
		"removed":      func(p *wire.SyncPart) { p.Changes = p.Changes[1:] },
		"added":        func(p *wire.SyncPart) { p.Changes = append(p.Changes, wire.Change{Key: last, Body: []byte("planted")}) },
		"a deletion":   func(p *wire.SyncPart) { p.Changes[0].Deleted, p.Changes[0].Body = true, nil },
		"another body": func(p *wire.SyncPart) { p.Changes[0].Body = []byte("planted") },
	} {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			w := newWorld(t, 1)
			w.server.publish(filled(web, 100, "first"))
			w.liar = newServer(t, w.random)
			w.boot()
			w.tellNewest()
			w.is(c, 1)
			w.machine.sources.current = 1
			w.liar.tamper = func(parts []wire.SyncPart) { change(&parts[len(parts)-1]) }
			w.server.publish(w.layer().with("claim3", "three").with("claim4", "four"))
			w.liarKnows()
			asked := w.liar.asked.syncs
			w.tellNewest()
			w.is(c, 2)
			c.Equal(w.machine.sources.current, 0, "the source that is asked now")
			c.Check(w.machine.sources.blamed[1].After(w.now.Add(9*time.Minute)), "the relay is blamed until %s, and it is %s", w.machine.sources.blamed[1], w.now)
			c.Equal(w.machine.Status().Refused.Content, uint64(1), "what was refused")
			c.Equal(w.liar.asked.syncs-asked, 1, "requests to the relay")
			w.server.publish(w.layer().with("claim3", "five"))
			w.liarKnows()
			w.tellNewest()
			w.is(c, 3)
			c.Equal(w.liar.asked.syncs-asked, 1, "requests to the relay within ten minutes")
			c.Equal(w.activated, []uint64{1, 2, 3}, "versions that were handed over")
		})
	}
}

// TestLieFromElsewhere: what a place or another host has sent is not held against the server that was to be asked.
func TestLieFromElsewhere(t *testing.T) {
	w := newWorld(t, 1)
	w.server.publish(filled(web, 100, "first"))
	w.liar = newServer(t, w.random)
	w.boot()
	w.tellNewest()
	w.machine.sources.current, w.aside = 1, true
	w.liar.tamper = func(parts []wire.SyncPart) {
		parts[len(parts)-1].Changes[0].Body, w.liar.tamper = []byte("planted"), nil
	}
	w.server.publish(w.layer().with("claim3", "three"))
	w.liarKnows()
	w.tellNewest()
	if got := w.activated; !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("versions %v were handed over", got)
	}
	if w.machine.sources.current != 1 || w.machine.sources.blamed[1].After(w.now) || w.machine.Status().Refused.Content != 1 {
		t.Errorf("source %d is asked now, 1 is blamed until %s, %d things were refused", w.machine.sources.current, w.machine.sources.blamed[1], w.machine.Status().Refused.Content)
	}
}

// TestTransferCase10_AtEachMoment: at whatever moment of a fetch another version comes, each state that is handed over is one that was
// signed, complete (activate looks at each layer and body), and the last is the newest.
func TestTransferCase10_AtEachMoment(t *testing.T) {
	c := casetest.Start(t)
	const other = "NodeConfig/x/other"
	ways := map[string]int{}
	for moment := time.Duration(0); moment <= 600*time.Millisecond; moment += 20 * time.Millisecond {
		w := calm(t, 50)
		two := w.server.publish(w.layer().with("claim1", "two"), filled(other, 50, "two"))
		w.feed(HeadCame{Signed: w.server.head(two, w.now)})
		w.pass(moment)
		three := w.server.publish(w.layer().with("claim1", "three"), filled(other, 50, "three"))
		w.feed(HeadCame{Signed: w.server.head(three, w.now)})
		w.pass(time.Minute)
		w.is(c, 3)
		c.Check(slices.IsSorted(w.activated) && len(w.activated) <= 3, "after %s: handed over were %v", moment, w.activated)
		ways[fmt.Sprint(w.activated)]++
	}
	c.Check(ways["[1 3]"] > 0 && ways["[1 2 3]"] > 0, "it is always the same: %v", ways)
}

// TestTransferCase16_FullWhileStaging: the disk is full in the middle of a layer. What was staged before is used when there is room again.
func TestTransferCase16_FullWhileStaging(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer(), filled("NodeConfig/x/other", 200, "new"))
	w.cuts = []int{10}
	w.spoiled = func(parts []wire.SyncPart) []wire.SyncPart {
		w.disk.full = len(w.cursors) > 1 // the first answer breaks, the second one finds no room
		return parts
	}
	w.cursors = nil
	w.tellNewest()
	w.pass(time.Minute)
	w.is(c, 1)
	s := w.machine.Status()
	c.Check(s.Verdict.Type == wire.Rejected && s.Verdict.Code == reason.DiskFull && s.Verdict.Version == 2, "it reports %+v", s.Verdict)
	c.Check(s.Stuck && s.Open, "this is no word of the host on the state, which is tried again: %+v", s)
	c.Equal(w.disk.kept.Verdict.Type, wire.Pending, "the verdict that is remembered")
	before := w.requests
	w.pass(10 * time.Minute)
	c.Check(w.requests-before < 30, "%d requests in ten minutes", w.requests-before)
	w.spoiled, w.disk.full = nil, false
	w.cursors = nil
	w.pass(2 * time.Minute)
	w.is(c, 2)
	c.Check(len(w.cursors) > 0 && w.cursors[0] != catalog.Digest{}, "it begins anew: %v", w.cursors)
}

// TestTransferCase18_SnapshotIsResumed: a store that is gone costs one snapshot, in as many pieces as it may take, when the server has
// room for it.
func TestTransferCase18_SnapshotIsResumed(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 100)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	kept := w.disk.kept
	w.disk = newDisk(t)
	w.disk.kept = kept // it is stored elsewhere
	w.syncs = false
	w.boot()
	for !w.syncs {
		w.pass(time.Millisecond)
	}
	w.feed(Failed{ID: w.open, Err: &reason.Error{Code: reason.TransferBusy, Doing: "sync"}, After: 40 * time.Second})
	w.open = 0
	before := w.requests
	w.pass(39 * time.Second)
	c.Equal(w.requests, before, "requests before the time that the server has said")
	w.cursors, w.cuts = nil, []int{4, 3} // of 13 parts
	w.pass(2 * time.Minute)
	c.Equal(len(w.disk.layers), 1, "layers that were fetched anew")
	c.Equal(len(w.cursors), 3, "requests for the snapshot")
	for i := range w.cursors {
		c.Check((w.cursors[i] == catalog.Digest{}) == (i == 0), "it is not resumed: %v", w.cursors)
	}
	w.is(c, 2)
	c.Equal(w.activated, []uint64{1, 2, 2}, "versions that were handed over")
}

// TestTransferCase18_MarkIsLostToo: a host that knows nothing any more takes no head that has expired for the newest.
func TestTransferCase18_MarkIsLostToo(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 100)
	old := w.server.head(&w.server.history[0], w.now.Add(-25*time.Hour))
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	w.disk = newDisk(t)
	w.boot()
	before := w.requests
	w.feed(HeadCame{Signed: old})
	w.pass(time.Minute)
	c.Equal(w.machine.Status().Have.Version, uint64(0), "what is accepted of a head that has expired")
	c.Equal(w.requests, before, "requests for it")
	w.tellNewest()
	w.is(c, 2)
	w.feed(HeadCame{Signed: w.server.head(&w.server.history[0], w.now)})
	c.Equal(w.machine.Status().Have.Version, uint64(2), "the mark that was learned again, after an older head that has not expired")
	c.Equal(w.machine.Status().Refused.Old, uint64(1), "older heads that were refused")
}

// TestTransferCase28_Evidence: the alarm has both heads as they were signed, so that a person can show who has signed twice; and it is given
// again after a restart, while the first stays.
func TestTransferCase28_Evidence(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	first := w.disk.kept.Head
	h := w.server.headOf(w.server.newest(), w.now)
	h.Roots = []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.KeyOf("another")}}
	second := w.server.sign(h)
	w.feed(HeadCame{Signed: second})
	c.Equal(w.evidence, [][]byte{first, second}, "the evidence")
	for _, signed := range w.evidence {
		s, _, err := catalog.DecodeHead(signed)
		c.NoError(err, "decode the evidence")
		_, err = s.Verify(catalog.Keys{w.server.by.heads.Public()}, w.server.by.node())
		c.Check(err == nil, "the evidence does not speak for itself: %v", err)
	}
	before := w.requests
	w.boot()
	w.feed(HeadCame{Signed: second})
	w.pass(time.Minute)
	c.Equal(w.alarms, 2, "alarms, over a restart")
	c.Equal(w.disk.kept.Head, first, "the head that is kept")
	c.Equal(w.doubts[DoubtEquivocation], 2, "what is said")
	c.Equal(w.requests, before, "requests for the second")
	w.is(c, 1)
}

// TestTransferCase39_NothingIsFetched: hosts that come back, and for which nothing has changed, ask for nothing but their head, also when
// it was signed anew meanwhile.
func TestTransferCase39_NothingIsFetched(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 300)
	before := w.requests
	for range 20 {
		w.boot()
		w.pass(time.Hour)
		w.server.forget() // it was the server that has started anew
		w.tellNewest()
	}
	c.Equal(w.requests, before, "requests of a host that has come back 20 times")
	c.Equal(w.machine.Status().Have.Issued, w.server.headOf(w.server.newest(), w.now.Add(-10*time.Second)).Issued, "when the head that it has was issued")
	w.is(c, 1)
}

// TestTransferCase42_Poison: what is signed and above a bound is refused as a whole, once, and the reason is told.
func TestTransferCase42_Poison(t *testing.T) {
	c := casetest.Start(t)
	for name, list := range map[string][]byte{
		"too many layers": manyLayers(t),
		"nested deeply":   slices.Repeat([]byte{0x81}, 10_000),
		"a bomb":          {0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, // an array of so many elements, of which none comes
	} {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			w := calm(t, 20)
			p := w.server.publish(w.layer())
			p.list = list
			p.root = catalog.ListRoot(list)
			w.server.lists[p.root] = *p
			w.tellNewest()
			w.is(c, 1)
			s := w.machine.Status()
			c.Check(s.Verdict.Type == wire.Rejected && s.Verdict.Version == 2 && s.Verdict.Code != 0 && s.Verdict.Message != "", "it reports %+v", s.Verdict)
			c.Equal(s.Refused.Content, uint64(0), "what is blamed on who has sent it") // nobody but who has signed it is to blame
			before := w.requests
			for range 20 {
				w.tellNewest()
			}
			c.Equal(w.requests, before, "requests for what was refused")
			allocated := testing.AllocsPerRun(10, func() { _, _ = catalog.DecodeList(list) })
			c.Check(allocated < 5_000, "%v allocations to refuse %d bytes", allocated, len(list))
		})
	}
}

// manyLayers is an encoded list of one layer more than there may be.
func manyLayers(t *testing.T) []byte {
	t.Helper()
	layers := make([]catalog.Layer, catalog.LayersMax)
	for i := range layers {
		layers[i] = catalog.Layer{Priority: 1999 - i, ID: fmt.Sprintf("NodeConfig/x/%03d", i), Root: catalog.KeyOf(fmt.Sprint(i))}
	}
	list, err := catalog.NewList(layers...)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	// An array of 256: its head is 99 01 00. One more row is the last one again, of a lower priority.
	row := encoded[3:]
	row = row[len(row)-len(row)/catalog.LayersMax:]
	return append(append([]byte{0x99, 0x01, 0x01}, encoded[3:]...), row...)
}

// TestTransferCase45_EvictedInTheMiddle: a relay that lacks a node or a body is no liar: it is not blamed, what came of it is kept, and the rest
// comes from elsewhere.
func TestTransferCase45_EvictedInTheMiddle(t *testing.T) {
	c := casetest.Start(t)
	w := newWorld(t, 1)
	w.server.publish(filled(web, 300, "first"))
	w.liar = newServer(t, w.random)
	w.boot()
	w.tellNewest()
	w.machine.sources.current = 1
	l := w.layer()
	for i := range 30 {
		l = l.with(fmt.Sprint("claim", i), "changed")
	}
	w.server.publish(l)
	w.server.forget() // differences are not to be had: it goes by hash
	w.liarKnows()
	gone := map[catalog.Digest][]byte{}
	for digest, body := range l.bodies { // of the relay's cache
		if string(body) != "changed" {
			gone[digest] = body
		}
	}
	stale := published{version: 2, root: w.server.newest().root, list: w.server.newest().list, layers: []layer{{id: l.id, trie: l.trie, bodies: gone}}}
	w.liar.lists = map[catalog.Digest]published{stale.root: stale}
	w.tellNewest()
	w.pass(time.Minute)
	w.is(c, 2)
	c.Check(w.liar.asked.nodes > 0, "the relay was not asked")
	c.Equal(w.machine.sources.current, 0, "the source that is asked now")
	c.Check(!w.machine.sources.blamed[1].After(w.now), "the relay is blamed until %s", w.machine.sources.blamed[1])
	c.Equal(w.machine.Status().Refused.Content, uint64(0), "what was refused")
}

// TestTransferCase52_BothFormats: while a format is replaced a head has a root in each. Who knows one takes that, and a head that comes to
// have another root beside it contradicts nothing. That one who knows both takes the later is decided, and can be tested when there is another format: ADR 127.
func TestTransferCase52_BothFormats(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	later := catalog.FormatRoot{Format: catalog.FormatV1 + 1, Root: catalog.KeyOf("the same in a later format")}
	both := func(p *published, first bool) []byte {
		h := w.server.headOf(p, w.now)
		if first {
			h.Roots = append([]catalog.FormatRoot{later}, h.Roots...)
		} else {
			h.Roots = append(h.Roots, later)
		}
		return w.server.sign(h)
	}
	w.pass(time.Second)
	w.feed(HeadCame{Signed: both(w.server.newest(), true)}) // the version that it has
	c.Equal(w.machine.Status().Refused, wire.Refused{}, "what was refused")
	for i, first := range []bool{true, false} {
		p := w.server.publish(w.layer().with("claim3", fmt.Sprint("changed ", i)))
		w.feed(HeadCame{Signed: both(p, first)})
		w.pass(time.Minute)
		w.is(c, uint64(2+i))
		c.Equal(w.taken.Root, p.root, "the root that is enforced: that of its own format")
		c.Equal(w.machine.Status().Have.Root, p.root, "the root of the mark")
		w.feed(HeadCame{Signed: w.server.head(p, w.now)})
		c.Equal(w.machine.Status().Refused, wire.Refused{}, "what was refused of the same version without the later format")
	}

	// When the migration has ended an agent that is too old for it keeps what it has, and says why, once.
	before, tells := w.requests, w.tells
	h := w.server.headOf(w.server.publish(w.layer().with("claim3", "the last")), w.now)
	h.Roots = []catalog.FormatRoot{later}
	for range 20 {
		w.feed(HeadCame{Signed: w.server.sign(h)})
		w.pass(time.Minute)
	}
	w.is(c, 3)
	s := w.machine.Status()
	c.Check(s.Verdict.Type == wire.Rejected && s.Verdict.Code == reason.LaterVersion && s.Verdict.Version == 4, "it reports %+v", s.Verdict)
	c.Equal(s.Have.Version, uint64(3), "the mark")
	c.Equal(w.requests, before, "requests for what it cannot read")
	c.Equal(w.tells-tells, 1, "reports because of it")
}
