package agent

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/place"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// order writes an order into a file. change may be nil.
func (c *centre) order(id string, number uint64, key *trust.SigningKey, change func(*catalog.Statement), resources ...declare.Resource) string {
	c.t.Helper()
	items, err := catalog.Compile(resources)
	must(c.t, err)
	now := time.Now()
	st := catalog.Statement{Cluster: c.id, Layer: id, Epoch: 1, Number: number, Root: catalog.TrieOf(items).Root(), Issued: now.Unix(), Expires: now.Add(time.Hour).Unix()}
	for i := range items {
		st.Bytes += uint64(len(items[i].Body))
	}
	if change != nil {
		change(&st)
	}
	signed, err := st.Sign(key)
	must(c.t, err)
	encoded, err := signed.Encode()
	must(c.t, err)
	var file bytes.Buffer
	must(c.t, catalog.WriteOrder(&file, encoded, items))
	path := filepath.Join(c.t.TempDir(), "a.order")
	must(c.t, os.WriteFile(path, file.Bytes(), 0o600))
	return path
}

func (s *site) accept(path string) (*Brought, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	return local.Accept(ctx, s.opts.StateDir, path)
}

func statementIn(r *Report, number uint64, state StatementState) bool {
	if r.Cluster == nil {
		return false
	}
	for _, s := range r.Cluster.Statements {
		if s.Number == number && s.State == state {
			return true
		}
	}
	return false
}

// TestOrder: with every server gone, an order is enforced, kept over a restart, and told when there is a server again; it ends when that
// declares the same.
func TestOrder(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a", "b")...))
	c.settles(m, wire.Applied)
	c.gone(true)
	path := c.order("NodeConfig/web", 7, c.operator, nil, textOf("a", "ordered"), fileOf("b"))
	b, err := s.accept(path)
	if err != nil || len(b.Statements) != 1 || b.Statements[0].Number != 7 {
		t.Fatalf("brought is %+v, %v", b, err)
	}
	r := s.until("it is enforced", func(r *Report) bool { return statementIn(r, 7, StatementInForce) && r.Converged && r.Settled })
	s.holds("a", "ordered")
	s.holds("b", "text of b")
	if r.Cluster.Version != m.Version || len(r.Refused) > 0 {
		t.Errorf("status %+v", r.Cluster)
	}
	must(t, os.Remove(path))
	stop()
	s.edit("a", "theirs")
	stop = s.watch()
	s.until("it is converged after a restart", func(r *Report) bool { return r.Converged && r.Settled && statementIn(r, 7, StatementInForce) })
	s.holds("a", "ordered")

	c.gone(false)
	told := c.until("it is told", func(r *wire.Report) bool { return len(r.Statements) == 1 && r.Verdict.Type == wire.Applied })
	if told.Statements[0].Layer != "NodeConfig/web" || told.Statements[0].Number != 7 || told.Statements[0].Code != 0 || told.Verdict.Root != m.Root || told.Enforced.Version != m.Version {
		t.Errorf("told is %+v, with the verdict %+v", told.Statements, told.Verdict)
	}
	m = c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "ordered"), fileOf("b")))
	c.until("it has ended", func(r *wire.Report) bool { return r.Enforced.Version == m.Version && len(r.Statements) == 0 })
	m = c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "declared"), fileOf("b")))
	c.settles(m, wire.Applied)
	s.holds("a", "declared")
	stop()
}

