package held

import (
	"context"

	"tako.dev/tako/internal/catalog"
)

// Trie is part of client.Layers.
func (s *Store) Trie(root catalog.Digest) (catalog.Trie, bool, error) { return s.layers.Trie(root) }

// Remains is part of client.Layers.
func (s *Store) Remains(root catalog.Digest) (catalog.Trie, bool, error) {
	return s.layers.Remains(root)
}

// Check reads the layers once more that are in use, until ctx ends, and reports whether they are what they were.
func (s *Store) Check(ctx context.Context) (bool, error) { return s.layers.Check(ctx) }

// Body is part of client.Layers.
func (s *Store) Body(root, key catalog.Digest) ([]byte, error) { return s.layers.Body(root, key) }

// Rows calls take with each row of a layer that is acted upon, in the order of the keys; it may keep the bodies. What is delivered and not
// acted upon is not read. The error is that of take, or StateCorrupt where the layer is not here, or not any more.
func (s *Store) Rows(root catalog.Digest, take func(key catalog.Digest, body []byte) error) error {
	for e, err := range s.layers.Acting(root) {
		if err != nil {
			return err
		}
		if err := take(e.Key, e.Body); err != nil {
			return err
		}
	}
	return nil
}
