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

	// memory is how many bytes of it are there for it alone, about: the bodies that are not in a bundle, and of a bundle what the trie does
	// not share with the layer before it.
	memory int64
	bodies map[catalog.Digest][]byte
	bundle *Bundle // nil where it has none
}

const (
	// rowMemory is what a row of a trie takes, with its share of the nodes.
	rowMemory = 100
	// fewRows are always shared, whatever part of the layer they are.
	fewRows = 1000
)

// NewLayer is the layer of these items.
func NewLayer(items []catalog.Item) *Layer {
	l := &Layer{Trie: catalog.TrieOf(items), Entries: len(items), bodies: make(map[catalog.Digest][]byte, len(items))}
	for i := range items {
		l.bodies[items[i].Row().Digest] = items[i].Body
		l.Bytes += int64(len(items[i].Body))
	}
	l.Root, l.memory = l.Trie.Root(), l.Bytes
	return l
}

// with is the layer with the entries of a bundle as well, none of which it may have.
func (l *Layer) with(b *Bundle) error {
	// The larger one is not touched.
	trie, err := b.Trie.Apply(catalog.Difference(catalog.Trie{}, l.Trie, catalog.Digest{}))
	if err != nil {
		return err
	}
	l.Trie, l.Root, l.bundle = trie, trie.Root(), b
	l.Entries += b.Trie.Len()
	l.Bytes += b.Bytes
	l.memory += rowMemory * int64(b.Trie.Len())
	return nil
}

// sharedMin is how much of a trie, one part in so many, may differ from the one before and be made of it row by row: that takes ten times as
// long for each row as building does.
const sharedMin = 8

// share takes over what the layer before has too, which costs nothing while both are kept.
func (l *Layer) share(before *Layer) error {
	changed := 0
	for _, err := range catalog.Difference(before.Trie, l.Trie, catalog.Digest{}) {
		if err != nil {
			return err
		}
		if changed++; changed > fewRows && changed > l.Trie.Len()/sharedMin {
			return nil
		}
	}
	trie, err := before.Trie.Apply(catalog.Difference(before.Trie, l.Trie, catalog.Digest{}))
	if err != nil {
		return err
	}
	l.Trie = trie
	if l.bundle != nil {
		l.memory -= rowMemory * int64(max(l.bundle.Trie.Len()-changed, 0))
		l.bundle = &Bundle{Bytes: l.bundle.Bytes, Body: l.bundle.Body, Reader: l.bundle.Reader} // its own trie has served
	}
	for digest := range l.bodies {
		if same, ok := before.bodies[digest]; ok {
			l.bodies[digest] = same
		}
	}
	return nil
}

// Body is the body with that digest; false when it is none of this layer.
func (l *Layer) Body(digest catalog.Digest) ([]byte, bool) {
	body, ok := l.bodies[digest]
	if !ok && l.bundle != nil {
		return l.bundle.Body(digest)
	}
	return body, ok
}

// Reader is Body for one who asks for many, in the order of their keys. It is not for several goroutines.
func (l *Layer) Reader() func(catalog.Digest) ([]byte, bool) {
	if l.bundle == nil || l.bundle.Reader == nil {
		return l.Body
	}
	rest := l.bundle.Reader()
	return func(digest catalog.Digest) ([]byte, bool) {
		if body, ok := l.bodies[digest]; ok {
			return body, true
		}
		return rest(digest)
	}
}

// Bundle is a list of entries that is on this server. It does not change.
type Bundle struct {
	Trie  catalog.Trie
	Bytes int64 // of all bodies
	// Body reads the body with that digest; false when it is none of this bundle, or cannot be read.
	Body func(catalog.Digest) ([]byte, bool)
	// Reader makes what Body is for one who asks for many bodies in the order of their keys; nil: Body is as good.
	Reader func() func(catalog.Digest) ([]byte, bool)
}

// Bundles are those that are on this server. It is safe for concurrent use.
type Bundles interface {
	// Open reads one. The error is BundleMissing when it is not there; others are of the moment.
	Open(root catalog.Digest) (Bundle, error)
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
