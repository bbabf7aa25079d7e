package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// model is a trie as anybody would write it first.
type model map[Digest]Digest

func (m model) rows() []Row {
	var rows []Row
	for k, d := range m {
		rows = append(rows, Row{Key: k, Digest: d})
	}
	slices.SortFunc(rows, func(a, b Row) int { return slices.Compare(a.Key[:], b.Key[:]) })
	return rows
}

// key is one of a few keys, of which many have a long beginning in common, so that tries get deep.
func key(n int) Digest {
	k := Digest(sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n))))
	if n%3 == 0 {
		copy(k[:], "the same beginning of keys")
	}
	return k
}

// anyRows are up to 400 rows of 500 keys.
func anyRows(t *rapid.T, label string) model {
	m := model{}
	n := rapid.SampledFrom([]int{0, 1, 5, 63, 64, 65, 66, 130, 400}).Draw(t, label+" rows")
	first := rapid.IntRange(0, 100).Draw(t, label+" first")
	bodies := rapid.IntRange(1, 3).Draw(t, label+" bodies")
	for i := range n {
		m[key(first+i)] = KeyOf(string(rune('a' + i%bodies)))
	}
	return m
}

func wantRows(t rapid.TB, trie Trie, want model) {
	t.Helper()
	if got := slices.Collect(trie.From(Digest{})); !slices.Equal(got, want.rows()) {
		t.Fatalf("the trie has %d rows, want %d: %v", len(got), len(want), got)
	}
	if trie.Len() != len(want) {
		t.Fatalf("the trie says that it has %d rows, want %d", trie.Len(), len(want))
	}
}

// TestTrieAgainstMap: whatever is put and deleted, the trie has the rows of the map, and the root of a trie built of them at once.
func TestTrieAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyRows(t, "base")
		trie := Build(m.rows())
		for range rapid.IntRange(0, 100).Draw(t, "changes") {
			k := key(rapid.IntRange(0, 520).Draw(t, "key"))
			before, had := m[k]
			if got, found := trie.Get(k); found != had || got != before {
				t.Fatalf("get %s: %s, %v; want %s, %v", k, got, found, before, had)
			}
			if rapid.Bool().Draw(t, "put") {
				m[k] = KeyOf(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "body"))
				trie = trie.Put(Row{Key: k, Digest: m[k]})
			} else {
				delete(m, k)
				trie = trie.Delete(k)
			}
		}
		wantRows(t, trie, m)
		if built := Build(m.rows()); built.Root() != trie.Root() {
			t.Fatalf("its root is %s, that of a trie built at once %s", trie.Root(), built.Root())
		}
		from := key(rapid.IntRange(0, 520).Draw(t, "from"))
		want := slices.DeleteFunc(m.rows(), func(r Row) bool { return slices.Compare(r.Key[:], from[:]) < 0 })
		if got := slices.Collect(trie.From(from)); !slices.Equal(got, want) {
			t.Fatalf("from %s there are %d rows, want %d", from, len(got), len(want))
		}
	})
}

// TestTriesAreKept: what a trie was before a change it still is after it.
func TestTriesAreKept(t *testing.T) {
	m := model{}
	for i := range 200 {
		m[key(i)] = Digest{1}
	}
	trie := Build(m.rows())
	root := trie.Root()
	for i := range 300 {
		trie.Put(Row{Key: key(i), Digest: Digest{2}})
		trie.Delete(key(i))
	}
	wantRows(t, trie, m)
	if trie.Root() != root {
		t.Error("its root has changed")
	}
}

// TestDifference: the difference is what a comparison of all rows finds, in order, from any key on, and applied it gives the target.
func TestDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyRows(t, "a"), anyRows(t, "b")
		base, target := Build(a.rows()), Build(b.rows())
		from := Digest{}
		if rapid.Bool().Draw(t, "from the middle") {
			from = key(rapid.IntRange(0, 520).Draw(t, "from"))
		}
		var want []Change
		for k := range maps.Keys(a) {
			if _, stays := b[k]; !stays {
				want = append(want, Change{Key: k, Deleted: true})
			}
		}
		for k, d := range b {
			if old, was := a[k]; !was || old != d {
				want = append(want, Change{Key: k, Digest: d})
			}
		}
		slices.SortFunc(want, func(a, b Change) int { return slices.Compare(a.Key[:], b.Key[:]) })
		want = slices.DeleteFunc(want, func(c Change) bool { return slices.Compare(c.Key[:], from[:]) < 0 })
		if got := slices.Collect(Difference(base, target, from)); !slices.Equal(got, want) {
			t.Fatalf("the difference is %v, want %v", got, want)
		}
		if from == (Digest{}) {
			if got := base.Apply(Difference(base, target, from)); got.Root() != target.Root() {
				t.Fatal("applied, it does not give the target")
			}
		}
		for range Difference(base, target, from) {
			break // whoever has enough may stop
		}
	})
}

// TestRootIsOfTheForm: this root must not move; agents have it.
func TestRootIsOfTheForm(t *testing.T) {
	m := model{}
	for i := range 1000 {
		m[key(i)] = KeyOf("body")
	}
	for want, trie := range map[string]Trie{
		"76f2a99a0dd808a0": {},
		"813d7244125283eb": Build([]Row{{Key: key(1), Digest: KeyOf("body")}}),
		"4f0dec7de78c8b8a": Build(m.rows()),
	} {
		if got := trie.Root().String()[:16]; got != want {
			t.Errorf("the root of %d rows begins with %s, want %s", trie.Len(), got, want)
		}
	}
	if (Trie{}).Root() != Build(nil).Root() {
		t.Error("there are two empty tries")
	}
}

