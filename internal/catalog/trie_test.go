package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
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

// shelf is rows as a disk has them.
type shelf struct {
	rows    []Row
	read    int // leaves
	damaged int // times that it was told
	err     error
}

func (s *shelf) Leaf(path Digest, depth int) ([]Row, error) {
	s.read++
	if s.err != nil {
		return nil, s.err
	}
	at, _ := find(s.rows, path)
	end := at
	for end < len(s.rows) && under(&s.rows[end].Key, &path, depth) {
		end++
	}
	return s.rows[at:end], nil
}

func (s *shelf) Damaged(error) { s.damaged++ }

// built is the trie of a map: in memory, with its leaves on a shelf, or made row by row.
func built(t rapid.TB, m model, kind int) Trie {
	t.Helper()
	s := &shelf{rows: m.rows()}
	switch kind {
	case 0:
		return Build(m.rows())
	case 1:
		return Build(m.rows()).Lean(s)
	}
	var b Builder
	for _, r := range s.rows {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return b.Trie(s)
}

const kinds = 3

// all collects what comes without an error.
func all[T any](t rapid.TB, seq iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for x, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	return list
}

// apply makes one change after the other.
func apply(t rapid.TB, trie Trie, changes ...Change) Trie {
	t.Helper()
	for _, c := range changes {
		var err error
		if trie, err = trie.Apply(Changes(c)); err != nil {
			t.Fatal(err)
		}
	}
	return trie
}

func wantRows(t rapid.TB, trie Trie, want model) {
	t.Helper()
	if got := all(t, trie.From(Digest{})); !slices.Equal(got, want.rows()) {
		t.Fatalf("the trie has %d rows, want %d: %v", len(got), len(want), got)
	}
	if trie.Len() != len(want) {
		t.Fatalf("the trie says that it has %d rows, want %d", trie.Len(), len(want))
	}
}

// TestTrieAgainstMap: whatever is put and deleted, the trie has the rows of the map, and the root of a trie built of them at once. Where its
// leaves are changes nothing.
func TestTrieAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyRows(t, "base")
		trie := built(t, m, rapid.IntRange(0, kinds-1).Draw(t, "kind"))
		for range rapid.IntRange(0, 100).Draw(t, "changes") {
			k := key(rapid.IntRange(0, 520).Draw(t, "key"))
			before, had := m[k]
			if got, found, err := trie.Get(k); err != nil || found != had || got != before {
				t.Fatalf("get %s: %s, %v, %v; want %s, %v", k, got, found, err, before, had)
			}
			if rapid.Bool().Draw(t, "put") {
				m[k] = KeyOf(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "body"))
				trie = apply(t, trie, Change{Key: k, Digest: m[k]})
			} else {
				delete(m, k)
				trie = apply(t, trie, Change{Key: k, Deleted: true})
			}
			if rapid.IntRange(0, 9).Draw(t, "lean") == 0 { // it was written
				trie = trie.Lean(&shelf{rows: m.rows()})
			}
		}
		wantRows(t, trie, m)
		for kind := range kinds {
			if b := built(t, m, kind); b.Root() != trie.Root() {
				t.Fatalf("its root is %s, that of a trie built at once %s", trie.Root(), b.Root())
			}
		}
		from := key(rapid.IntRange(0, 520).Draw(t, "from"))
		want := slices.DeleteFunc(m.rows(), func(r Row) bool { return slices.Compare(r.Key[:], from[:]) < 0 })
		if got := all(t, trie.From(from)); !slices.Equal(got, want) {
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
	for kind := range kinds {
		trie := built(t, m, kind)
		root := trie.Root()
		for i := range 300 {
			apply(t, trie, Change{Key: key(i), Digest: Digest{2}})
			apply(t, trie, Change{Key: key(i), Deleted: true})
		}
		wantRows(t, trie, m)
		if trie.Root() != root {
			t.Error("its root has changed")
		}
	}
}

// TestDifference: the difference is what a comparison of all rows finds, in order, from any key on, and applied it gives the target.
func TestDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyRows(t, "a"), anyRows(t, "b")
		base, target := built(t, a, rapid.IntRange(0, kinds-1).Draw(t, "base")), built(t, b, rapid.IntRange(0, kinds-1).Draw(t, "target"))
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
		if got := all(t, Difference(base, target, from)); !slices.Equal(got, want) {
			t.Fatalf("the difference is %v, want %v", got, want)
		}
		if from == (Digest{}) {
			got, err := base.Apply(Difference(base, target, from))
			if err != nil || got.Root() != target.Root() {
				t.Fatalf("applied, it does not give the target: %v", err)
			}
			wantRows(t, got, b)
			if got, err = base.Outline(Changes(want...)); err != nil || got.Root() != target.Root() || got.Len() != len(b) {
				t.Fatalf("its outline is not that of the target: %v", err)
			}
			if leaves(got.top) > 0 {
				t.Fatalf("its outline has %d leaves in memory", leaves(got.top))
			}
			wantRows(t, got.Lean(&shelf{rows: b.rows()}), b)
		}
		for range Difference(base, target, from) {
			break // whoever has enough may stop
		}
	})
}

