// Package clienttest says what a client.Store must do (Suite), and has one that keeps everything in memory.
package clienttest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// Suite tests a kind of store. open opens what is at a place, which is empty when it is named for the first time; the store that was
// opened there before is not used any more. A kind that keeps nothing passes durable as false, and is not opened again.
func Suite(t *testing.T, durable bool, open func(t *testing.T, place string) client.Store) {
	tests := []struct {
		name string
		test func(t *testing.T, s *session)
	}{
		{"an empty store", testEmpty},
		{"a mark never goes back", testMark},
		{"a verdict is on the mark", testVerdict},
		{"a statement never goes back", testStatements},
		{"lists by their roots", testLists},
		{"a layer from nothing", testSnapshot},
		{"a layer from another", testDelta},
		{"a stage is resumed", testResume},
		{"a stage is of one fetch", testOther},
		{"what does not lead there is refused", testWrong},
		{"a layer of no entries", testNothing},
		{"a body at the bound", testLarge},
	}
	for _, one := range tests {
		t.Run(one.name, func(t *testing.T) {
			s := &session{t: t, durable: durable, open: func() client.Store { return open(t, t.Name()) }}
			s.Store = s.open()
			one.test(t, s)
		})
	}
}

// session is one test's store.
type session struct {
	client.Store
	t       *testing.T
	durable bool
	open    func() client.Store
}

// again opens the store again, as after a restart.
func (s *session) again() {
	if s.durable {
		s.Store = s.open()
	}
}

func (s *session) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) kept() core.Kept {
	s.t.Helper()
	k, err := s.Kept()
	s.must(err)
	return k
}

func testStatements(_ *testing.T, s *session) {
	statement := func(layer string, epoch, number uint64) core.Statement {
		return core.Statement{Layer: layer, Epoch: epoch, Number: number, Root: catalog.KeyOf(fmt.Sprint(number)), Coming: []byte("signed")}
	}
	s.must(s.SetStatements([]core.Statement{statement("a", 1, 5), statement("b", 1, 7)}))
	for name, list := range map[string][]core.Statement{
		"a lower number":               {statement("a", 1, 4), statement("b", 1, 7)},
		"a lower epoch":                {statement("a", 0, 9)},
		"a lower number beside others": {statement("a", 1, 6), statement("b", 1, 6)},
	} {
		if err := s.SetStatements(list); !reason.Is(err, reason.StatementRefused) {
			s.t.Errorf("%s: %v", name, err)
		}
	}
	s.again()
	kept := s.kept().Statements
	if len(kept) != 2 || kept[0].Number != 5 || kept[1].Number != 7 || string(kept[0].Coming) != "signed" || kept[0].Root != catalog.KeyOf("5") {
		s.t.Errorf("kept are %+v", kept)
	}
	s.must(s.SetStatements([]core.Statement{statement("a", 2, 1)}))
	s.again()
	if kept = s.kept().Statements; len(kept) != 1 || kept[0].Epoch != 2 {
		s.t.Errorf("of the next epoch are kept %+v", kept)
	}
}

