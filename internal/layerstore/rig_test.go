package layerstore

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
)

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// model is a layer as anybody would write it first: bodies by their claims.
type model map[string][]byte

// body is a body of a claim, as Delivered reads it.
func body(claim, text string) []byte {
	b := append([]byte{0xa2, 0x61, 'c', 0x78, byte(len(claim))}, claim...)
	return append(append(b, 0x61, 'x', 0x78, byte(len(text))), text...)
}

// claim is one of some: every third is data.
func claim(n int) string {
	if n%3 == 0 {
		return fmt.Sprint("data:", n)
	}
	return fmt.Sprint("path:/", n)
}

func many(count int, text string) model {
	m := model{}
	for i := range count {
		m[claim(i)] = body(claim(i), text)
	}
	return m
}

func (m model) rows() []catalog.Row {
	rows := make([]catalog.Row, 0, len(m))
	for c, b := range m {
		rows = append(rows, catalog.Row{Key: catalog.KeyOf(c), Digest: sha256.Sum256(b)})
	}
	slices.SortFunc(rows, func(a, b catalog.Row) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return rows
}

func (m model) trie() catalog.Trie { return catalog.Build(m.rows()) }

func (m model) with(changed model, gone ...string) model {
	n := maps.Clone(m)
	maps.Copy(n, changed)
	for _, c := range gone {
		delete(n, c)
	}
	return n
}

// changes are what makes one model of another.
func changes(from, to model) Changes {
	var list []Change
	for c, b := range to {
		if !bytes.Equal(from[c], b) {
			list = append(list, Change{catalog.Change{Key: catalog.KeyOf(c), Digest: sha256.Sum256(b)}, b})
		}
	}
	for c := range from {
		if to[c] == nil {
			list = append(list, Change{Change: catalog.Change{Key: catalog.KeyOf(c), Deleted: true}})
		}
	}
	return listed(sorted(list))
}

func sorted(list []Change) []Change {
	slices.SortFunc(list, func(a, b Change) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return list
}

func listed(list []Change) Changes {
	all := Changes{Count: len(list)}
	for _, c := range list {
		all.Bytes += uint64(len(c.Body))
	}
	all.All = func(yield func(Change, error) bool) {
		for _, c := range list {
			if !yield(c, nil) {
				return
			}
		}
	}
	return all
}

// put stores a layer, as a change of another one, or from nothing.
func put(t rapid.TB, s *Store, from, to model) {
	t.Helper()
	base := catalog.Digest{}
	if from != nil {
		base = from.trie().Root()
	}
	must(t, s.Put(base, to.trie(), changes(from, to)))
}

// has checks that a layer is there, whole.
func has(t rapid.TB, s *Store, m model) {
	t.Helper()
	root := m.trie().Root()
	trie, found, err := s.Trie(root)
	must(t, err)
	if !found || trie.Root() != root || trie.Len() != len(m) {
		t.Fatalf("layer %s of %d rows is there: %v, with %d", root, len(m), found, trie.Len())
	}
	want := m.rows()
	for r, err := range trie.From(catalog.Digest{}) {
		must(t, err)
		if len(want) == 0 || r != want[0] {
			t.Fatalf("it has the row %v", r)
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Fatalf("%d rows are missing", len(want))
	}
	acting, looked := model{}, 0
	for c, b := range m { // of the bodies, some: which differs from run to run
		if looked++; looked <= 50 {
			got, err := s.Body(root, catalog.KeyOf(c))
			must(t, err)
			if !bytes.Equal(got, b) {
				t.Fatalf("at %s is %q, want %q", c, got, b)
			}
		}
		if !catalog.Delivered(b) {
			acting[c] = b
		}
	}
	rows := acting.rows()
	for e, err := range s.Acting(root) {
		must(t, err)
		if len(rows) == 0 || e.Key != rows[0].Key || sha256.Sum256(e.Body) != rows[0].Digest {
			t.Fatalf("%q is acted upon", e.Body)
		}
		rows = rows[1:]
	}
	if len(rows) > 0 {
		t.Fatalf("%d rows are not acted upon", len(rows))
	}
	if got, err := s.Body(root, catalog.KeyOf("nothing")); got != nil || err != nil {
		t.Fatalf("at a key that is not there: %q, %v", got, err)
	}
}

func hasNot(t rapid.TB, s *Store, m model) {
	t.Helper()
	root := m.trie().Root()
	if _, found, err := s.Trie(root); found || err != nil {
		t.Fatalf("layer %s is there: %v, %v", root, found, err)
	}
}

// names are the files that there are.
func names(t rapid.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func pathOf(dir string, m model) string { return filepath.Join(dir, m.trie().Root().String()) }

// size is how long the file of a layer is.
func size(t testing.TB, dir string, m model) int64 {
	t.Helper()
	info, err := os.Stat(pathOf(dir, m))
	must(t, err)
	return info.Size()
}
