package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

func someItems(n int) []Item {
	var items []Item
	for i := range n {
		items = append(items, Item{Claim: fmt.Sprint("path:/srv/", i), Body: fmt.Appendf(nil, "body %d", i)})
	}
	return items
}

// written is an order about some items, and its statement.
func written(t testing.TB, items []Item) (file, statement []byte) {
	t.Helper()
	s, err := Statement{Layer: "NodeConfig/prod/web", Epoch: 1, Number: 1, Root: TrieOf(items).Root(), Expires: 1}.Sign(trust.NewSigningKey())
	if err != nil {
		t.Fatal(err)
	}
	if statement, err = s.Encode(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteOrder(&b, statement, items); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), statement
}

func TestOrderIsReadAsItWasWritten(t *testing.T) {
	for _, n := range []int{0, 1, 500} {
		items := someItems(n)
		file, statement := written(t, items)
		read, layer, err := ReadOrder(bytes.NewReader(file))
		if err != nil || !bytes.Equal(read, statement) {
			t.Fatalf("%v: read %x", err, read)
		}
		trie, size, err := ReadTrie(layer)
		if err != nil || trie.Root() != TrieOf(items).Root() {
			t.Errorf("%d items: %v, root %s", n, err, trie.Root())
		}
		var sum uint64
		for _, x := range items {
			sum += uint64(len(x.Body))
		}
		if size != sum {
			t.Errorf("%d bytes of bodies, want %d", size, sum)
		}
	}
}

func TestOrderThatIsDamaged(t *testing.T) {
	file, statement := written(t, someItems(3))
	rows := len(orderHeader) + 4 + len(statement)
	change := func(at int, b byte) []byte {
		c := bytes.Clone(file)
		c[at] ^= b
		return c
	}
	for name, data := range map[string][]byte{
		"empty":                    nil,
		"another header":           change(0, 1),
		"a statement of 0 bytes":   append([]byte(orderHeader), 0, 0, 0, 0),
		"a statement without end":  append([]byte(orderHeader), 0xff, 0xff, 0xff, 0xff),
		"cut off in the statement": file[:rows-1],
		"another header of rows":   change(rows, 1),
		"rows without end":         change(rows+len(rowsHeader), 0xff),
		"a body without end":       change(rows+len(rowsHeader)+4+32, 0xff),
		"keys out of order":        change(rows+len(rowsHeader)+4, file[rows+len(rowsHeader)+4]^0xff),
		"cut off in a row":         file[:len(file)-1],
		"more behind it":           append(bytes.Clone(file), 0),
	} {
		_, layer, err := ReadOrder(bytes.NewReader(data))
		if err == nil {
			_, _, err = ReadTrie(layer)
		}
		if !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("the stick was pulled out")
	_, _, err := ReadOrder(io.MultiReader(bytes.NewReader(file[:5]), brokenReader{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("of a reader that fails: %v", err)
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

// What is read is canonical: written again, it is the same bytes.
func FuzzReadOrder(f *testing.F) {
	file, _ := written(f, someItems(3))
	f.Add(file)
	f.Add([]byte(orderHeader))
	f.Fuzz(func(t *testing.T, data []byte) {
		statement, layer, err := ReadOrder(bytes.NewReader(data))
		if err != nil {
			return
		}
		var keys []Digest
		bodies := map[Digest][]byte{}
		if ReadRows(layer, func(key Digest, body []byte) error {
			keys, bodies[key] = append(keys, key), body
			return nil
		}) != nil {
			return
		}
		var again bytes.Buffer
		again.Write(data[:len(orderHeader)+4+len(statement)])
		if err := WriteRows(&again, len(keys), func(yield func(Digest, []byte) bool) {
			for _, key := range keys {
				if !yield(key, bodies[key]) {
					return
				}
			}
		}); err != nil || !bytes.Equal(again.Bytes(), data) {
			t.Errorf("%v: %x is read, and written as %x", err, data, again.Bytes())
		}
	})
}

// TestManyRows: a layer with more entries than a host may act upon, because it has data, is brought by hand as any other.
func TestManyRows(t *testing.T) {
	const count = declare.ResourcesMax + 1
	trie := ruledTrie(count)
	var file bytes.Buffer
	err := WriteRows(&file, count, func(yield func(Digest, []byte) bool) {
		for row := range trie.From(Digest{}) {
			if !yield(row.Key, []byte{1}) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	read, size, err := ReadTrie(&file)
	if err != nil || read.Len() != count || size != count {
		t.Errorf("%d rows of %d bytes were read, %v", read.Len(), size, err)
	}
	over := append([]byte(rowsHeader), 0xff, 0xff, 0xff, 0xff)
	if _, _, err := ReadTrie(bytes.NewReader(over)); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("2^32-1 rows: %v", err)
	}
}
