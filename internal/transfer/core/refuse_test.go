package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

func TestTransferCase24_StoreRolledBack(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer().with("claim3", "two"))
	w.server.publish(w.layer().with("claim3", "three"))
	w.tellNewest()
	back := w.server.history[1] // what the old copy has as the newest
	before := w.requests
	w.say(w.server.head(&back, w.now))
	w.pass(time.Minute)
	w.is(c, 3)
	c.Equal(w.requests, before, "requests")
	c.Equal(w.machine.Status().Refused.Old, uint64(1), "heads that were refused")

	// With another epoch, which the root keys have to say, it counts again.
	h := w.server.headOf(&back, w.now)
	h.Epoch = 2
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.is(c, 3)
	c.Check(w.trustAsks > 0, "nobody is asked for trust documents")
	w.server.by.change(t, w.now, trust.BumpEpoch())
	w.pass(2 * time.Second)
	void := w.server.headOf(w.server.newest(), w.now)
	void.Version, void.Epoch = void.Version+10, 1
	w.feed(HeadCame{Signed: w.server.sign(void)})
	w.pass(time.Minute)
	c.Equal(w.active.Epoch, uint64(2), "the epoch that is enforced")
	w.is(c, 2)
}

func TestTransferCase25_OldHeadFromAnybody(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	old := w.server.head(w.server.newest(), w.now)
	w.server.publish(w.layer().with("claim3", "changed"))
	w.tellNewest()
	w.feed(HeadCame{Signed: old})
	w.boot()
	w.feed(HeadCame{Signed: old})
	w.pass(time.Minute)
	w.is(c, 2)
	c.Equal(w.machine.Status().Refused.Old, uint64(2), "heads that were refused, over a restart")
}

func TestTransferCase26_Frozen(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	head := w.server.head(w.server.newest(), w.now)
	for range 25 {
		w.feed(HeadCame{Signed: head})
		w.pass(time.Hour)
	}
	c.Check(w.machine.Status().Stale, "a day of the same head is not stale")
	w.is(c, 1)
	w.tellNewest()
	c.Check(!w.machine.Status().Stale, "a head that was issued later does not help")
}

func TestTransferCase28_TwoRoots(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	h := w.server.headOf(w.server.newest(), w.now)
	h.Roots = []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.KeyOf("another")}}
	for range 3 {
		w.feed(HeadCame{Signed: w.server.sign(h)})
	}
	w.pass(time.Minute)
	w.is(c, 1)
	c.Equal(w.alarms, 1, "alarms")
	c.Equal(w.machine.Status().Refused.Equivocation, uint64(3), "what was counted")
}

func TestTransferCase29_NotForThisHost(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	p := w.server.publish(w.layer().with("claim3", "changed"))
	forms := map[string]func(h *catalog.Head){
		"another node":    func(h *catalog.Head) { h.Node = "web-2" },
		"another UID":     func(h *catalog.Head) { h.UID = "uid-2" },
		"another cluster": func(h *catalog.Head) { h.Cluster = trust.NewClusterID() },
	}
	for name, change := range forms {
		h := w.server.headOf(p, w.now)
		change(&h)
		w.feed(HeadCame{Signed: w.server.sign(h)})
		c.Equal(w.machine.Status().Have.Version, uint64(1), "the mark after a head for "+name)
	}
	w.feed(HeadCame{Signed: signed(t, w.server.headOf(p, w.now), trust.NewSigningKey())})
	head := w.server.head(p, w.now)
	head[len(head)-1] ^= 1
	w.feed(HeadCame{Signed: head})
	w.feed(HeadCame{Signed: []byte("no head")})
	w.pass(time.Minute)
	w.is(c, 1)
	c.Equal(w.machine.Status().Refused.Forged, uint64(6), "what was counted")
	c.Equal(w.trustAsks, 1, "questions for trust documents")
}

func TestTransferCase32_PoisonEntry(t *testing.T) {
	c := casetest.Start(t)
	w := newWorld(t, 1)
	w.server.part = 200
	w.refuses = func(State) wire.Verdict { return wire.Verdict{Type: wire.Partial, Code: reason.CheckRejected} }
	w.server.publish(filled(web, 10_000, "first").with("claim77", "what no host can do"))
	w.boot()
	w.tellNewest()
	w.is(c, 1)
	before := w.requests
	for range 60 {
		w.tellNewest()
	}
	c.Equal(w.requests, before, "requests for a version that is partly applied")
}

