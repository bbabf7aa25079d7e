package layers

import (
	"fmt"
	"io"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/trust"
)

// Layer is a compiled revision. It does not change, and is shared: change nothing in it.
type Layer struct {
	Root    catalog.Digest
	Trie    catalog.Trie
	Entries int
	Bytes   int64    // of all bodies
	Keys    []KeyUse // that its secrets are sealed under: by ID, each once
	bodies  map[catalog.Digest][]byte
}

// NewLayer is the layer of these items.
func NewLayer(items []catalog.Item) *Layer {
	l := &Layer{Trie: catalog.TrieOf(items), Entries: len(items), bodies: make(map[catalog.Digest][]byte, len(items))}
	for i := range items {
		l.bodies[items[i].Row().Digest] = items[i].Body
		l.Bytes += int64(len(items[i].Body))
	}
	l.Root = l.Trie.Root()
	return l
}

// Body is the body with that digest; false when it is none of this layer.
func (l *Layer) Body(digest catalog.Digest) ([]byte, bool) {
	body, ok := l.bodies[digest]
	return body, ok
}

// KeyUse is a key that a layer needs on a host.
type KeyUse struct {
	ID     string // 32 hexadecimal digits
	Secret string // NAMESPACE/NAME/KEY of the value, for people
	key    trust.DataKey
}

// Format prints the key as its ID and what it is for, whatever the verb: it never reaches a log.
func (k KeyUse) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "key "+k.ID+" of "+k.Secret)
}

// Recipient is a node that a key is wrapped for.
type Recipient struct {
	UID        string
	SealingKey []byte // public, as the node's status has it
}