// TestOrderRefused: whoever brings an order is told which check failed, and nothing changes.
func TestOrderRefused(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a")...)), wire.Applied)
	if _, err := s.accept(c.order("NodeConfig/web", 7, c.operator, nil, textOf("a", "ordered"))); err != nil {
		t.Fatal(err)
	}
	s.until("it is enforced", func(r *Report) bool { return statementIn(r, 7, StatementInForce) && r.Settled })
	text := textOf("a", "forged")
	cut := c.order("NodeConfig/web", 9, c.operator, nil, text)
	whole, err := os.ReadFile(cut)
	must(t, err)
	must(t, os.WriteFile(cut, whole[:len(whole)-1], 0o600))
	for name, one := range map[string]struct {
		path string
		code reason.Code
	}{
		"by the servers' key":   {c.order("NodeConfig/web", 9, c.heads, nil, text), reason.HeadRefused},
		"an old one":            {c.order("NodeConfig/web", 6, c.operator, nil, text), reason.StatementRefused},
		"another one":           {c.order("NodeConfig/web", 7, c.operator, nil, text), reason.StatementRefused},
		"expired":               {c.order("NodeConfig/web", 9, c.operator, func(st *catalog.Statement) { st.Issued, st.Expires = 1, 2 }, text), reason.StatementRefused},
		"about another config":  {c.order("NodeConfig/other", 9, c.operator, nil, text), reason.StatementRefused},
		"with another layer":    {c.order("NodeConfig/web", 9, c.operator, func(st *catalog.Statement) { st.Root = catalog.KeyOf("x") }, text), reason.TransferWrong},
		"of more than it says":  {c.order("NodeConfig/web", 9, c.operator, func(st *catalog.Statement) { st.Bytes = 1 }, text), reason.PlaceUnusable},
		"cut off":               {cut, reason.StateCorrupt},
		"that is not there":     {filepath.Join(t.TempDir(), "none"), reason.PlaceUnusable},
		"that is no file":       {"/dev/null", reason.PlaceUnusable},
		"an empty directory":    {t.TempDir(), reason.PlaceUnusable},
		"that is anything else": {"/proc/self/status", reason.StateCorrupt},
	} {
		if _, err := s.accept(one.path); !reason.Is(err, one.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.holds("a", "ordered")
	alone := newSite(t)
	alone.declare("a")
	alone.watch()
	alone.until("it runs", func(r *Report) bool { return r.Settled })
	if _, err := alone.accept(cut); !reason.Is(err, reason.HostNotJoined) {
		t.Errorf("on a host that stands alone: %v", err)
	}
}

// TestOrderIsWithheld: the blast guard holds for orders as for heads, and the head is not blamed.
func TestOrderIsWithheld(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf(namesOf("f", 12)...)...))
	c.settles(m, wire.Applied)
	if _, err := s.accept(c.order("NodeConfig/web", 1, c.operator, nil, fileOf("only"))); err != nil {
		t.Fatal(err)
	}
	refused := func(r *wire.Report) bool {
		return len(r.Statements) == 1 && r.Statements[0].Code == reason.DeletionsWithheld
	}
	r := c.until("it is withheld", refused)
	if r.Verdict.Type != wire.Applied || r.Enforced != m {
		t.Errorf("it reports %+v", r.Verdict)
	}
	s.holds("faa", "text of faa")
	stop()
	s.watch()
	c.until("it is so after a restart", func(r *wire.Report) bool { return r.Session.Start == 2 && refused(r) })
	local := s.until("it says so", func(r *Report) bool { return statementIn(r, 1, StatementRefused) })
	if len(local.Refused) > 0 || local.Cluster.Statements[0].Problem == nil || local.Cluster.Statements[0].Problem.Code != reason.DeletionsWithheld {
		t.Errorf("status %+v", local.Cluster.Statements)
	}
	s.holds("faa", "text of faa")
}

// TestOrderThatKills: a state that the agent died of because of an order is given up for the one before, and so is the order.
func TestOrderThatKills(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(m, wire.Applied)
	if _, err := s.accept(c.order("NodeConfig/web", 1, c.operator, nil, textOf("a", "poison"))); err != nil {
		t.Fatal(err)
	}
	c.until("it is enforced", func(r *wire.Report) bool { return len(r.Statements) == 1 && r.Verdict.Type == wire.Applied })
	stop()
	// As three deaths on the way to it would have left it.
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	if life.Before != m || life.Enforced.Version != m.Version || life.Enforced.Root == m.Root {
		t.Fatalf("the life is %+v", life)
	}
	life.Settled, life.Trial = false, held.Trial{Epoch: m.Epoch, Version: m.Version, Root: life.Enforced.Root, Deaths: 2, Open: true}
	must(t, h.SetLife(life))
	must(t, h.Close())
	s.watch()
	r := c.until("it is given up", func(r *wire.Report) bool {
		return r.Session.Start == 2 && len(r.Statements) == 1 && r.Statements[0].Code == reason.StateQuarantined && r.Verdict.Type == wire.Applied
	})
	if r.Enforced.Root != m.Root {
		t.Errorf("enforced is %+v", r.Enforced)
	}
	s.until("it is converged", func(r *Report) bool { return r.Converged && r.Settled && len(r.Refused) == 0 })
	s.holds("a", "text of a")
}