// leaves is how many leaves with rows are in memory.
func leaves(r ref) (n int) {
	if r.node == nil {
		return 0
	}
	if r.leaf() {
		return min(len(r.node.rows), 1)
	}
	for _, c := range r.node.children {
		n += leaves(c)
	}
	return n
}

// many are so many rows, whose keys are spread as those of claims are.
func many(n int) model {
	m := model{}
	for i := range n {
		m[KeyOf(fmt.Sprint(i))] = KeyOf("body")
	}
	return m
}

// TestFewLeavesAreRead: a change reads the leaf that it is in, and keeps no other one in memory.
func TestFewLeavesAreRead(t *testing.T) {
	m := many(10_000)
	s := &shelf{rows: m.rows()}
	trie := Build(m.rows()).Lean(s)
	if leaves(trie.top) > 0 {
		t.Fatalf("%d leaves are in memory", leaves(trie.top))
	}
	changed := apply(t, trie, Change{Key: KeyOf("7"), Digest: KeyOf("other")})
	if s.read != 1 || leaves(changed.top) != 1 {
		t.Errorf("%d leaves were read, %d are in memory", s.read, leaves(changed.top))
	}
	if got := all(t, Difference(trie, changed, Digest{})); s.read != 2 || len(got) != 1 || got[0].Key != KeyOf("7") {
		t.Errorf("%d leaves were read, the difference is %v", s.read, got)
	}
}

// TestLeafIsVerified: a leaf that is not what it was is an error, wherever it is read, and who has it is told.
func TestLeafIsVerified(t *testing.T) {
	m := many(1_000)
	for what, damage := range map[string]func([]Row) []Row{
		"another digest": func(r []Row) []Row { r[500].Digest[3] ^= 1; return r },
		"another key":    func(r []Row) []Row { r[500].Key[31] ^= 1; return r },
		"one less":       func(r []Row) []Row { return slices.Delete(r, 500, 501) },
		"one more":       func(r []Row) []Row { return slices.Insert(r, 500, r[500]) },
	} {
		s := &shelf{rows: m.rows()}
		k := s.rows[500].Key
		trie := Build(m.rows()).Lean(s)
		s.rows = damage(s.rows)
		_, _, err := trie.Get(k)
		if !reason.Is(err, reason.StateCorrupt) || s.damaged != 1 {
			t.Errorf("%s: get: %v; told %d times", what, err, s.damaged)
		}
		if _, err := trie.Apply(Changes(Change{Key: k, Deleted: true})); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("%s: apply: %v", what, err)
		}
		var failed error
		for _, err := range Difference(Trie{}, trie, Digest{}) {
			failed = err
		}
		if !reason.Is(failed, reason.StateCorrupt) {
			t.Errorf("%s: difference: %v", what, failed)
		}
		for _, err := range trie.From(k) {
			failed = err
			break
		}
		if !reason.Is(failed, reason.StateCorrupt) {
			t.Errorf("%s: from: %v", what, failed)
		}
	}
	s := &shelf{err: errors.New("the disk is on fire")}
	if _, _, err := Build(m.rows()).Lean(s).Get(KeyOf("7")); err != s.err {
		t.Errorf("get: %v", err)
	}
	if _, _, err := Build(m.rows()).Lean(nil).Get(KeyOf("7")); !reason.Is(err, reason.InternalFault) {
		t.Errorf("get from nowhere: %v", err)
	}
}

// TestOutOfOrder: what is not sorted is refused.
func TestOutOfOrder(t *testing.T) {
	rows := many(3).rows()
	var b Builder
	if err := errors.Join(b.Add(rows[0]), b.Add(rows[2])); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(rows[1]); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("add: %v", err)
	}
	if err := b.Add(rows[2]); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("add the same: %v", err)
	}
	for _, base := range []Trie{{}, Build(many(100).rows())} {
		wrong := Changes(Change{Key: rows[2].Key, Digest: Digest{1}}, Change{Key: rows[1].Key, Digest: Digest{1}})
		if _, err := base.Apply(wrong); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("apply: %v", err)
		}
		if _, err := base.Outline(wrong); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("outline: %v", err)
		}
	}
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
			part, found, err := from.Encoded(hash)
			if err != nil || !found {
				return Trie{}, asked, fmt.Errorf("there is no %s: %w", hash, err)
			}
			if err := d.Take(part); err != nil {
				return Trie{}, asked, err
			}
		}
	}
	t, err := d.Built()
	return t, asked, err
}

