package bundles

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
)

// inOrder are the rows of a list in the order of their keys.
func (m items) inOrder(t testing.TB) (rows []catalog.Row) {
	t.Helper()
	for row, err := range m.trie().From(catalog.Digest{}) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// TestReader: whatever is asked for, and in whatever order, comes as by itself; and bodies stay as they are while others are read.
func TestReader(t *testing.T) {
	r := newRig(t)
	want := some(t, 5_000, "v")
	if _, code := r.upload("default", want.digest(), "", items{}.to(t, want), PieceMax); code != 0 {
		t.Fatal(code)
	}
	b, _, err := r.store.Open(want.trie().Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.close() })
	all := want.inOrder(t)
	few := slices.DeleteFunc(slices.Clone(all), func(row catalog.Row) bool { return row.Key[31]%3 > 0 })
	mixed := slices.Clone(all)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	backwards := slices.Clone(all)
	slices.Reverse(backwards)
	for name, rows := range map[string][]catalog.Row{
		"all": all, "a third": few, "mixed": mixed, "backwards": backwards, "from the middle": all[len(all)/2:], "twice": slices.Concat(all[:100], all[:100]), "one": all[7:8],
	} {
		read, got := b.Reader(), [][]byte(nil)
		for _, row := range rows {
			body, found := read(row.Digest)
			if !found {
				t.Fatalf("%s: a body is not found", name)
			}
			got = append(got, body)
		}
		if body, found := read(catalog.Digest{1}); found {
			t.Errorf("%s: %q is nobody's", name, body)
		}
		for i, row := range rows {
			if !bytes.Equal(got[i], want[row.Key].Body) {
				t.Fatalf("%s: body %d is another one", name, i)
			}
		}
	}
}

// TestReaderOfDamage: what the disk has changed is not read, and all else is.
func TestReaderOfDamage(t *testing.T) {
	r := newRig(t)
	want := some(t, 500, "v")
	if _, code := r.upload("default", want.digest(), "", items{}.to(t, want), PieceMax); code != 0 {
		t.Fatal(code)
	}
	b, _, err := r.store.Open(want.trie().Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.close() })
	path := filepath.Join(r.dir, want.trie().Root().String(), bodiesName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	read, bad := b.Reader(), 0
	for _, row := range want.inOrder(t) {
		if _, found := read(row.Digest); !found {
			bad++
		}
	}
	if bad != 1 {
		t.Errorf("%d bodies are told to be damaged", bad)
	}
}

// BenchmarkBodies is what reading all bodies of a bundle takes, for each: one by one, and in their order.
func BenchmarkBodies(b *testing.B) {
	const entries = 20_000
	list := some(b, entries, "v")
	dir, root := b.TempDir(), list.trie().Root()
	if err := fill(b.Context(), dir, nil, bundle.Read(bytes.NewReader(items{}.to(b, list))), root); err != nil {
		b.Fatal(err)
	}
	is, _, err := open(dir, root)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = is.close() })
	rows := list.inOrder(b)
	for name, reader := range map[string]func() func(catalog.Digest) ([]byte, bool){
		"alone": func() func(catalog.Digest) ([]byte, bool) { return is.Body }, "reader": is.Reader,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				read := reader()
				for i := range rows {
					if _, found := read(rows[i].Digest); !found {
						b.Fatal("a body is not found")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/entries, "ns/body")
		})
	}
}
