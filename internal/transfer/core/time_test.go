package core

import (
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// TestTransferCase27_StolenKey: who has the heads key can bring a host to the highest version that there is, once. The root keys end that:
// with another heads key and another epoch the host follows the servers again, and the thief has nothing more to say.
func TestTransferCase27_StolenKey(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	stolen := w.server.by.heads
	const far = uint64(1) << 63
	planted := w.server.publish(w.layer().with("claim3", "planted"))
	steal := func(epoch, version uint64) []byte {
		h := w.server.headOf(planted, w.now)
		h.Epoch, h.Version = epoch, version
		return signed(t, h, stolen)
	}
	w.feed(HeadCame{Signed: steal(1, far)})
	w.pass(time.Minute)
	w.is(c, far)
	honest := w.server.publish(w.layer().with("claim3", "honest"))
	before := w.requests
	for range 10 {
		w.tellNewest()
	}
	w.is(c, far)
	c.Equal(w.machine.Status().Refused.Old, uint64(10), "heads of the servers, which count as old")
	c.Equal(w.requests, before, "requests because of them")

	w.server.by.rotate(t, w.now)
	w.feed(HeadCame{Signed: w.server.head(honest, w.now)})
	w.is(c, far) // until the documents are there nobody knows that key
	w.pass(time.Minute)
	c.Equal(w.active.Epoch, uint64(2), "the epoch that is enforced")
	w.is(c, honest.version)

	before, handed := w.requests, len(w.activated)
	for _, head := range [][]byte{steal(1, far+1), steal(2, far+1), steal(3, far+1)} {
		w.feed(HeadCame{Signed: head})
		w.pass(3 * time.Minute)
		w.boot()
		w.feed(HeadCame{Signed: head})
		w.pass(3 * time.Minute)
	}
	w.is(c, honest.version)
	c.Equal(w.machine.Status().Have.Epoch, uint64(2), "the epoch of the mark")
	c.Equal(w.requests, before, "requests for what the thief has signed")
	c.Equal(len(w.activated)-handed, 3, "states that were handed over, one after each restart")
	c.Equal(w.machine.Status().Refused.Forged, uint64(6), "forged heads that are counted")
}

// rotate replaces the root key and the heads key, and begins another epoch.
func (a *authority) rotate(t testing.TB, now time.Time) {
	t.Helper()
	root, heads := trust.NewSigningKey(), trust.NewSigningKey()
	next, err := a.chain.Next(now, trust.RotateRoot(a.root.Public().ID(), root.Public()), trust.Revoke(a.heads.Public().ID()),
		trust.SetKey(trust.RoleHeads, heads.Public(), now.Add(365*24*time.Hour)), trust.BumpEpoch())
	if err == nil {
		next, err = next.Sign(a.root)
	}
	if err == nil {
		next, err = next.Sign(root)
	}
	if err == nil {
		a.chain, err = a.chain.Extend([]trust.Signed{next})
	}
	if err != nil {
		t.Fatal(err)
	}
	a.root, a.heads = root, heads
}

// jump sets the host's clock. What is on its way comes when it would have come, and pauses end when they would have ended: Go measures those
// with a clock that nobody sets.
func (w *world) jump(by time.Duration) {
	w.now = w.now.Add(by)
	for i := range w.queue {
		w.queue[i].at = w.queue[i].at.Add(by)
	}
	m := w.machine
	moments := []*time.Time{&w.failedAt, &m.pace.retry, &m.pace.began, &m.doubt.asked}
	for _, g := range []*candidate{m.next, m.goal} {
		if g != nil {
			moments = append(moments, &g.start)
		}
	}
	for i := range m.sources.blamed {
		moments = append(moments, &m.sources.blamed[i])
	}
	for _, at := range moments {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
}

const years = 2 * 365 * 24 * time.Hour

// TestTransferCase31_ClockAhead: to a host whose clock is two years ahead all heads have expired. It enforces what it has, says that it is
// stale, begins nothing new, and goes on as soon as its clock is right.
func TestTransferCase31_ClockAhead(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	w.jump(years)
	w.feed(Ticked{})
	c.Check(w.machine.Status().Stale, "it does not say that it is stale: %+v", w.machine.Status())
	p := w.server.publish(w.layer().with("claim3", "changed"))
	before := w.requests
	for range 10 {
		w.say(w.server.head(p, w.now.Add(-years)))
		w.pass(time.Minute)
	}
	w.is(c, 1)
	c.Equal(w.requests, before, "requests for what has expired")
	c.Equal(w.machine.Status().Have.Version, uint64(1), "the mark")
	c.Equal(w.machine.Status().Refused, wire.Refused{}, "what was refused")
	w.boot()
	w.pass(time.Minute)
	c.Equal(w.activated, []uint64{1, 1}, "versions that were handed over, over a restart")
	c.Check(w.machine.Status().Stale, "it does not say that it is stale after a restart")

	w.jump(-years)
	w.tellNewest()
	w.is(c, 2)
	c.Check(!w.machine.Status().Stale, "it is stale, and its clock is right")
}

// TestTransferCase31_ClockBehind: what was verified says what time it is at least. So a clock that was set back brings no key and no head
// back to life, and keeps nothing new away.
func TestTransferCase31_ClockBehind(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	truth := func() time.Time { return w.now.Add(years) }
	issued := w.server.newest()
	w.jump(-years)
	w.feed(Ticked{})
	c.Check(!w.machine.Status().Stale, "it is stale")
	c.Check(!w.machine.time().Before(truth().Add(-time.Minute)), "it takes the time to be %s, and has seen a head of %s", w.machine.time(), truth())
	p := w.server.publish(w.layer().with("claim3", "changed"))
	w.say(w.server.head(p, truth()))
	w.pass(time.Minute)
	w.is(c, 2)

	// A head that had expired before the clock was set back is nothing to begin with.
	h := w.server.headOf(w.server.publish(w.layer().with("claim3", "long ago")), truth())
	h.Issued, h.Expires = h.Issued-int64((48*time.Hour).Seconds()), h.Issued-int64((24*time.Hour).Seconds())
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.pass(time.Minute)
	w.is(c, 2)
	c.Equal(w.machine.Status().Have.Version, uint64(2), "the mark")
	w.boot()
	w.feed(HeadCame{Signed: w.server.head(issued, truth())})
	w.pass(time.Minute)
	w.is(c, 2)
	c.Equal(w.machine.Status().Refused.Old, uint64(1), "older heads that were refused")
}

// TestTransferCase31_ClockJumpsDuringFetch: a clock that is set back while something is fetched breaks nothing off, and starts nothing twice.
// One that is set ahead makes of what is fetched what has expired: it is not begun with, whatever of it is there, until the clock is right.
func TestTransferCase31_ClockJumpsDuringFetch(t *testing.T) {
	c := casetest.Start(t)
	for name, by := range map[string]time.Duration{"ahead": years, "back": -years} {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			late := 0
			for moment := time.Duration(0); moment <= 300*time.Millisecond; moment += 10 * time.Millisecond {
				w := calm(t, 100)
				first := w.server.newest().version
				before := w.server.asked.syncs
				p := w.server.publish(w.layer().with("claim3", "changed"), filled("NodeConfig/x/other", 100, "new"))
				w.feed(HeadCame{Signed: w.server.head(p, w.now)})
				w.pass(moment)
				had := w.active.Version
				w.jump(by)
				w.pass(time.Minute)
				c.Equal(w.machine.Status().Stale, by > 0, "whether it is stale")
				c.Check(w.server.asked.syncs-before <= 2, "after %s: %d requests for two layers", moment, w.server.asked.syncs-before)
				if by > 0 && had == first {
					late++
					c.Equal(w.active.Version, first, "the version that is enforced when the next one has expired on the way")
					asked := w.requests
					w.feed(Ticked{})
					w.boot()
					w.pass(time.Hour)
					c.Equal(w.active.Version, first, "the same, over a restart")
					c.Equal(w.requests, asked, "requests for what has expired")
				} else {
					c.Equal(w.active.Version, first+1, "the version that is enforced")
				}
				w.jump(-by)
				w.tellNewest()
				c.Equal(w.machine.Status().Stale, false, "whether it is stale when the clock is right")
				c.Equal(w.active.Root, p.root, "the root that is enforced")
			}
			c.Equal(late > 0, by > 0, "whether a jump came in time")
		})
	}
}

// TestOrdersWhenTheHeadHasExpired: without any server every head expires, and orders go on: they are applied to what is enforced.
func TestOrdersWhenTheHeadHasExpired(t *testing.T) {
	w := calm(t, 100)
	w.server.publish(w.layer().with("claim3", "never taken"))
	w.feed(HeadCame{Signed: w.server.head(w.server.newest(), w.now)})
	w.jump(48 * time.Hour) // in the middle of its fetch
	w.pass(time.Minute)
	if w.active.Version != 1 || !w.machine.Status().Stale {
		t.Fatalf("the host has version %d, %+v", w.active.Version, w.machine.Status())
	}
	w.boot()
	ordered := w.layer().with("claim4", "ordered")
	w.bring(w.signStatement(w.statementOf(ordered, 7)))
	w.has(t, ordered, "after the statement")
	w.boot()
	w.pass(time.Minute)
	w.has(t, ordered, "after a restart")
	if w.active.Version != 1 {
		t.Errorf("the host has version %d", w.active.Version)
	}
}
