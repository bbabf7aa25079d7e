package held

import (
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// TestProof: the newest head that was accepted proves something, and what is repeated or ordered does not; the time never goes back behind what was
// verified; and who only looks sees the same.
func TestProof(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	const day = 24 * 3600
	at := func(issued int64) catalog.Mark {
		m := mark(3, catalog.KeyOf("root"))
		m.Issued, m.Expires = issued, issued+day
		return m
	}
	const begin = 4_000_000_000 // behind the time at which any program was built
	check := func(what string, clock, issued, now int64) {
		t.Helper()
		looking, err := Inspect(dir)
		must(t, err)
		for _, of := range []*Store{s, looking} {
			p := of.Proof(time.Unix(clock, 0))
			if p.Issued.Unix() != issued || p.Now.Unix() != now {
				t.Errorf("%s: issued %d, now %d; want %d, %d", what, p.Issued.Unix(), p.Now.Unix(), issued, now)
			}
		}
		must(t, looking.Close())
	}
	check("nothing was heard", begin, 0, begin)
	must(t, s.Accept(at(begin), []byte("head")))
	check("a head", begin+60, begin, begin+60)
	must(t, s.Accept(at(begin+3600), []byte("later")))
	check("a later issue", begin+7200, begin+3600, begin+7200)
	must(t, s.Accept(at(begin), []byte("head")))
	check("one that is repeated", begin+7200, begin+3600, begin+7200)
	check("a clock that is behind", begin, begin+3600, begin+3600)
	must(t, s.SetStatements([]core.Statement{{Layer: "a", Epoch: 1, Number: 1, Issued: begin + day}}))
	check("a statement, with a clock that is behind", begin, begin+3600, begin+day)
	must(t, s.Close())
	s = open(t, dir)
	check("after a restart", begin+2*day, begin+3600, begin+2*day)
}

// TestJudged: what the newest head says is enforced, was refused, or is on its way.
func TestJudged(t *testing.T) {
	s := open(t, t.TempDir())
	one, two := mark(1, catalog.KeyOf("one")), mark(2, catalog.KeyOf("two"))
	check := func(what string, want bool) {
		t.Helper()
		if got := s.Judged(); got != want {
			t.Errorf("%s: %t", what, got)
		}
	}
	told := 0
	writes := s.Telling(func() { told++ })
	check("nothing was heard", true)
	must(t, writes.Accept(one, []byte("one")))
	check("a first head", false)
	must(t, s.SetLife(Life{Enforced: one}))
	check("it is enforced", true)
	must(t, writes.Accept(two, []byte("two")))
	check("a newer one", false)
	must(t, writes.Remember(wire.Verdict{Type: wire.Rejected, Epoch: 1, Version: 2, Root: two.Root, Code: reason.PriorityConflict}))
	check("that is refused", true)
	if err := writes.Accept(one, []byte("one")); err == nil {
		t.Error("an older one was accepted")
	}
	if told != 4 {
		t.Errorf("it was told %d times", told)
	}
}

// TestDataOfExpires: data of which the TTL is over gives way to what is below it, and is not listed.
func TestDataOfExpires(t *testing.T) {
	s := open(t, t.TempDir())
	var all []catalog.Layer
	for i, of := range [][]declare.Resource{
		{{Name: "a", TTL: "6h", Data: &declare.Data{Key: "a", Value: "high"}}, {Name: "b", TTL: "3h", Data: &declare.Data{Key: "b", Value: "high"}}},
		{{Name: "a", Data: &declare.Data{Key: "a", Value: "low"}}},
	} {
		items, err := catalog.Compile(of)
		must(t, err)
		id := string(rune('x' + i))
		all = append(all, catalog.Layer{Priority: 9 - i, ID: id, Root: putItems(t, s, id, items)})
	}
	root := putList(t, s, all...)
	aged := func(d time.Duration) catalog.Proof {
		return catalog.Proof{Issued: time.Unix(1_800_000_000, 0), Now: time.Unix(1_800_000_000, 0).Add(d)}
	}
	for _, c := range []struct {
		age  time.Duration
		a, b string
		keys int
	}{{0, "high", "high", 2}, {3 * time.Hour, "high", reason.ResourceExpired.String(), 1}, {6 * time.Hour, "low", reason.ResourceExpired.String(), 1}} {
		for key, want := range map[string]string{"a": c.a, "b": c.b} {
			d, err := s.DataOf(root, key, aged(c.age))
			got := d.Value
			if err != nil {
				got = reason.Of(err).Code.String()
			}
			if got != want {
				t.Errorf("after %s %s is %q, want %q", c.age, key, got, want)
			}
		}
		if keys, err := s.Keys(root, "", "", 10, aged(c.age)); err != nil || len(keys) != c.keys {
			t.Errorf("after %s there are %v, %v", c.age, keys, err)
		}
	}
}