// descend builds a trie from the parts of another, and returns how many were asked for.
func descend(d *Descent, from *Nodes) (Trie, int, error) {
	asked := 0
	for {
		wanted := d.Wanted(256)
		if len(wanted) == 0 {
			break
		}
		for _, hash := range wanted {
			asked++
			part, found := from.Encoded(hash)
			if !found {
				return Trie{}, asked, fmt.Errorf("there is no %s", hash)
			}
			if err := d.Take(part); err != nil {
				return Trie{}, asked, err
			}
		}
	}
	t, err := d.Built()
	return t, asked, err
}

// TestDescent: from any base a descent gives the target, and asks for nothing that the base has.
func TestDescent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, target := Build(anyRows(t, "base").rows()), Build(anyRows(t, "target").rows())
		known := NewNodes(base)
		got, asked, err := descend(NewDescent(target.Root(), known, 1000), NewNodes(target))
		if err != nil || got.Root() != target.Root() {
			t.Fatalf("%v: root %s, want %s", err, got.Root(), target.Root())
		}
		if base.Root() == target.Root() && asked > 0 {
			t.Fatalf("asked for %d parts of what is there", asked)
		}
		for hash := range NewNodes(target).nodes {
			if known.nodes[hash] != nil {
				asked++
			}
		}
		if most := len(NewNodes(target).nodes) + 1; asked > most {
			t.Fatalf("asked for more than the %d parts that are not there", most)
		}
	})
}

// TestDescentRefuses: of what is not asked for, too large or no trie nothing is taken.
func TestDescentRefuses(t *testing.T) {
	m := model{}
	for i := range 200 {
		m[key(i)] = Digest{1}
	}
	target := Build(m.rows())
	none, all := NewNodes(), NewNodes(target)
	if _, _, err := descend(NewDescent(target.Root(), none, 199), all); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("a layer above the limit: %v", err)
	}
	d := NewDescent(target.Root(), none, 200)
	part, _ := all.Encoded(target.Hash())
	if err := d.Take(part); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("a part before its turn: %v", err)
	}
	if _, err := d.Built(); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("built of nothing: %v", err)
	}
	if got, _, err := descend(d, all); err != nil || got.Root() != target.Root() {
		t.Errorf("after a refusal: %v", err)
	}
	// What is signed may still be no trie.
	small := newLeaf([]Row{{Key: key(1), Digest: Digest{1}}})
	with := func(at int, n *node) *node {
		var children [fanout]*node
		children[at%fanout] = n
		return newInterior(&children)
	}
	place := nibble(&small.rows[0].Key, 0)
	for name, top := range map[string]*node{
		"an interior node with few rows": with(place, small),
		"a row where it does not belong": with(place+1, small),
		"an empty leaf below the top":    with(3, empty),
	} {
		forged := Trie{top}
		for which, known := range map[string]*Nodes{"unknown": none, "known": {roots: map[Digest]Trie{}, nodes: map[Digest]*node{small.hash: small, empty.hash: empty}}} {
			if _, _, err := descend(NewDescent(forged.Root(), known, 1000), NewNodes(forged)); !reason.Is(err, reason.StateCorrupt) {
				t.Errorf("%s, %s: %v", name, which, err)
			}
		}
	}
	more := Trie{target.node()}
	wrong := header(more.Len()-1, more.Hash())
	lying := &Nodes{roots: map[Digest]Trie{}, nodes: all.nodes}
	d = NewDescent(sha256.Sum256(wrong), none, 1000)
	if err := d.Take(wrong); err != nil {
		t.Fatal(err)
	}
	if _, _, err := descend(d, lying); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("a root that says fewer rows than there are: %v", err)
	}
}

// FuzzNode: what is read as a node is written as the same bytes.
func FuzzNode(f *testing.F) {
	m := model{}
	for i := range 100 {
		m[key(i)] = Digest{1}
	}
	f.Add(Build(m.rows()).node().encode())
	f.Add(Build(nil).node().encode())
	f.Add([]byte{tagInterior, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parse(data)
		if err != nil {
			return
		}
		n := &node{rows: p.rows, present: p.present}
		for _, c := range p.children {
			n.children = append(n.children, &node{hash: c})
		}
		if got := n.encode(); !slices.Equal(got, data) {
			t.Errorf("%x is read, and written as %x", data, got)
		}
	})
}

// FuzzDescent: whatever comes, there is an end, and what is built has the root that was asked for.
func FuzzDescent(f *testing.F) {
	f.Add(header(1, KeyOf("top")), []byte{tagLeaf})
	f.Fuzz(func(t *testing.T, top, part []byte) {
		root := Digest(sha256.Sum256(top))
		d := NewDescent(root, NewNodes(), 1000)
		if d.Take(top) != nil {
			return
		}
		for range 3 {
			_ = d.Take(part)
		}
		if built, err := d.Built(); err == nil && built.Root() != root {
			t.Error("another root was built")
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	rows := make([]Row, 1_000_000)
	for i := range rows {
		rows[i] = Row{Key: KeyOf(string(binary.BigEndian.AppendUint64(nil, uint64(i)))), Digest: Digest{1}}
	}
	for b.Loop() {
		Build(rows)
	}
}

func BenchmarkPut(b *testing.B) {
	rows := make([]Row, 100_000)
	for i := range rows {
		rows[i] = Row{Key: KeyOf(string(binary.BigEndian.AppendUint64(nil, uint64(i)))), Digest: Digest{1}}
	}
	t := Build(rows)
	for i := 0; b.Loop(); i++ {
		t.Put(Row{Key: rows[i%len(rows)].Key, Digest: Digest{2}})
	}
}