func TestTransferCase33_PoisonCatalog(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	p := w.server.publish(w.layer())
	p.list = []byte("signed, and no list")
	p.root = catalog.ListRoot(p.list)
	w.server.lists[p.root] = *p
	w.tellNewest()
	w.is(c, 1)
	s := w.machine.Status()
	c.Check(s.Verdict.Type == wire.Rejected && s.Verdict.Version == 2 && s.Verdict.Code != 0, "it reports %+v", s.Verdict)
	before := w.requests
	for range 20 {
		w.tellNewest()
	}
	w.boot()
	w.tellNewest()
	c.Equal(w.requests, before, "requests for what was refused, over a restart")
	c.Equal(w.machine.Status().Verdict.Type, wire.Rejected, "the verdict after a restart")
	w.server.publish(w.server.history[0].layers[0].with("claim1", "good again"))
	w.tellNewest()
	w.is(c, 3)
}

func TestTransferCase34_Quarantined(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.server.publish(w.layer().with("claim3", "deadly"))
	w.refuses = func(s State) wire.Verdict {
		if s.Mark.Version == 2 {
			return wire.Verdict{Type: wire.Quarantined, Code: reason.StateQuarantined}
		}
		return wire.Verdict{Type: wire.Applied}
	}
	w.tellNewest()
	w.is(c, 1)
	before := w.requests
	w.boot()
	w.tellNewest()
	s := w.machine.Status()
	c.Check(s.Verdict.Type == wire.Quarantined && s.Verdict.Version == 2, "it reports %+v", s.Verdict)
	c.Equal(w.requests, before, "requests for what was refused")
}

func TestTransferCase38_SlowHost(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.slow = 20 * time.Second // each request takes as long; there is a version each second
	for i := range 300 {
		p := w.server.publish(w.layer().with(fmt.Sprint("claim", i%20), fmt.Sprint("second ", i)))
		w.feed(HeadCame{Signed: w.server.head(p, w.now)})
		w.pass(time.Second)
	}
	c.Check(len(w.activated) > 1, "nothing is taken while versions go on")
	w.slow = 0
	w.pass(5 * time.Minute)
	w.is(c, w.server.newest().version)
	c.Check(len(w.activated) < 20, "%d states were handed over", len(w.activated))
}

// TestTransferCase42_OverTheLimits: a layer that is signed and has a body above the limit is refused for that, once: nobody but who has signed it is to
// blame, and it is not asked for again.
func TestTransferCase42_OverTheLimits(t *testing.T) {
	c := casetest.Start(t)
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("first %v", first), func(t *testing.T) {
			c := c.Sub(t)
			w := newWorld(t, 1)
			w.boot()
			good := filled(web, 100, "first")
			if !first {
				w.server.publish(good)
				w.tellNewest()
			}
			before, handed := w.server.asked.snapshots, len(w.activated)
			p := w.server.publish(good.with("claim3", strings.Repeat("x", declare.BodyBytesMax+1)))
			w.tellNewest()
			w.pass(time.Minute)
			c.Equal(len(w.activated), handed, "states that were handed over")
			s := w.machine.Status()
			c.Check(s.Verdict.Type == wire.Rejected && s.Verdict.Version == p.version && s.Verdict.Code == reason.BodyTooLarge, "it reports %+v", s.Verdict)
			c.Equal(s.Refused.Content, uint64(0), "what is blamed on who has sent it")
			c.Check(!w.machine.sources.blamed[0].After(w.now), "the source is blamed")
			c.Check(w.server.asked.snapshots-before <= 1, "%d snapshots", w.server.asked.snapshots-before)
			requests := w.requests
			w.pass(2 * time.Hour)
			w.boot()
			w.tellNewest()
			w.pass(time.Hour)
			c.Equal(w.requests, requests, "requests for what was refused, over a restart")
			c.Equal(w.machine.Status().Verdict.Code, reason.BodyTooLarge, "the reason after a restart")
			w.server.publish(good.with("claim3", "small again"))
			w.tellNewest()
			w.is(c, p.version+1)
		})
	}
}