// fill writes what the host is to have into a directory, as an export does.
func (c *centre) fill(dir string) *place.Writer {
	c.t.Helper()
	w, err := place.NewWriter(dir)
	must(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, h, err := catalog.DecodeHead(c.head)
	must(c.t, err)
	root, _ := h.Root()
	list, err := catalog.DecodeList(c.lists[root])
	must(c.t, err)
	for _, l := range list {
		var rows bytes.Buffer
		layer := c.layers[l.Root]
		must(c.t, catalog.WriteRows(&rows, layer.trie.Len(), func(yield func(catalog.Digest, []byte) bool) {
			for r := range layer.trie.From(catalog.Digest{}) {
				if !yield(r.Key, layer.bodies[r.Digest]) {
					return
				}
			}
		}))
		must(c.t, w.Layer(l.Root, &rows))
	}
	must(c.t, w.List(c.lists[root]))
	must(c.t, w.Trust(c.chain))
	must(c.t, w.Head(nodeUID, c.head))
	return w
}

// TestAcceptDirectory: with every server gone, a head comes from a directory with all that it names, and a statement beside it.
func TestAcceptDirectory(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a"))), wire.Applied)
	c.gone(true)
	m := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "from a stick"), fileOf("b")), c.config("NodeConfig/more", 4, fileOf("c")))
	dir := t.TempDir()
	w := c.fill(dir)
	b, err := s.accept(dir)
	if err != nil || b.Version != m.Version || !b.News {
		t.Fatalf("brought is %+v, %v", b, err)
	}
	s.until("it is enforced", func(r *Report) bool {
		return r.Cluster != nil && r.Cluster.Version == m.Version && r.Converged && r.Settled
	})
	s.holds("a", "from a stick")
	s.holds("c", "text of c")
	c.mu.Lock()
	fetched := c.fetched
	c.mu.Unlock()

	order, err := os.Open(c.order("NodeConfig/more", 1, c.operator, nil, textOf("c", "ordered")))
	must(t, err)
	defer order.Close()
	statement, rows, err := catalog.ReadOrder(order)
	must(t, err)
	_, st, err := catalog.DecodeStatement(statement)
	must(t, err)
	must(t, w.Layer(st.Root, rows))
	must(t, w.Statement(statement))
	if b, err = s.accept(dir); err != nil || b.News || len(b.Statements) != 1 {
		t.Fatalf("brought is %+v, %v", b, err)
	}
	s.until("it is enforced", func(r *Report) bool { return statementIn(r, 1, StatementInForce) && r.Converged && r.Settled })
	s.holds("c", "ordered")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fetched != fetched {
		t.Errorf("%d calls of servers that are gone", c.fetched-fetched)
	}
}

// An old head in a directory is refused, as from anybody, also after a restart; so is one of another host, and a forged one.
func TestTransferCase25_OldHeadFromADirectory(t *testing.T) {
	x := casetest.Start(t)
	s, c := joinedSite(t)
	stop := s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "old"))), wire.Applied)
	old := t.TempDir()
	w := c.fill(old)
	m := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "new")))
	c.settles(m, wire.Applied)
	c.gone(true)
	for range 2 {
		_, err := s.accept(old)
		x.Check(reason.Is(err, reason.HeadRefused), "an old head: %v", err)
		stop()
		stop = s.watch()
		s.until("it runs again", func(r *Report) bool { return r.Converged && r.Settled && r.Cluster.Version == m.Version })
	}
	forged := bytes.Clone(c.head)
	forged[len(forged)-1] ^= 1
	x.NoError(w.Head(nodeUID, forged), "write a forged head")
	_, err := s.accept(old)
	x.Check(reason.Is(err, reason.HeadRefused), "a forged head: %v", err)
	r := s.until("it counts them", func(r *Report) bool { return r.Cluster.Disbelieved != nil })
	x.Equal(r.Cluster.Disbelieved.Old, uint64(2), "old heads that were counted, over a restart")
	x.Equal(s.reads("a"), "new", "the content of the file")
}
