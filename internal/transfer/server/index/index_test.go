package index

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"tako.dev/tako/internal/catalog"
)

// trie makes one of so many rows, whose bodies are those of no other name.
func trie(name string, rows int) catalog.Trie {
	var all []catalog.Row
	for i := range rows {
		all = append(all, catalog.Row{Key: catalog.KeyOf(fmt.Sprint("claim ", i)), Digest: sha256.Sum256([]byte(fmt.Sprint(name, i)))})
	}
	return catalog.Build(all)
}

// TestIndex: it keeps to its bound, and what it has dropped is made again.
func TestIndex(t *testing.T) {
	x := New(250)
	for i := range 20 {
		one := trie(fmt.Sprint("layer ", i%4), 100)
		of, err := x.Of(one.Root(), one)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, err := of.Nodes.Encoded(one.Root()); !found || err != nil || len(of.Bodies) != 100 {
			t.Fatal("it does not know what it is made of")
		}
		if x.rows > 250 || len(x.roots) != x.order.Len() || x.rows != 100*x.order.Len() {
			t.Fatalf("%d rows of %d roots", x.rows, len(x.roots))
		}
	}
	large := trie("large", 1_000)
	if _, err := x.Of(large.Root(), large); err != nil || x.rows != 1_000 || x.order.Len() != 1 {
		t.Errorf("%d rows of %d tries", x.rows, x.order.Len())
	}
	// What could not be read is not remembered.
	fails := trie("unread", 200).Lean(unreadable{})
	if _, err := x.Of(fails.Root(), fails); !errors.Is(err, errUnreadable) || x.roots[fails.Root()] != nil || x.rows != 100*x.order.Len() && x.rows != 1_000 {
		t.Errorf("a trie that cannot be read: %v, and %d rows of %d roots", err, x.rows, x.order.Len())
	}
}

var errUnreadable = errors.New("its leaves cannot be read")

// unreadable has the leaves of a trie, and cannot read them.
type unreadable struct{}

func (unreadable) Leaf(catalog.Digest, int) ([]catalog.Row, error) { return nil, errUnreadable }
func (unreadable) Damaged(error)                                   {}
