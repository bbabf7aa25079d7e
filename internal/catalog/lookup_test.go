package catalog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// TestLookup: what is found by hashes alone is what the trie has, whatever keys there are.
func TestLookup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 500).Draw(t, "rows")
		rows := make([]Row, n)
		for i := range rows {
			rows[i] = Row{Key: KeyOf(fmt.Sprint("claim ", i)), Digest: sha256.Sum256([]byte{byte(i), byte(i >> 8)})}
		}
		trie := Build(rows)
		nodes, asked := NewNodes(trie), 0
		fetch := func(hash Digest) ([]byte, error) {
			asked++
			data, found, err := nodes.Encoded(hash)
			if err == nil && !found {
				err = errors.New("nobody has that")
			}
			return data, err
		}
		key := KeyOf(fmt.Sprint("claim ", rapid.IntRange(0, 600).Draw(t, "key")))
		want, there, _ := trie.Get(key)
		got, found, err := Lookup(trie.Root(), key, fetch)
		if err != nil || found != there || got != want {
			t.Fatalf("%s, %t, %v; the trie has %s, %t", got, found, err, want, there)
		}
		if asked > 5 { // the root, and log16(500) interior nodes and a leaf, where keys are hashes
			t.Fatalf("it has asked %d times", asked)
		}
	})
}

// TestLookupBelievesNobody: what does not have the hash that was asked for, and what is no node, is refused; what fetch says is passed on.
func TestLookupBelievesNobody(t *testing.T) {
	rows := make([]Row, 200)
	for i := range rows {
		rows[i] = Row{Key: KeyOf(fmt.Sprint("claim ", i)), Digest: Digest{byte(i)}}
	}
	trie := Build(rows)
	nodes := NewNodes(trie)
	for at := range 3 {
		asked := 0
		_, _, err := Lookup(trie.Root(), rows[7].Key, func(hash Digest) ([]byte, error) {
			data, _, _ := nodes.Encoded(hash)
			if asked++; asked == at+1 {
				data = append([]byte{}, data...)
				data[len(data)-1] ^= 1
			}
			return data, nil
		})
		if !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("answer %d changed on the way: %v", at, err)
		}
	}
	junk := []byte("neither a root nor a node")
	if _, _, err := Lookup(sha256.Sum256(junk), rows[0].Key, func(Digest) ([]byte, error) { return junk, nil }); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("junk that has its hash: %v", err)
	}
	away := errors.New("away")
	if _, _, err := Lookup(trie.Root(), rows[0].Key, func(Digest) ([]byte, error) { return nil, away }); !errors.Is(err, away) {
		t.Errorf("a source that is away: %v", err)
	}
}