// hashes are those of the nodes of a trie, by the place that they have.
func hashes(p place, into map[string]Digest) map[string]Digest {
	into[fmt.Sprintf("%.*s", p.depth, p.path)] = p.hash
	if !p.leaf() {
		for i := range fanout {
			if c := p.at(i); c.count > 0 {
				hashes(c, into)
			}
		}
	}
	return into
}

// TestDescent: from any base a descent gives the target, and asks for nothing that the base has in the same place.
func TestDescent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyRows(t, "base"), anyRows(t, "target")
		base, target := built(t, a, rapid.IntRange(0, kinds-1).Draw(t, "kind of base")), built(t, b, rapid.IntRange(0, kinds-1).Draw(t, "kind of target"))
		got, asked, err := descend(NewDescent(target.Root(), base, 1000), NewNodes(target))
		if err != nil || got.Root() != target.Root() {
			t.Fatalf("%v: root %s, want %s", err, got.Root(), target.Root())
		}
		wantRows(t, got, b)
		want := 0
		if base.Root() != target.Root() {
			want = 1 // the root itself
			have := hashes(base.place(), map[string]Digest{})
			for at, hash := range hashes(target.place(), map[string]Digest{}) {
				if have[at] != hash {
					want++
				}
			}
		}
		if asked != want {
			t.Fatalf("asked for %d parts, and %d are not there", asked, want)
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
	all := NewNodes(target)
	if _, _, err := descend(NewDescent(target.Root(), Trie{}, 199), all); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("a layer above the limit: %v", err)
	}
	d := NewDescent(target.Root(), Trie{}, 200)
	part, _, _ := all.Encoded(target.Hash())
	if err := d.Take(part); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("a part before its turn: %v", err)
	}
	if _, err := d.Built(); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("built of nothing: %v", err)
	}
	if got, _, err := descend(d, all); err != nil || got.Root() != target.Root() {
		t.Errorf("after a refusal: %v", err)
	}
	if d.Rows() != 200 {
		t.Errorf("%d rows have come", d.Rows())
	}
	// What is signed may still be no trie.
	small := newLeaf([]Row{{Key: key(1), Digest: Digest{1}}})
	hollow := empty
	hollow.count = 1 // newInterior leaves out what is empty
	with := func(at int, n ref) Trie {
		var children [fanout]ref
		children[at%fanout] = n
		return Trie{top: newInterior(&children)}
	}
	place := nibble(&small.node.rows[0].Key, 0)
	for name, forged := range map[string]Trie{
		"an interior node with few rows": with(place, small),
		"a row where it does not belong": with(place+1, small),
		"an empty leaf below the top":    with(3, hollow),
	} {
		for which, known := range map[string]Trie{"nothing": {}, "something": target} {
			if _, _, err := descend(NewDescent(forged.Root(), known, 1000), NewNodes(forged)); !reason.Is(err, reason.StateCorrupt) {
				t.Errorf("%s, %s is known: %v", name, which, err)
			}
		}
	}
	wrong := header(target.Len()-1, target.Hash())
	lying := &Nodes{roots: map[Digest]Trie{}, nodes: all.nodes}
	d = NewDescent(sha256.Sum256(wrong), Trie{}, 1000)
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
	f.Add(Build(m.rows()).top.node.encodeInterior(nil))
	f.Add(encodeLeaf(nil, nil))
	f.Add([]byte{tagInterior, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parse(data)
		if err != nil {
			return
		}
		got := encodeLeaf(nil, p.rows)
		if n := (&node{present: p.present}); p.present != 0 {
			for _, c := range p.children {
				n.children = append(n.children, ref{hash: c})
			}
			got = n.encodeInterior(nil)
		}
		if !slices.Equal(got, data) {
			t.Errorf("%x is read, and written as %x", data, got)
		}
	})
}

// FuzzDescent: whatever comes, there is an end, and what is built has the root that was asked for.
func FuzzDescent(f *testing.F) {
	f.Add(header(1, KeyOf("top")), []byte{tagLeaf})
	f.Fuzz(func(t *testing.T, top, part []byte) {
		root := Digest(sha256.Sum256(top))
		d := NewDescent(root, Trie{}, 1000)
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
