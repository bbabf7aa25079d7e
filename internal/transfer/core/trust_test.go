package core

import (
	"fmt"
	"testing"
	"time"

	"tako.dev/tako/internal/trust"
)

// TestTrustChanges: whatever is signed by keys, and in epochs, that the host is told of only then is no forgery, in whatever order heads
// and documents come; and what nobody has appointed is one, each time.
func TestTrustChanges(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			w.server.publish(filled(web, 20, "first"))
			w.boot()
			w.tellNewest()
			w.mute = w.chance(0.2)
			forgeries := uint64(0)
			for i := range 1 + w.random.IntN(3) {
				w.pass(2 * time.Minute) // nobody changes them twice in a minute
				heads := trust.NewSigningKey()
				w.server.by.change(t, w.now, trust.BumpEpoch(), trust.SetKey(trust.RoleHeads, heads.Public(), w.now.Add(24*time.Hour)))
				w.server.by.heads = heads
				for j := range 1 + w.random.IntN(4) { // no more than doubtsMax with the forgeries
					p := w.server.publish(w.server.newest().layers[0].with("claim3", fmt.Sprint(i, j)))
					w.say(w.server.head(p, w.now))
					w.say(w.server.head(p, w.now))
					if w.chance(0.3) {
						w.say(signed(t, w.server.headOf(p, w.now), trust.NewSigningKey()))
						forgeries++
					}
				}
				if w.mute {
					w.later(50*time.Second, func() { w.believed = w.server.by.chain; w.feed(Trusted{Chain: w.believed}) })
				}
			}
			w.pass(3 * time.Minute)
			s := w.machine.Status().Refused
			equal(t, s.Forged, forgeries, "forged heads")
			equal(t, w.doubts[DoubtKey]+w.doubts[DoubtEpoch], int(forgeries), "what is said of them")
			w.mute = false
			w.tellNewest()
			equal(t, w.active.Version, w.server.newest().version, "the version that is enforced")
		})
	}
}

// change has the root keys say something else.
func (a *authority) change(t testing.TB, now time.Time, edits ...trust.Edit) {
	t.Helper()
	next, err := a.chain.Next(now, edits...)
	if err == nil {
		next, err = next.Sign(a.root)
	}
	if err == nil {
		a.chain, err = a.chain.Extend([]trust.Signed{next})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNobodyAnswersForTrust: who keeps the documents back is not waited for.
func TestNobodyAnswersForTrust(t *testing.T) {
	w := calm(t, 20)
	w.mute = true
	forged := signed(t, w.server.headOf(w.server.newest(), w.now), trust.NewSigningKey())
	w.feed(HeadCame{Signed: forged})
	w.feed(HeadCame{Signed: forged})
	equal(t, w.machine.Status().Refused.Forged, uint64(0), "what was counted at once")
	w.pass(2 * time.Minute)
	equal(t, w.machine.Status().Refused.Forged, uint64(1), "what was counted after a while")
	for range 100 {
		w.feed(HeadCame{Signed: signed(t, w.server.headOf(w.server.newest(), w.now), trust.NewSigningKey())})
	}
	w.pass(2 * time.Minute)
	equal(t, w.machine.Status().Refused.Forged, uint64(101), "what was counted of a flood")
	equal(t, len(w.machine.doubt.heads), doubtsMax, "what is kept of it")
	equal(t, w.trustAsks, 2, "questions")
}

func equal[T comparable](t *testing.T, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
