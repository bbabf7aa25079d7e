package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestTransferCase17_WhileTheHeadIsRefused: what is enforced is mended also while the host will not have the newest head, and that one stays
// refused.
func TestTransferCase17_WhileTheHeadIsRefused(t *testing.T) {
	c := casetest.Start(t)
	for _, refusal := range []wire.VerdictType{wire.Withheld, wire.Quarantined} {
		for _, restart := range []bool{false, true} {
			for _, what := range []string{"a layer", "the list"} {
				t.Run(fmt.Sprintf("%s, %s, restart %v", refusal, what, restart), func(t *testing.T) {
					c := c.Sub(t)
					w := calm(t, 300)
					first := *w.server.newest()
					w.refuses = func(s State) wire.Verdict {
						if s.Mark.Version == 2 {
							return wire.Verdict{Type: refusal, Code: reason.DeletionsWithheld}
						}
						return wire.Verdict{Type: wire.Applied}
					}
					w.server.publish(newLayer(web))
					w.tellNewest()
					root := first.layers[0].trie.Root()
					if what == "a layer" {
						w.disk.damage(root, 3)
					} else {
						delete(w.disk.texts, first.root)
					}
					w.server.forget()
					before := w.server.asked
					if restart {
						w.boot()
					} else {
						w.feed(Reread{})
					}
					w.pass(time.Minute)
					c.Equal(w.disk.layers[root].trie.Len(), 300, "rows of the layer that is enforced")
					c.Equal(string(w.disk.texts[first.root]), string(first.list), "the list that is enforced")
					c.Equal(w.server.asked.snapshots, before.snapshots, "snapshots")
					w.is(c, 1)
					c.Check(!slices.Contains(w.activated, 2), "the head that was refused is enforced")
					s := w.machine.Status()
					c.Check(s.Verdict.Type == refusal && s.Verdict.Version == 2, "it reports %+v", s.Verdict)

					handed, requests := len(w.activated), w.requests
					w.tellNewest()
					w.pass(time.Hour)
					c.Equal(len(w.activated), handed, "states that were handed over, after another hour")
					c.Equal(w.requests, requests, "requests, after another hour")
				})
			}
		}
	}
}

// TestMendedAfterARefusal: damage that is found while another head is on its way is mended when that one is refused.
func TestMendedAfterARefusal(t *testing.T) {
	w := calm(t, 100)
	root := w.layer().trie.Root()
	w.server.publish(filled("NodeConfig/x/other", 50, "other"))
	w.refuses = func(s State) wire.Verdict {
		if s.Mark.Version == 2 {
			return wire.Verdict{Type: wire.Withheld, Code: reason.DeletionsWithheld}
		}
		return wire.Verdict{Type: wire.Applied}
	}
	w.feed(HeadCame{Signed: w.server.head(w.server.newest(), w.now)})
	w.disk.damage(root, 3)
	w.feed(Reread{})
	w.pass(time.Minute)
	if w.active.Version != 1 || w.disk.layers[root].trie.Len() != 100 {
		t.Errorf("the host has version %d with %d rows of 100", w.active.Version, w.disk.layers[root].trie.Len())
	}
	equal(t, w.machine.Status().Verdict.Type, wire.Withheld, "the verdict on the head")
}

// TestStatementWhileDamaged: a statement is judged by what is enforced, also while something of that is damaged and nobody has it: an operator may
// bring what takes its place.
func TestStatementWhileDamaged(t *testing.T) {
	w := newWorld(t, 1)
	other := filled("NodeConfig/x/other", 20, "first")
	w.server.publish(filled(web, 100, "first"), other)
	w.boot()
	w.tellNewest()
	equal(t, w.active.Version, 1, "the version")
	p := w.server.newest()
	truth := w.server.lists[p.root]
	gone := truth
	gone.layers = []layer{newLayer(web), other}
	w.server.lists[p.root] = gone // nobody has the layer at that root any more
	w.disk.damage(p.layers[0].trie.Root(), 3)
	w.feed(Reread{})
	w.pass(10 * time.Minute)

	waits := other.with("claim1", "ordered")
	w.bring(w.signStatement(w.statementOf(waits, 1)))
	s := w.machine.Status()
	if s.Refused != (wire.Refused{}) || len(s.Coming) != 1 || s.Coming[0].Layer != other.id {
		t.Errorf("a statement about another layer does not wait for its turn: %+v, what was refused %+v", s.Coming, s.Refused)
	}
	ordered := p.layers[0].with("claim3", "ordered")
	w.server.whole = true // it is brought with its content
	w.bring(w.signStatement(w.statementOf(ordered, 1)))
	w.pass(5 * time.Minute)
	w.has(t, ordered, "in the place of what is damaged")
	w.has(t, waits, "when what was damaged is replaced")
	equal(t, len(w.machine.Status().Coming), 0, "statements on their way")
}