// Rows makes wire changes of so many bodies, in the order of their keys, and the trie that they make.
func Rows(count int, text string) ([]wire.Change, catalog.Trie) {
	changes, rows := make([]wire.Change, 0, count), make([]catalog.Row, 0, count)
	for i := range count {
		body := fmt.Appendf(nil, "%s %d", text, i)
		c := wire.Change{Key: catalog.KeyOf(fmt.Sprint("claim", i)), Body: body}
		changes = append(changes, c)
		rows = append(rows, catalog.Row{Key: c.Key, Digest: sha256.Sum256(body)})
	}
	slices.SortFunc(changes, func(a, b wire.Change) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return changes, catalog.Build(rows)
}

// put stores a layer from nothing.
func (s *session) put(changes []wire.Change, t catalog.Trie) {
	s.t.Helper()
	staged, err := s.Begin(core.Fetch{Layer: "NodeConfig/a/b", Target: t.Root()})
	s.must(err)
	if staged.Count > 0 {
		s.t.Fatalf("%d changes were staged before", staged.Count)
	}
	if len(changes) > 0 {
		s.must(s.Append(changes))
	}
	s.must(s.Commit(t))
}

// has checks that a layer is there, with all its bodies.
func (s *session) has(changes []wire.Change, t catalog.Trie) {
	s.t.Helper()
	got, found, err := s.Trie(t.Root())
	s.must(err)
	if !found || got.Root() != t.Root() {
		s.t.Fatalf("layer %s is there: %v, with the root %s", t.Root(), found, got.Root())
	}
	for i := range changes {
		body, err := s.Body(t.Root(), changes[i].Key)
		s.must(err)
		if !bytes.Equal(body, changes[i].Body) {
			s.t.Fatalf("at %s is %.60q, want %.60q", changes[i].Key, body, changes[i].Body)
		}
	}
}

// hasNot checks that a layer is not there.
func (s *session) hasNot(root catalog.Digest) {
	s.t.Helper()
	if _, found, err := s.Trie(root); found || err != nil {
		s.t.Errorf("layer %s is there: %v (%v)", root, found, err)
	}
}

func testEmpty(t *testing.T, s *session) {
	if k := s.kept(); k.Mark != (catalog.Mark{}) || k.Head != nil || k.Verdict.Type != wire.Pending || k.Refused != (wire.Refused{}) {
		t.Errorf("it keeps %+v", k)
	}
	lists, err := s.Lists()
	if len(lists) > 0 || err != nil {
		t.Errorf("it has lists: %v (%v)", lists, err)
	}
	if l, err := s.List(catalog.KeyOf("x")); l != nil || err != nil {
		t.Errorf("it has a list: %q (%v)", l, err)
	}
	s.hasNot(catalog.KeyOf("x"))
	if b, err := s.Body(catalog.KeyOf("x"), catalog.KeyOf("y")); b != nil || err != nil {
		t.Errorf("it has a body: %q (%v)", b, err)
	}
	s.must(s.Drop())
}

func mark(epoch, version uint64, root string) catalog.Mark {
	return catalog.Mark{Epoch: epoch, Version: version, Root: catalog.KeyOf(root), Issued: 1_800_000_000, Expires: 1_800_086_400}
}

func testMark(t *testing.T, s *session) {
	first, second, epoch := mark(1, 7, "a"), mark(1, 9, "b"), mark(2, 3, "c")
	s.must(s.Accept(first, []byte("seven")))
	s.again()
	if k := s.kept(); k.Mark != first || string(k.Head) != "seven" {
		t.Errorf("it keeps %+v", k)
	}
	s.must(s.Accept(second, []byte("nine")))
	for _, lower := range []catalog.Mark{first, mark(1, 8, "x"), mark(0, 100, "x"), mark(1, 9, "other")} {
		if err := s.Accept(lower, []byte("lower")); !reason.Is(err, reason.HeadRefused) {
			t.Errorf("accept %+v: %v", lower, err)
		}
	}
	later := second
	later.Issued, later.Expires = second.Issued+3600, second.Expires+3600
	s.must(s.Accept(later, []byte("nine again")))
	s.again()
	if k := s.kept(); k.Mark != later || string(k.Head) != "nine again" {
		t.Errorf("it keeps %+v", k)
	}
	s.must(s.Accept(epoch, []byte("epoch")))
	s.again()
	if k := s.kept(); k.Mark != epoch {
		t.Errorf("it keeps %+v", k)
	}
}

func testVerdict(t *testing.T, s *session) {
	m := mark(1, 7, "a")
	v := wire.Verdict{Type: wire.Rejected, Epoch: 1, Version: 7, Root: m.Root, Code: reason.StateCorrupt, Message: "why", Since: 5}
	s.must(s.Accept(m, []byte("h")))
	other := v
	other.Version = 8
	s.must(s.Remember(other))
	if k := s.kept(); k.Verdict.Type != wire.Pending {
		t.Errorf("a verdict on another version is remembered: %+v", k.Verdict)
	}
	s.must(s.Count(wire.Refused{Old: 3}))
	s.must(s.Remember(v))
	s.again()
	if k := s.kept(); k.Verdict != v || k.Refused.Old != 3 {
		t.Errorf("it keeps %+v", k)
	}
	later := m
	later.Issued, later.Expires = m.Issued+1, m.Expires+1
	s.must(s.Accept(later, []byte("h2")))
	if k := s.kept(); k.Verdict != v {
		t.Errorf("a later expiry forgets the verdict: %+v", k.Verdict)
	}
	s.must(s.Accept(mark(1, 8, "b"), []byte("h3")))
	s.again()
	if k := s.kept(); k.Verdict.Type != wire.Pending || k.Refused.Old != 3 {
		t.Errorf("it keeps %+v", k)
	}
}

func testLists(t *testing.T, s *session) {
	var roots []catalog.Digest
	for i := range 3 {
		l, err := catalog.NewList(catalog.Layer{Priority: 100 + i, ID: "NodeConfig/a/b", Root: catalog.KeyOf("r")})
		s.must(err)
		encoded, err := l.Encode()
		s.must(err)
		s.must(s.PutList(encoded))
		s.must(s.PutList(encoded)) // once more changes nothing
		roots = append(roots, catalog.ListRoot(encoded))
		s.again()
		got, err := s.List(roots[i])
		s.must(err)
		if !bytes.Equal(got, encoded) {
			t.Errorf("list %d is %q, want %q", i, got, encoded)
		}
		all, err := s.Lists()
		s.must(err)
		if len(all) == 0 || all[0] != roots[i] {
			t.Errorf("after list %d the newest is %v", i, all)
		}
	}
}

func testSnapshot(t *testing.T, s *session) {
	changes, trie := Rows(300, "one")
	staged, err := s.Begin(core.Fetch{Layer: "NodeConfig/a/b", Target: trie.Root()})
	s.must(err)
	if staged.Count > 0 {
		t.Fatalf("%d changes were staged", staged.Count)
	}
	s.must(s.Append(changes[:100]))
	s.hasNot(trie.Root())
	s.must(s.Append(changes[100:]))
	s.hasNot(trie.Root())
	s.must(s.Commit(trie))
	s.has(changes, trie)
	s.again()
	s.has(changes, trie)
	if b, err := s.Body(trie.Root(), catalog.KeyOf("not there")); b != nil || err != nil {
		t.Errorf("at a key that is not there is %q (%v)", b, err)
	}
	staged, err = s.Begin(core.Fetch{Layer: "NodeConfig/a/b", Target: trie.Root()})
	if staged.Count > 0 || err != nil {
		t.Errorf("after Commit %d changes are staged (%v)", staged.Count, err)
	}
}

// changed is another layer than that of changes: one row in seven is gone, one in five is another, and ten are new.
func changed(changes []wire.Change) (delta, all []wire.Change, target catalog.Trie) {
	for i, c := range changes {
		switch {
		case i%7 == 0:
			delta = append(delta, wire.Change{Key: c.Key, Deleted: true})
			continue
		case i%5 == 0:
			c.Body = append(bytes.Clone(c.Body), " changed"...)
			delta = append(delta, c)
		}
		all = append(all, c)
	}
	for i := range 10 {
		c := wire.Change{Key: catalog.KeyOf(fmt.Sprint("new", i)), Body: fmt.Appendf(nil, "new %d", i)}
		delta, all = append(delta, c), append(all, c)
	}
	byKey := func(a, b wire.Change) int { return bytes.Compare(a.Key[:], b.Key[:]) }
	slices.SortFunc(delta, byKey)
	slices.SortFunc(all, byKey)
	rows := make([]catalog.Row, len(all))
	for i, c := range all {
		rows[i] = catalog.Row{Key: c.Key, Digest: sha256.Sum256(c.Body)}
	}
	return delta, all, catalog.Build(rows)
}

func testDelta(t *testing.T, s *session) {
	changes, base := Rows(200, "one")
	s.put(changes, base)
	delta, all, target := changed(changes)
	_, err := s.Begin(core.Fetch{Layer: "NodeConfig/a/b", Base: base.Root(), Target: target.Root()})
	s.must(err)
	s.must(s.Append(delta))
	held, _, err := s.Trie(base.Root())
	s.must(err)
	outline, err := s.Outline(held)
	s.must(err)
	if outline.Root() != target.Root() {
		t.Fatalf("what is staged makes %s, want %s", outline.Root(), target.Root())
	}
	s.must(s.Commit(target))
	s.again()
	s.has(all, target)
	s.has(changes, base)
}

func testResume(t *testing.T, s *session) {
	changes, trie := Rows(50, "one")
	f := core.Fetch{Layer: "NodeConfig/a/b", Target: trie.Root()}
	_, err := s.Begin(f)
	s.must(err)
	s.must(s.Append(changes[:20]))
	s.must(s.Append(changes[20:30]))
	s.again()
	staged, err := s.Begin(f)
	s.must(err)
	if staged.Count > 30 || !s.durable && staged.Count != 30 {
		t.Fatalf("%d changes are staged", staged.Count)
	}
	i := 0
	for c, err := range s.Staged() {
		s.must(err)
		if want := (catalog.Change{Key: changes[i].Key, Digest: sha256.Sum256(changes[i].Body)}); c != want {
			t.Fatalf("change %d is %+v, want %+v", i, c, want)
		}
		i++
	}
	if i != staged.Count || i > 0 && staged.Last != changes[i-1].Key {
		t.Fatalf("%d changes are staged, and it says %+v", i, staged)
	}
	s.must(s.Append(changes[staged.Count:]))
	for range 2 {
		outline, err := s.Outline(catalog.Trie{})
		s.must(err)
		if outline.Root() != trie.Root() || outline.Len() != trie.Len() {
			t.Fatalf("what is staged makes %s, want %s", outline.Root(), trie.Root())
		}
	}
	s.must(s.Commit(trie))
	s.has(changes, trie)
}

func testOther(t *testing.T, s *session) {
	changes, trie := Rows(50, "one")
	_, other := Rows(50, "two")
	_, err := s.Begin(core.Fetch{Layer: "NodeConfig/a/b", Target: other.Root()})
	s.must(err)
	s.must(s.Append(changes[:20]))
	s.put(changes, trie) // checks that nothing is staged for it
	staged, err := s.Begin(core.Fetch{Layer: "NodeConfig/a/b", Target: other.Root()})
	s.must(err)
	if staged.Count > 0 {
		t.Errorf("%d changes are staged of a fetch that another one took the place of", staged.Count)
	}
	s.must(s.Drop())
	s.must(s.Drop())
	s.has(changes, trie)
}

func testWrong(t *testing.T, s *session) {
	changes, trie := Rows(50, "one")
	f := core.Fetch{Layer: "NodeConfig/a/b", Target: trie.Root()}
	bodyOfAnother := slices.Clone(changes)
	bodyOfAnother[7].Body = []byte("another")
	for name, wrong := range map[string][]wire.Change{"one row less": changes[1:], "another body": bodyOfAnother, "nothing": nil} {
		_, err := s.Begin(f)
		s.must(err)
		if len(wrong) > 0 {
			s.must(s.Append(wrong))
		}
		if err := s.Commit(trie); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("%s: commit says %v", name, err)
		}
		s.again()
		s.hasNot(trie.Root())
		staged, err := s.Begin(f)
		s.must(err)
		if staged.Count > 0 {
			t.Errorf("%s: %d changes are still staged", name, staged.Count)
		}
	}
	s.put(changes, trie)
	s.has(changes, trie)
}

func testNothing(_ *testing.T, s *session) {
	changes, base := Rows(10, "one")
	s.put(nil, catalog.Trie{})
	s.has(nil, catalog.Trie{})
	s.put(changes, base)
	_, err := s.Begin(core.Fetch{Layer: "NodeConfig/a/b", Base: catalog.Trie{}.Root(), Target: base.Root()})
	s.must(err)
	s.must(s.Append(changes))
	s.must(s.Commit(base))
	s.again()
	s.has(nil, catalog.Trie{})
	s.has(changes, base)
}

func testLarge(_ *testing.T, s *session) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	c := []wire.Change{{Key: catalog.KeyOf("large"), Body: body}}
	trie := catalog.Build([]catalog.Row{{Key: c[0].Key, Digest: sha256.Sum256(body)}})
	s.put(c, trie)
	s.again()
	s.has(c, trie)
}
