package held

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// listsRecent is how many of the newest lists stay in any case: the one that is fetched, and the one before, upon which its fetch may
// build although it was never enforced.
const listsRecent = 2

// listRecord is the content of the file of a list.
type listRecord struct {
	Number  uint64 `cbor:"1,keyasint"` // the later it was put, the higher
	Encoded []byte `cbor:"2,keyasint"`
}

// keptList is a list that was read and verified.
type keptList struct {
	listRecord
	root catalog.Digest
	list catalog.List
}

// Lists is part of client.Layers.
func (s *Store) Lists() ([]catalog.Digest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	order, err := s.listsLocked()
	roots := make([]catalog.Digest, len(order))
	for i := range order {
		roots[i] = order[i].root
	}
	return roots, err
}

// listsLocked reads all lists, the newest first.
func (s *Store) listsLocked() ([]keptList, error) {
	names, err := s.lists.names()
	if err != nil {
		return nil, err
	}
	var found []keptList
	for _, name := range names {
		root, ok := catalog.ParseDigest(name)
		if !ok {
			continue
		}
		l, err := s.listLocked(root)
		if err != nil {
			return nil, err
		}
		if l != nil {
			found = append(found, *l)
		}
	}
	slices.SortFunc(found, func(a, b keptList) int { return cmp.Compare(b.Number, a.Number) })
	return found, nil
}

// listLocked reads a list; nil where there is none.
func (s *Store) listLocked(root catalog.Digest) (*keptList, error) {
	name := root.String()
	l := &keptList{root: root}
	payload, err := s.lists.readRecord(name, "list")
	if err == nil {
		err = l.read(payload, filepath.Join(s.lists.path, name))
	}
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case reason.Is(err, reason.StateCorrupt):
		return nil, s.damagedLocked(s.lists, name, err)
	}
	return nil, err
}

func (l *keptList) read(payload []byte, path string) error {
	err := wire.Decode(payload, &l.listRecord)
	if err == nil && catalog.ListRoot(l.Encoded) != l.root {
		err = errors.New("it is not what its name says")
	}
	if err == nil {
		l.list, err = catalog.DecodeList(l.Encoded)
	}
	if err != nil {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(path), Cause: err}
	}
	return nil
}

// List is part of client.Layers.
func (s *Store) List(root catalog.Digest) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.listLocked(root)
	if l == nil {
		return nil, err
	}
	return l.Encoded, nil
}

// PutList is part of client.Layers.
func (s *Store) PutList(encoded []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := catalog.DecodeList(encoded); err != nil {
		return err
	}
	order, err := s.listsLocked()
	if err != nil {
		return err
	}
	root := catalog.ListRoot(encoded)
	r := listRecord{Number: 1, Encoded: encoded}
	if len(order) > 0 {
		if order[0].root == root {
			return nil
		}
		r.Number = order[0].Number + 1
	}
	payload, err := wire.Encode(&r)
	if err != nil {
		return err
	}
	if err := s.lists.writeRecord(root.String(), "list", payload); err != nil {
		return err
	}
	return s.trimLocked(listsRecent)
}

// Catalog is a list with everything in it: verified, and complete at the moment of the call.
func (s *Store) Catalog(root catalog.Digest) (catalog.List, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := func(what string) error {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read the catalog " + root.String(), Cause: fmt.Errorf("%s is not here", what),
			Hint: "it is fetched again when a server can be reached"}
	}
	l, err := s.listLocked(root)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, missing("it")
	}
	for _, layer := range l.list {
		_, found, err := s.layers.Trie(layer.Root)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, missing("layer " + layer.ID)
		}
	}
	return l.list, nil
}
