package core

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// Names under which answers are kept. An answer is given again to whoever may ask for just that: the caller has verified a head whose list
// has the layer at the target, as the server had for the first one. The own layers of all nodes have one ID, so what is asked of them by hash
// is kept for each node apart; what is asked of them by root needs no more, because a node's head names no other one's root.

// SyncName is that of the way from a base to a target of a layer. What is asked for from a cursor on is a part of it.
func SyncName(layer string, base, target catalog.Digest) string {
	return name("sync", layer, string(base[:]), string(target[:]))
}

// PartName is that of what has a hash in a layer: a node of its trie, or a body.
func PartName(layer, nodeUID string, hash catalog.Digest) string {
	if layer != wire.OwnLayer {
		nodeUID = ""
	}
	return name("part", layer, nodeUID, string(hash[:]))
}

// ListName is that of the list of a catalog.
func ListName(root catalog.Digest) string { return name("list", string(root[:])) }

// ObjectName is that of an object. Whether a node may have it is asked each time.
func ObjectName(digest string) string { return name("object", digest) }

// name is a name for a file. Lengths go along, so that nothing can be moved from one part to the next.
func name(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// PartsName is that of several such things, asked for together: for who asks for the same at the same time.
func PartsName(layer, nodeUID string, hashes []catalog.Digest) string {
	if layer != wire.OwnLayer {
		nodeUID = ""
	}
	parts := []string{"parts", layer, nodeUID}
	for i := range hashes {
		parts = append(parts, string(hashes[i][:]))
	}
	return name(parts...)
}
