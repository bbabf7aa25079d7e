package core

import (
	"fmt"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

func TestFetchWindow(t *testing.T) {
	spread := map[bool]int{}
	for seed := range uint64(40) {
		w := newWorld(t, seed)
		w.server.publish(filled(web, 5, "first"))
		w.boot()
		w.within(600)
		if w.pass(time.Minute); w.active.Version != 1 {
			t.Fatal("a host that has nothing yet waits")
		}
		w.server.publish(w.layer().with("claim3", "changed"))
		w.within(600)
		w.pass(5 * time.Minute)
		spread[w.active.Version == 2]++
		w.pass(6 * time.Minute)
		if w.active.Version != 2 {
			t.Fatal("the fetch has not begun within its window")
		}
	}
	if spread[true] < 10 || spread[false] < 10 {
		t.Errorf("of 40 hosts %d have fetched in the first half of the window", spread[true])
	}
}

// within sends the newest head, with a window of so many seconds.
func (w *world) within(seconds uint32) {
	h := w.server.headOf(w.server.newest(), w.now)
	h.Window = seconds
	w.feed(HeadCame{Signed: w.server.sign(h)})
}

// TestFetchAtOnce: what is to be fetched at once does not wait because something before it had a window, and what has a window does not draw again.
func TestFetchAtOnce(t *testing.T) {
	w := calm(t, 5)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.within(3600)
	drawn := w.machine.goal.start
	w.server.publish(w.layer().with("claim3", "changed again"))
	w.within(3600)
	if got := w.machine.goal.start; got != drawn || !got.After(w.now) || w.active.Version != 1 {
		t.Errorf("it begins at %v, and had drawn %v", got, drawn)
	}
	w.server.publish(w.layer().with("claim4", "changed"))
	w.within(0)
	if w.pass(time.Minute); w.active.Version != 4 {
		t.Errorf("the host has version %d", w.active.Version)
	}
}

func TestWrongThreeTimes(t *testing.T) {
	w := calm(t, 100)
	w.server.lying = true
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	if s := w.machine.Status(); s.Verdict.Type != wire.Rejected || s.Verdict.Code != reason.TransferWrong {
		t.Errorf("it reports %+v", s.Verdict)
	}
	before := w.requests
	w.server.publish(w.layer().with("claim4", "changed"))
	w.tellNewest()
	w.pass(30 * time.Second)
	if w.requests > before {
		t.Errorf("%d requests within a minute after three wrong answers", w.requests-before)
	}
	w.pass(time.Minute) // one more round, of the newer version
	w.pass(time.Hour)
	w.server.lying = false
	w.server.publish(w.layer().with("claim3", "changed again"))
	w.tellNewest()
	w.pass(time.Minute) // a newer version does not wait for as long as the old one does
	if w.active.Version != 4 {
		t.Errorf("the host has version %d", w.active.Version)
	}
}

func TestWrongList(t *testing.T) {
	w := newWorld(t, 1)
	w.server.publish(filled(web, 5, "first"))
	w.boot()
	w.feed(HeadCame{Signed: w.server.head(w.server.newest(), w.now)})
	list, err := catalog.NewList()
	if err != nil {
		t.Fatal(err)
	}
	empty, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	w.feed(NodesCame{ID: w.open, Reply: wire.NodesReply{Items: [][]byte{empty}}})
	w.open = 0
	if got := w.machine.Status().Refused.Content; got != 1 || len(w.activated) > 0 {
		t.Errorf("%d wrong lists are counted, and %d states were handed over", got, len(w.activated))
	}
	w.pass(time.Minute)
	if w.active.Version != 1 {
		t.Errorf("the host has version %d", w.active.Version)
	}
}

// A difference that was broken off may go on as a snapshot. That is nobody's fault.
func TestResumedAsSnapshot(t *testing.T) {
	w := calm(t, 100)
	l := w.layer()
	for i := range 40 {
		l = l.with(fmt.Sprint("claim", i), "changed")
	}
	w.server.publish(l)
	w.cuts = []int{2}
	w.feed(HeadCame{Signed: w.server.head(w.server.newest(), w.now)})
	w.pass(200 * time.Millisecond)
	if len(w.disk.staged) == 0 {
		t.Fatal("nothing is staged")
	}
	w.server.snapshots = true
	w.pass(time.Minute)
	if s := w.machine.Status(); w.active.Version != 2 || s.Refused.Content != 0 {
		t.Errorf("the host has version %d, and has refused %+v", w.active.Version, s.Refused)
	}
}

// What the host cannot read any more is fetched again.
func TestDamaged(t *testing.T) {
	w := calm(t, 100)
	w.server.publish(w.layer())
	w.disk.layers = map[catalog.Digest]layer{}
	failed := false
	w.cannot = func() error {
		if failed {
			return nil
		}
		failed = true
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read a body"}
	}
	w.tellNewest()
	w.pass(time.Minute)
	if w.active.Version != 2 || !failed {
		t.Errorf("the host has version %d", w.active.Version)
	}
	w.disk.layers = map[catalog.Digest]layer{}
	w.feed(Reread{})
	w.pass(time.Minute)
	if len(w.disk.layers) != 1 || len(w.activated) != 3 {
		t.Errorf("%d layers are there, and %d states were handed over", len(w.disk.layers), len(w.activated))
	}
}

// What was signed before the root keys have begun another epoch counts for nothing, whatever its version.
func TestVoidEpoch(t *testing.T) {
	w := calm(t, 20)
	next, err := w.server.by.chain.Next(w.now, trust.BumpEpoch())
	if err == nil {
		next, err = next.Sign(w.server.by.root)
	}
	if err != nil {
		t.Fatal(err)
	}
	longer, err := w.server.by.chain.Extend([]trust.Signed{next})
	if err != nil {
		t.Fatal(err)
	}
	w.feed(Trusted{Chain: longer})
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	if s := w.machine.Status(); w.active.Version != 1 || s.Have.Version != 1 || s.Refused.Old != 1 {
		t.Errorf("a head of a void epoch was taken: %+v", s)
	}
}

// A disk that is full when a head comes, while another one waits for its turn, is not written to in a loop.
func TestFullWhileWaiting(t *testing.T) {
	w := calm(t, 5)
	h := w.server.headOf(w.server.publish(w.layer().with("claim1", "two")), w.now)
	h.Window = 3600
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.disk.full = true
	h = w.server.headOf(w.server.publish(w.layer().with("claim1", "three")), w.now)
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.pass(10 * time.Minute)
	if w.disk.refused > 30 {
		t.Errorf("the full disk was written to %d times in ten minutes", w.disk.refused)
	}
	if s := w.machine.Status(); s.Have.Version != 2 || s.Verdict.Code != reason.DiskFull {
		t.Errorf("it reports %+v", s)
	}
	w.disk.full = false
	w.pass(2 * time.Hour)
	if w.active.Version != 3 {
		t.Errorf("the host has version %d", w.active.Version)
	}
}
