package core

import (
	"fmt"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const web = "NodeConfig/x/web"

// calm is a world without faults, whose host has the first version of one layer.
func calm(t *testing.T, entries int) *world {
	t.Helper()
	w := newWorld(t, 1)
	w.server.publish(filled(web, entries, "first"))
	w.boot()
	w.tellNewest()
	if w.active.Version != 1 {
		t.Fatalf("the host does not take the first version: %+v", w.machine.Status())
	}
	return w
}

// tellNewest sends the newest head, and waits.
func (w *world) tellNewest() {
	w.say(w.server.head(w.server.newest(), w.now))
	w.pass(10 * time.Second)
}

// layer is the newest content of the layer.
func (w *world) layer() layer { return w.server.newest().layers[0] }

func (w *world) is(c *casetest.Case, version uint64) {
	c.Equal(w.active.Version, version, "the version that is enforced")
}

func TestTransferCase1_HeadLost(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer().with("claim3", "changed")) // and the head is lost
	w.pass(time.Minute)
	w.is(c, 1)
	w.tellNewest() // the heartbeat
	w.is(c, 2)
	c.Equal(w.alarms, 0, "alarms")
}

func TestTransferCase3_HeadDoubled(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	before := w.server.asked
	p := w.server.publish(w.layer().with("claim3", "changed"))
	for range 100 {
		w.say(w.server.head(p, w.now))
	}
	w.pass(time.Minute)
	w.is(c, 2)
	c.Equal(w.server.asked.syncs-before.syncs, 1, "fetches")
}

func TestTransferCase4_HeadsReordered(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	six := w.server.publish(w.layer().with("claim3", "six"))
	w.server.publish(w.layer().with("claim3", "seven"))
	w.tellNewest()
	w.feed(HeadCame{Signed: w.server.head(six, w.now)})
	w.pass(time.Minute)
	w.is(c, 3)
	c.Equal(w.machine.Status().Refused.Old, uint64(1), "heads that were counted as old")
}

func TestTransferCase5_DifferenceReplayed(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	part := wire.SyncPart{Kind: wire.SyncDelta, Last: true, Changes: []wire.Change{{Key: catalog.KeyOf("claim3"), Body: []byte("replayed")}}}
	for id := range w.machine.progress.id + 2 {
		w.feed(PartCame{ID: id, Part: part})
	}
	w.pass(time.Minute)
	w.is(c, 2)
	c.Equal(len(w.activated), 2, "states that were handed over")
	c.Equal(w.machine.Status().Refused.Content, uint64(0), "what was refused")
}

// lie has the first source change what it sends with change, once or always.
func (w *world) lie(times int, change func([]wire.SyncPart) []wire.SyncPart) {
	w.spoiled = func(parts []wire.SyncPart) []wire.SyncPart {
		if times == 0 {
			return parts
		}
		times--
		return change(parts)
	}
}

func TestTransferCase6_WrongBase(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 200)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.lie(1, func(parts []wire.SyncPart) []wire.SyncPart { // as if the base had been another
		parts[0].Changes = append(parts[0].Changes[:0:0], wire.Change{Key: catalog.KeyOf("claim3"), Deleted: true})
		return parts
	})
	w.tellNewest()
	w.is(c, 2)
	c.Equal(w.machine.Status().Refused.Content, uint64(1), "what was refused")
	c.Check(w.server.asked.nodes > 0, "the layer was not fetched by descent")
	c.Equal(w.server.asked.snapshots, 1, "snapshots, the first fetch among them")
}

func TestTransferCase7_DifferenceChanged(t *testing.T) {
	c := casetest.Start(t)
	w := newWorld(t, 1)
	w.liar = newServer(t, w.random)
	w.liar.lying = true
	w.server.publish(filled(web, 100, "first"))
	w.boot()
	w.machine.sources.current = 1
	w.liarKnows()
	w.tellNewest()
	w.is(c, 1)
	c.Equal(w.machine.sources.current, 0, "the source that is asked now")
	c.Check(w.machine.sources.blamed[1].After(w.now), "nobody is blamed")
	c.Check(w.machine.Status().Refused.Content > 0, "nothing is counted")
}

func TestTransferCase8_DifferenceCut(t *testing.T) {
	c := casetest.Start(t)
	w := newWorld(t, 1)
	w.server.publish(filled(web, 100, "first"))
	w.boot()
	w.cuts = []int{3, 5} // of 13 parts
	w.tellNewest()
	w.is(c, 1)
	c.Equal(w.server.asked.syncs, 3, "requests")
	c.Equal(w.server.asked.snapshots, 3, "snapshots")
	c.Equal(len(w.cursors), 3, "cursors")
	c.Check(w.cursors[0] == catalog.Digest{} && w.cursors[1] != catalog.Digest{} && string(w.cursors[2][:]) > string(w.cursors[1][:]), "it is not resumed: %v", w.cursors)
}

