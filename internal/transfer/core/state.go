package core

import (
	"iter"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// Kept is what a host has kept of the heads that it was sent.
type Kept struct {
	Mark    catalog.Mark
	Head    []byte       // signed, as it came
	Verdict wire.Verdict // on Mark; Pending when there is none
	Refused wire.Refused
	// Ground is the head, signed, of the state that is enforced, where the one of Mark is not; nil where it is not known.
	Ground     []byte
	Statements []Statement // by layer
}

// Fetch names how a layer gets from one root to another.
type Fetch struct {
	Layer  string         `cbor:"1,keyasint"` // ID
	Base   catalog.Digest `cbor:"2,keyasint"` // that is held completely; zero: the empty one
	Target catalog.Digest `cbor:"3,keyasint"`
}

// Staged is what is staged of a fetch.
type Staged struct {
	Count int            // of changes
	Last  catalog.Digest // highest of their keys
	Bytes uint64         // of their bodies
}

// State is a complete, verified state: the list, and each layer that it names, are held.
type State struct {
	Mark   catalog.Mark
	Head   catalog.Head
	Signed []byte         // the head as it came
	List   catalog.List   // with the statements that are in force
	Root   catalog.Digest // of List: that of the mark where no statement changes anything
	// Trying is the layer whose statement is new in this state; empty where it is new for its head.
	Trying string
}

// Enforces is the mark of the state as the host keeps it: of the head, with the root of the list.
func (s *State) Enforces() catalog.Mark {
	m := s.Mark
	m.Root = s.Root
	return m
}

// Held reads what is held. Machine writes nothing: that is done by effects.
type Held interface {
	// Lists is the roots of the lists that are held, the newest first.
	Lists() ([]catalog.Digest, error)
	// List is an encoded list, or nil.
	List(root catalog.Digest) ([]byte, error)
	// Trie is the trie of a layer that is held completely, and has been verified.
	Trie(root catalog.Digest) (catalog.Trie, bool, error)
	// Remains is what is left of a layer that was damaged, as a layer of another root that is held completely.
	Remains(root catalog.Digest) (catalog.Trie, bool, error)
	// Staged iterates over what is staged of the fetch whose stage is open, in the order of the keys. An error is the last that it yields.
	Staged() iter.Seq2[catalog.Change, error]
	// Outline is what becomes of a base with all that is staged: the base's Outline of it. Who holds it may know that without reading.
	Outline(base catalog.Trie) (catalog.Trie, error)
	// Room says whether there is room for what is not held of the layers of a catalog, whose list is held, and whose bodies have so many
	// bytes in all. The error is DiskFull where there is none, and those of the disk.
	Room(root catalog.Digest, bytes uint64) error
}
