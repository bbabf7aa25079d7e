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
	"tako.dev/tako/internal/trust"
)

// rootOf is the root of a layer in a state.
func (s *State) rootOf(id string) catalog.Digest {
	i := slices.IndexFunc(s.List, func(l catalog.Layer) bool { return l.ID == id })
	return s.List[i].Root
}

// statementOf is a statement about a layer before it is signed. Its content is there to be fetched.
func (w *world) statementOf(l layer, number uint64) catalog.Statement {
	w.server.orders = append(w.server.orders, l)
	w.server.known[l.trie.Root()] = l.trie
	st := catalog.Statement{
		Cluster: w.server.by.cluster, Layer: l.id, Epoch: w.server.by.chain.Current().Epoch, Number: number, Root: l.trie.Root(),
		Issued: w.now.Unix(), Expires: w.now.Add(24 * time.Hour).Unix(),
	}
	for r := range l.trie.From(catalog.Digest{}) {
		st.Bytes += uint64(len(l.bodies[r.Digest]))
	}
	w.told[st.Root] = st
	return st
}

func signedStatement(t testing.TB, st catalog.Statement, key *trust.SigningKey) []byte {
	t.Helper()
	s, err := st.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (w *world) signStatement(st catalog.Statement) []byte {
	return signedStatement(w.t, st, w.server.by.operator)
}

// bring brings a statement to the host, and waits.
func (w *world) bring(signed []byte) {
	w.feed(StatementCame{Signed: signed})
	w.pass(10 * time.Second)
}

// has checks which content of the layer is enforced.
func (w *world) has(t testing.TB, l layer, what string) {
	t.Helper()
	if got := w.taken.rootOf(l.id); got != l.trie.Root() {
		t.Errorf("%s: the host has %s at %s, want %s", what, l.id, got, l.trie.Root())
	}
}

// TestStatement: a statement replaces its layer in what the head names, over restarts, until a head has caught up with it.
func TestStatement(t *testing.T) {
	w := calm(t, 100)
	ordered := w.layer().with("claim3", "ordered")
	w.bring(w.signStatement(w.statementOf(ordered, 7)))
	w.has(t, ordered, "after the statement")
	s := w.machine.Status()
	if len(s.Statements) != 1 || s.Statements[0] != (wire.Statement{Layer: web, Number: 7, Root: ordered.trie.Root()}) || s.Open || len(s.Coming) > 0 {
		t.Errorf("it reports %+v", s)
	}
	if w.taken.Mark.Root != w.server.newest().root || w.taken.Root == w.taken.Mark.Root || w.active.Version != 1 {
		t.Errorf("taken is %+v", w.taken)
	}
	before, handed := w.requests, len(w.activated)
	w.boot()
	w.tellNewest()
	w.has(t, ordered, "after a restart")
	equal(t, w.requests, before, "requests after a restart")
	equal(t, len(w.activated), handed+1, "states handed over")
	equal(t, len(w.trials), 1, "trials: it was judged before the restart")

	// Another layer changes: the statement stays.
	w.server.publish(w.layer(), filled("NodeConfig/x/other", 10, "new"))
	w.tellNewest()
	w.has(t, ordered, "after another change")
	// Even when its own does.
	w.server.publish(w.layer().with("claim4", "declared"), w.server.newest().layers[1])
	w.tellNewest()
	w.has(t, ordered, "after a change of its layer that has not caught up")
	equal(t, w.active.Version, 3, "the version")

	// The head says the same.
	w.server.publish(ordered, w.server.newest().layers[1])
	w.tellNewest()
	w.has(t, ordered, "after a head that says the same")
	equal(t, len(w.machine.Status().Statements), 0, "statements in force after that")
	next := ordered.with("claim5", "declared")
	w.server.publish(next, w.server.newest().layers[1])
	w.tellNewest()
	w.has(t, next, "after the next change")
	w.bring(w.signStatement(w.told[ordered.trie.Root()]))
	w.has(t, next, "after the statement was played back")
	equal(t, w.machine.Status().Refused.Old, uint64(1), "old ones")
}

// TestStatementEnds: what ends a statement besides a head that says the same.
func TestStatementEnds(t *testing.T) {
	for name, end := range map[string]func(w *world, h *catalog.Head){
		"absorbed":       func(_ *world, h *catalog.Head) { h.Absorbed = []catalog.AbsorbedNumber{{Layer: web, Number: 7}} },
		"a later number": func(_ *world, h *catalog.Head) { h.Absorbed = []catalog.AbsorbedNumber{{Layer: web, Number: 9}} },
		"a higher epoch": func(w *world, h *catalog.Head) { w.server.by.change(w.t, w.now, trust.BumpEpoch()); h.Epoch++ },
		"the key revoked": func(w *world, _ *catalog.Head) {
			w.server.by.change(w.t, w.now, trust.Revoke(w.server.by.operator.Public().ID()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := calm(t, 20)
			ordered := w.layer().with("claim3", "ordered")
			signed := w.signStatement(w.statementOf(ordered, 7))
			w.bring(signed)
			w.has(t, ordered, "after the statement")
			declared := w.layer().with("claim4", "declared")
			p := w.server.publish(declared)
			h := w.server.headOf(p, w.now)
			end(w, &h)
			w.believed = w.server.by.chain
			w.feed(Trusted{Chain: w.believed})
			w.pass(time.Second)
			w.feed(HeadCame{Signed: w.server.sign(h)})
			w.pass(time.Minute)
			w.has(t, declared, "after the head")
			w.boot()
			w.pass(time.Minute)
			w.bring(signed)
			w.has(t, declared, "after it was played back, over a restart")
			equal(t, len(w.machine.Status().Statements), 0, "statements in force")
		})
	}
	t.Run("unlisted", func(t *testing.T) {
		w := newWorld(t, 1)
		first, second := filled(web, 20, "first"), filled("NodeConfig/x/other", 20, "first")
		w.server.publish(first, second)
		w.boot()
		w.tellNewest()
		signed := w.signStatement(w.statementOf(second.with("claim1", "ordered"), 7))
		w.bring(signed)
		w.server.publish(first)
		w.tellNewest()
		equal(t, len(w.machine.Status().Statements), 0, "statements about a layer that is not there")
		w.server.publish(first, second)
		w.tellNewest()
		w.has(t, second, "after it is listed again")
		w.bring(signed)
		w.has(t, second, "after it was played back")
	})
}

// TestStatementRefused: each check has its own words, and changes nothing.
func TestStatementRefused(t *testing.T) {
	for name, one := range map[string]struct {
		change func(w *world, st *catalog.Statement)
		key    func(a *authority) *trust.SigningKey
		code   reason.Code
		count  func(r wire.Refused) uint64
	}{
		"by a key of heads":    {key: func(a *authority) *trust.SigningKey { return a.heads }, code: reason.HeadRefused, count: func(r wire.Refused) uint64 { return r.Forged }},
		"by anybody":           {key: func(*authority) *trust.SigningKey { return trust.NewSigningKey() }, code: reason.HeadRefused, count: func(r wire.Refused) uint64 { return r.Forged }},
		"of another cluster":   {change: func(_ *world, st *catalog.Statement) { st.Cluster = trust.NewClusterID() }, code: reason.HeadRefused, count: func(r wire.Refused) uint64 { return r.Forged }},
		"of a later epoch":     {change: func(_ *world, st *catalog.Statement) { st.Epoch++ }, code: reason.StatementRefused},
		"of an earlier epoch":  {change: func(_ *world, st *catalog.Statement) { st.Epoch = 0 }, code: reason.StatementRefused, count: func(r wire.Refused) uint64 { return r.Old }},
		"about another layer":  {change: func(_ *world, st *catalog.Statement) { st.Layer = "NodeConfig/x/none" }, code: reason.StatementRefused},
		"expired":              {change: func(w *world, st *catalog.Statement) { st.Issued, st.Expires = 1, w.now.Unix() }, code: reason.StatementRefused},
		"of a lower number":    {change: func(_ *world, st *catalog.Statement) { st.Number = 4 }, code: reason.StatementRefused, count: func(r wire.Refused) uint64 { return r.Old }},
		"of the number before": {change: func(_ *world, st *catalog.Statement) { st.Number = 5 }, code: reason.StatementRefused, count: func(r wire.Refused) uint64 { return r.Equivocation }},
	} {
		t.Run(name, func(t *testing.T) {
			w := calm(t, 20)
			five := w.layer().with("claim5", "five")
			w.bring(w.signStatement(w.statementOf(five, 5)))
			w.has(t, five, "before")
			st := w.statementOf(w.layer().with("claim6", "six"), 6)
			if one.change != nil {
				one.change(w, &st)
			}
			key := w.server.by.operator
			if one.key != nil {
				key = one.key(w.server.by)
			}
			var said []error
			for _, e := range w.machine.Step(w.now, StatementCame{Signed: signedStatement(t, st, key)}) {
				if d, is := e.(Disbelieve); is {
					said = append(said, d.Err)
				}
				w.do(e)
			}
			if len(said) != 1 || !reason.Is(said[0], one.code) || reason.Of(said[0]).Hint == "" {
				t.Errorf("it says %v", said)
			}
			if one.count != nil && one.count(w.machine.Status().Refused) != 1 {
				t.Errorf("counted are %+v", w.machine.Status().Refused)
			}
			w.pass(time.Minute)
			w.has(t, five, "after it")
			w.boot()
			w.pass(time.Minute)
			w.has(t, five, "after a restart")
		})
	}
	w := calm(t, 20)
	w.feed(StatementCame{Signed: []byte("nothing of the kind")})
	equal(t, w.machine.Status().Refused.Forged, uint64(1), "what cannot be read")
	fresh := newWorld(t, 1)
	fresh.server.publish(filled(web, 5, "first"))
	fresh.boot()
	fresh.bring(fresh.signStatement(fresh.statementOf(fresh.layer().with("claim1", "ordered"), 1)))
	equal(t, fresh.doubts[DoubtStatement], 1, "statements to a host that has no head yet")
}

// TestStatementAlarms: of two statements with one number, the first counts, and a person gets to see both.
func TestStatementAlarms(t *testing.T) {
	w := calm(t, 20)
	first := w.signStatement(w.statementOf(w.layer().with("claim5", "one"), 5))
	w.bring(first)
	second := w.signStatement(w.statementOf(w.layer().with("claim5", "two"), 5))
	for range 3 {
		w.bring(second)
	}
	equal(t, w.alarms, 1, "alarms")
	w.bring(first)
	equal(t, w.alarms, 1, "alarms after the first once more")
	equal(t, w.machine.Status().Refused.Equivocation, uint64(3), "what was counted")
}

// TestStatementJudged: what the host refuses of a statement leaves what was there, and is not tried again.
func TestStatementJudged(t *testing.T) {
	w := calm(t, 20)
	w.refuses = func(s State) wire.Verdict {
		if s.rootOf(web) == w.server.orders[len(w.server.orders)-1].trie.Root() && len(w.server.orders) == 2 {
			return wire.Verdict{Type: wire.Withheld, Code: reason.DeletionsWithheld, Message: "it deletes much"}
		}
		return wire.Verdict{Type: wire.Applied}
	}
	good := w.layer().with("claim1", "good")
	w.bring(w.signStatement(w.statementOf(good, 1)))
	bad := w.signStatement(w.statementOf(newLayer(web), 2))
	w.bring(bad)
	w.has(t, good, "after a statement that is withheld")
	s := w.machine.Status()
	if len(s.Statements) != 2 || s.Statements[0].Number != 1 || s.Statements[0].Code != 0 || s.Statements[1].Number != 2 || s.Statements[1].Code != reason.DeletionsWithheld {
		t.Errorf("it reports %+v", s.Statements)
	}
	if s.Open || w.disk.kept.Verdict.Type != wire.Pending {
		t.Errorf("the head is blamed: %+v", w.disk.kept.Verdict)
	}
	trials := len(w.trials)
	w.bring(bad)
	w.boot()
	w.tellNewest()
	w.bring(bad)
	equal(t, len(w.trials), trials, "trials after it was refused")
	w.has(t, good, "after a restart")
	third := w.layer().with("claim1", "third")
	w.bring(w.signStatement(w.statementOf(third, 3)))
	w.has(t, third, "after the next one")
	equal(t, len(w.machine.Status().Statements), 1, "what is told of statements then")
}

// TestStatementIsTriedAcrossDeaths: a host that dies with a statement on trial goes on with it, and one that it died of too often is given up.
func TestStatementIsTriedAcrossDeaths(t *testing.T) {
	w := calm(t, 20)
	declared := w.layer()
	ordered := w.layer().with("claim1", "deadly")
	w.cannot = func() error {
		if len(w.disk.kept.Statements) > 0 && w.disk.kept.Statements[0].Open {
			return &reason.Error{Code: reason.Interrupted, Doing: "end"}
		}
		return nil
	}
	w.feed(StatementCame{Signed: w.signStatement(w.statementOf(ordered, 1))})
	w.pass(100 * time.Millisecond)
	k := w.disk.kept.Statements[0]
	if !k.Open || k.InForce == nil || k.Coming != nil || k.State.Version != 1 {
		t.Fatalf("kept is %+v", k)
	}
	w.cannot = nil
	handed := len(w.activated)
	w.boot()
	w.has(t, ordered, "after the death")
	equal(t, len(w.activated), handed+1, "states handed over: the head alone was not among them")

	blamed, found := Blame(w.disk.kept.Statements, wire.Verdict{Type: wire.Quarantined, Epoch: k.State.Epoch, Version: k.State.Version, Root: k.State.Root})
	if !found || blamed[0].InForce != nil || blamed[0].Verdict.Type != wire.Quarantined {
		t.Fatalf("blamed is %+v", blamed)
	}
	w.disk.kept.Statements = blamed
	w.boot()
	w.pass(time.Minute)
	w.has(t, declared, "after it was given up")
	if _, found := Blame(blamed, wire.Verdict{Type: wire.Quarantined, Epoch: 1, Version: 1, Root: w.server.newest().root}); found {
		t.Error("a statement is blamed for the head")
	}
}

// TestStatementWithoutServers: the newest head was accepted, and nobody has its content any more. The statement is for what is enforced.
func TestStatementWithoutServers(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := calm(t, 20)
		declared := w.layer()
		p := w.server.publish(w.layer(), filled("NodeConfig/x/lost", 50, "lost"))
		lost := w.server.lists[p.root]
		delete(w.server.lists, p.root)
		w.feed(HeadCame{Signed: w.server.head(p, w.now)})
		w.pass(10 * time.Minute)
		equal(t, w.active.Version, 1, "the version without its content")
		ordered := declared.with("claim1", "ordered")
		signed := w.signStatement(w.statementOf(ordered, 1))
		if restart {
			w.boot()
			w.pass(time.Minute)
		}
		w.bring(signed)
		w.has(t, ordered, "after the statement")
		w.server.lists[p.root] = lost
		w.pass(5 * time.Minute)
		equal(t, w.active.Version, 2, "the version when its content is there again")
		w.has(t, ordered, "with the newest head")
	}
}

// TestStatementWhileTheHeadIsRefused: a statement is for what is enforced, also after a restart.
func TestStatementWhileTheHeadIsRefused(t *testing.T) {
	w := calm(t, 20)
	first := w.layer()
	w.refuses = func(s State) wire.Verdict {
		if s.Mark.Version == 2 {
			return wire.Verdict{Type: wire.Withheld, Code: reason.DeletionsWithheld}
		}
		return wire.Verdict{Type: wire.Applied}
	}
	w.server.publish(newLayer(web))
	w.tellNewest()
	one := first.with("claim1", "one")
	w.bring(w.signStatement(w.statementOf(one, 1)))
	w.has(t, one, "in the same run")
	w.boot()
	w.tellNewest()
	two := first.with("claim1", "two")
	w.bring(w.signStatement(w.statementOf(two, 2)))
	w.has(t, two, "after a restart")
	equal(t, w.machine.Status().Verdict.Type, wire.Withheld, "the verdict on the head")
	equal(t, w.active.Version, 1, "the version")
}

// TestStatementEndsBeforeAPoison: a statement has replaced what kills the host. When it does not count any more, what it has replaced is the state
// that was quarantined, under an older version; so what the host has stays.
func TestStatementEndsBeforeAPoison(t *testing.T) {
	w := calm(t, 20)
	first := w.layer()
	ordered := first.with("claim3", "ordered")
	w.bring(w.signStatement(w.statementOf(ordered, 7)))
	deadly := first.with("claim4", "deadly")
	w.server.publish(deadly)
	w.tellNewest()
	w.has(t, ordered, "when the servers declare what kills it")
	deaths := 0
	w.refuses = func(s State) wire.Verdict {
		if s.rootOf(web) == deadly.trie.Root() {
			deaths++
			return wire.Verdict{Type: wire.Quarantined, Code: reason.StateQuarantined}
		}
		return wire.Verdict{Type: wire.Applied}
	}
	trusts := func(edit trust.Edit) {
		w.server.by.change(w.t, w.now, edit)
		w.believed = w.server.by.chain
		w.feed(Trusted{Chain: w.believed})
		w.pass(time.Minute)
	}
	trusts(trust.BumpEpoch())
	h := w.server.headOf(w.server.publish(deadly), w.now)
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.pass(time.Minute)
	equal(t, deaths, 1, "deaths of the epoch that ends the statement")
	trusts(trust.Revoke(w.server.by.operator.Public().ID()))
	equal(t, deaths, 1, "deaths when its key is revoked")
	w.has(t, ordered, "at last")
	equal(t, w.machine.Status().Verdict.Type, wire.Quarantined, "the verdict on the head")
	mended := first.with("claim4", "mended")
	h = w.server.headOf(w.server.publish(mended), w.now)
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.pass(time.Minute)
	w.has(t, mended, "when it is mended")
}

// TestStatementsAreBounded: as many layers as a host keeps statements about; what has expired and is not in force makes room.
func TestStatementsAreBounded(t *testing.T) {
	w := newWorld(t, 1)
	var layers []layer
	for i := range StatementsMax + 2 {
		layers = append(layers, filled(fmt.Sprintf("NodeConfig/x/%03d", i), 2, "first"))
	}
	w.server.publish(layers...)
	w.boot()
	w.tellNewest()
	for i := range StatementsMax {
		w.bring(w.signStatement(w.statementOf(layers[i].with("claim1", "ordered"), 1)))
	}
	equal(t, len(w.machine.Status().Statements), StatementsMax, "statements in force")
	w.bring(w.signStatement(w.statementOf(layers[StatementsMax].with("claim1", "ordered"), 1)))
	equal(t, w.doubts[DoubtStatement], 1, "statements that were refused")
	w.server.publish(layers[1:]...) // one of them ends
	w.tellNewest()
	w.pass(25 * time.Hour)
	w.tellNewest()
	w.bring(w.signStatement(w.statementOf(layers[StatementsMax].with("claim1", "ordered"), 1)))
	equal(t, w.doubts[DoubtStatement], 1, "statements that were refused after another one made room")
	w.has(t, w.server.orders[len(w.server.orders)-1], "the one that there is room for now")
}

// TestStatementOnAFullDisk: it is not accepted before it is durable, and is tried again.
func TestStatementOnAFullDisk(t *testing.T) {
	w := calm(t, 20)
	declared, ordered := w.layer(), w.layer().with("claim1", "ordered")
	w.disk.full = true
	w.bring(w.signStatement(w.statementOf(ordered, 1)))
	w.has(t, declared, "on a full disk")
	s := w.machine.Status()
	if len(s.Coming) != 1 || s.Coming[0].Code != reason.DiskFull || s.Open {
		t.Errorf("it reports %+v", s)
	}
	w.pass(10 * time.Minute)
	if w.disk.refused > 40 {
		t.Errorf("the full disk was written to %d times", w.disk.refused)
	}
	w.disk.full = false
	w.pass(5 * time.Minute)
	w.has(t, ordered, "when there is room")
}

// A statement that was replayed by anybody changes nothing, over a restart: the highest number is durable.
func TestTransferCase25_OldStatementFromAnybody(t *testing.T) {
	c := casetest.Start(t)
	w := calm(t, 20)
	old := w.signStatement(w.statementOf(w.layer().with("claim3", "old"), 1))
	w.bring(old)
	newer := w.layer().with("claim3", "newer")
	w.bring(w.signStatement(w.statementOf(newer, 2)))
	w.bring(old)
	w.boot()
	w.tellNewest()
	w.bring(old)
	c.Equal(w.taken.rootOf(web), newer.trie.Root(), "the layer that is enforced")
	c.Equal(w.machine.Status().Refused.Old, uint64(2), "statements that were refused, over a restart")
}

// TestAbsorbedUnseen: an order that the declarations have caught up with is taken by no host any more, also by one that hears of it only now.
func TestAbsorbedUnseen(t *testing.T) {
	w := calm(t, 100)
	order := w.signStatement(w.statementOf(w.layer().with("claim3", "ordered"), 7))
	w.server.publish(w.layer().with("claim3", "ordered and then changed"))
	declared := w.layer()
	h := w.server.headOf(w.server.newest(), w.now)
	h.Absorbed = []catalog.AbsorbedNumber{{Layer: web, Number: 7}}
	w.feed(HeadCame{Signed: w.server.sign(h)})
	w.pass(time.Minute)
	w.bring(order)
	w.has(t, declared, "after the order")
	equal(t, w.machine.Status().Refused.Old, 1, "orders that were refused")
	next := w.layer().with("claim3", "ordered again")
	w.bring(w.signStatement(w.statementOf(next, 8)))
	w.has(t, next, "after the next order")
}

// TestOrderedLayerIsLost: a layer that an operator has ordered is at no server. Where the disk has damaged it the host says what it waits for, and
// takes it from whoever brings the order once more, as a whole; then it goes on with the newest head.
func TestOrderedLayerIsLost(t *testing.T) {
	w := calm(t, 100)
	ordered := w.layer().with("claim3", "ordered")
	order := w.signStatement(w.statementOf(ordered, 7))
	w.bring(order)
	w.has(t, ordered, "after the statement")

	orders := w.server.orders
	w.server.orders = nil
	w.disk.damage(ordered.trie.Root(), 3)
	w.feed(Reread{})
	w.server.publish(w.layer(), filled("NodeConfig/x/other", 10, "new"))
	w.tellNewest()
	w.pass(10 * time.Minute)
	if s := w.machine.Status(); !s.Stuck || s.Verdict.Code != reason.RootUnknown || s.Verdict.Version != 2 {
		t.Errorf("while nobody has the layer it reports %+v", s.Verdict)
	}
	before := w.requests
	w.pass(10 * time.Minute)
	if n := w.requests - before; n > 30 {
		t.Errorf("it makes %d requests in ten minutes", n)
	}

	w.server.orders, w.server.whole = orders, true
	w.bring(order)
	w.pass(3 * time.Minute)
	w.has(t, ordered, "after the order was brought again")
	if s := w.machine.Status(); w.active.Version != 2 || s.Open {
		t.Errorf("it is at version %d, and reports %+v", w.active.Version, s.Verdict)
	}
}