func TestTransferCase9_ThousandVersionsInASecond(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 50)
	before, handed := w.server.asked.syncs, len(w.activated)
	for i := range 1000 {
		p := w.server.publish(w.layer().with(fmt.Sprint("claim", i%40), fmt.Sprint("version ", i)))
		w.feed(HeadCame{Signed: w.server.head(p, w.now)})
		w.pass(time.Millisecond)
	}
	w.pass(time.Minute)
	w.is(c, w.server.newest().version)
	c.Check(w.server.asked.syncs-before <= 3, "%d fetches", w.server.asked.syncs-before)
	c.Equal(len(w.activated)-handed, 1, "states that were handed over")
}

func TestTransferCase10_VersionChangesDuringFetch(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 50)
	two := w.server.publish(w.layer().with("claim1", "two"), filled("NodeConfig/x/other", 50, "two"))
	w.feed(HeadCame{Signed: w.server.head(two, w.now)})
	w.pass(30 * time.Millisecond)
	c.Check(w.open != 0, "nothing is being fetched")
	three := w.server.publish(w.layer().with("claim1", "three"), filled("NodeConfig/x/other", 50, "three"))
	w.feed(HeadCame{Signed: w.server.head(three, w.now)})
	w.pass(time.Minute)
	w.is(c, 3)
}

func TestTransferCase11_ThereAndBack(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 50)
	first := w.layer()
	w.server.publish(first.with("claim3", "changed"))
	w.tellNewest()
	before := w.requests
	w.server.publish(first)
	w.tellNewest()
	w.is(c, 3)
	w.server.publish(first) // and without any change
	w.tellNewest()
	w.is(c, 4)
	c.Equal(w.requests, before, "requests for what is held")
	c.Equal(w.machine.Status().Have.Version, uint64(4), "the version that is acknowledged")
}

func TestTransferCase13_RestartDuringTransfer(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer(), filled("NodeConfig/x/other", 200, "new"))
	w.cuts = []int{10}
	w.feed(HeadCame{Signed: w.server.head(w.server.newest(), w.now)})
	w.pass(300 * time.Millisecond)
	c.Check(len(w.disk.staged) == 80, "%d changes are staged", len(w.disk.staged))
	w.is(c, 1)
	w.cursors, w.open = nil, 0
	w.boot()
	w.tellNewest()
	w.is(c, 2)
	c.Check(len(w.cursors) == 1 && w.cursors[0] != catalog.Digest{}, "it begins anew: %v", w.cursors)
}

func TestTransferCase14_KilledWhileApplying(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 50)
	before := w.requests
	w.boot()
	w.tellNewest()
	w.is(c, 1)
	c.Equal(len(w.activated), 2, "states that were handed over")
	c.Equal(w.requests, before, "requests for what is held")
}

func TestTransferCase15_KilledAfterTheMark(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	first := w.server.head(w.server.newest(), w.now)
	p := w.server.publish(w.layer().with("claim3", "changed"))
	w.disk.accept(catalog.Mark{Epoch: 1, Version: p.version, Root: p.root, Issued: w.now.Unix(), Expires: w.now.Add(time.Hour).Unix()}, w.server.head(p, w.now))
	w.boot() // the mark is durable, and nothing else
	w.feed(HeadCame{Signed: first})
	w.pass(time.Minute)
	w.is(c, 2)
	c.Equal(w.machine.Status().Refused.Old, uint64(1), "lower heads that were refused")
}

func TestTransferCase16_DiskFull(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.disk.full = true
	w.tellNewest()
	w.is(c, 1)
	s := w.machine.Status()
	c.Check(s.Verdict.Type == wire.Rejected && s.Verdict.Code == reason.DiskFull && s.Verdict.Version == 2, "it reports %+v", s.Verdict)
	before := w.requests
	w.pass(10 * time.Minute)
	c.Check(w.requests-before < 30, "%d requests in ten minutes", w.requests-before)
	w.disk.full = false
	w.pass(2 * time.Minute)
	w.is(c, 2)
}

func TestTransferCase18_StoreDeleted(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 100)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	old := w.server.head(&w.server.history[0], w.now)
	kept := w.disk.kept
	w.disk = newDisk(t)
	w.disk.kept = kept // it is stored elsewhere
	w.boot()
	w.feed(HeadCame{Signed: old})
	w.pass(time.Minute)
	w.is(c, 2)
	c.Equal(len(w.disk.layers), 1, "layers that were fetched anew")
}

func TestTransferCase19_ServerRestarted(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 300)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.server.forget()
	before := w.server.asked
	w.tellNewest()
	w.is(c, 2)
	c.Equal(w.server.asked.snapshots, before.snapshots, "snapshots")
	c.Check(w.server.asked.nodes > before.nodes, "there was no descent")
	requests := w.requests
	w.server.forget()
	w.tellNewest()
	c.Equal(w.requests, requests, "requests for what is held")
}