// TestTransferCase43_NotFetchedAgain: what a host withholds is not asked for again, and is handed over with the head that consents. The guard itself is the
// host's: package agent has its test.
func TestTransferCase43_NotFetchedAgain(t *testing.T) {
	c := casetest.Start(t)
	w := newWorld(t, 1)
	w.server.part = 200
	w.refuses = func(s State) wire.Verdict {
		if s.Mark.Version > 1 && s.Head.Consent < 100 {
			return wire.Verdict{Type: wire.Withheld, Code: reason.DeletionsWithheld}
		}
		return wire.Verdict{Type: wire.Applied}
	}
	w.server.publish(filled(web, 10_000, "first"))
	w.boot()
	w.tellNewest()
	w.is(c, 1)
	w.server.publish(newLayer(web))
	w.tellNewest()
	w.is(c, 1)
	c.Equal(w.machine.Status().Verdict.Type, wire.Withheld, "the verdict")
	before := w.requests
	w.boot()
	w.tellNewest()
	c.Equal(w.requests, before, "requests for what is withheld")

	h := w.server.headOf(w.server.publish(newLayer(web)), w.now)
	h.Consent = 100
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.pass(time.Minute)
	w.is(c, 3)
	c.Equal(w.taken.Head.Consent, uint8(100), "the consent that the host was given")
	c.Equal(w.requests, before, "requests for what is held")
}

func TestTransferCase45_HashMissing(t *testing.T) {
	c := casetest.Start(t)
	w := newWorld(t, 1)
	w.liar = newServer(t, w.random) // it has nothing
	w.server.publish(filled(web, 20, "first"))
	w.boot()
	w.machine.sources.current = 1
	w.tellNewest()
	w.is(c, 1)
	c.Equal(w.machine.Status().Refused.Content, uint64(0), "what was refused")
}

// TestTransferCase46_UsedAgainAfterTenMinutes: who has sent what was not asked for is passed over for ten minutes, also when the others fail, and then has its
// turn again.
func TestTransferCase46_UsedAgainAfterTenMinutes(t *testing.T) {
	c := casetest.Start(t)
	w := newWorld(t, 1)
	w.liar = newServer(t, w.random)
	w.liar.lying = true
	w.server.publish(filled(web, 100, "first"))
	w.liarKnows()
	w.boot()
	w.machine.sources.current = 1
	w.tellNewest()
	w.is(c, 1)
	asked := func() int { return w.liar.asked.syncs + w.liar.asked.nodes + w.liar.asked.lists }
	lies := asked()
	c.Check(lies > 0, "the relay that lies was not asked")
	next := func() { // the other one fails once
		w.server.publish(w.layer().with("claim3", fmt.Sprint("version ", w.server.newest().version+1)))
		w.liarKnows()
		w.cuts = []int{0}
		w.tellNewest()
		w.is(c, w.server.newest().version)
		c.Equal(len(w.cuts), 0, "answers that should have failed")
	}
	w.liar.lying = false
	for range 5 {
		w.pass(time.Minute)
		next()
	}
	c.Equal(asked(), lies, "questions to it within the ten minutes")
	w.pass(5 * time.Minute)
	next()
	c.Check(asked() > lies, "it is not used again after its ten minutes")
	c.Equal(w.machine.Status().Refused.Content > 0, true, "what it has sent before is counted")
}

// TestGarbled: who sends what cannot be read is as one who lies. He is not asked while there is somebody else, and what he has sent is counted.
func TestGarbled(t *testing.T) {
	w := calm(t, 20)
	m := w.machine
	m.sources = sources{blamed: make([]time.Time, 3)}
	w.server.publish(w.layer().with("claim3", "changed"))
	w.feed(HeadCame{Signed: w.server.head(w.server.newest(), w.now)})
	w.pass(time.Millisecond)
	if w.open == 0 {
		t.Fatal("nothing is asked for")
	}
	id := w.open
	w.open = 0
	w.feed(Failed{ID: id, Err: &reason.Error{Code: reason.TransferWrong, Doing: "read"}, Garbled: true})
	if m.sources.current == 0 || !m.sources.blamed[0].After(w.now) {
		t.Errorf("sources are %+v", m.sources)
	}
	equal(t, m.Status().Refused.Content, 1, "what is counted")
	w.feed(Garbled{Err: &reason.Error{Code: reason.TransferWrong, Doing: "read a watch"}})
	equal(t, m.Status().Refused.Content, 2, "what is counted")
	w.pass(time.Minute)
	if w.active.Version != 2 {
		t.Errorf("the host has version %d", w.active.Version)
	}
}
