package catalog

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/bits"
	"slices"

	"tako.dev/tako/internal/reason"
)

// Lookup finds the digest at a key of the layer with a root, of which nothing is here: it asks for what lies on the way to the key, by
// hash, and believes nothing that does not have the hash that was asked for. That is the root, and a node for each 16-fold of rows. It is
// false when the layer has no such key. The errors are those of fetch, and StateCorrupt.
func Lookup(root, key Digest, fetch func(hash Digest) ([]byte, error)) (Digest, bool, error) {
	data, err := fetched(root, root, fetch)
	if err != nil {
		return Digest{}, false, err
	}
	_, hash, err := parseHeader(data)
	if err != nil {
		return Digest{}, false, unsound(root, err)
	}
	for depth := 0; ; depth++ {
		if data, err = fetched(root, hash, fetch); err != nil {
			return Digest{}, false, err
		}
		n, err := parse(data)
		if err != nil {
			return Digest{}, false, unsound(root, err)
		}
		if n.present == 0 {
			at, found := slices.BinarySearchFunc(n.rows, key, func(r Row, k Digest) int { return bytes.Compare(r.Key[:], k[:]) })
			if !found {
				return Digest{}, false, nil
			}
			return n.rows[at].Digest, true, nil
		}
		if depth >= 2*len(key) {
			return Digest{}, false, unsound(root, fmt.Errorf("it is deeper than a key has digits"))
		}
		var there bool
		if hash, there = n.child(nibble(&key, depth)); !there {
			return Digest{}, false, nil
		}
	}
}

// child is the hash of a child of an interior node.
func (p *parsed) child(at int) (Digest, bool) {
	if p.present&(1<<at) == 0 {
		return Digest{}, false
	}
	return p.children[bits.OnesCount16(p.present&(1<<at-1))], true
}

func fetched(root, hash Digest, fetch func(Digest) ([]byte, error)) ([]byte, error) {
	data, err := fetch(hash)
	if err == nil && sha256.Sum256(data) != hash {
		err = unsound(root, fmt.Errorf("what came has not the hash %s", hash))
	}
	return data, err
}

func unsound(root Digest, cause error) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "look into layer " + root.String(), Cause: cause}
}
