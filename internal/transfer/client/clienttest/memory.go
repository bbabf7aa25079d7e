package clienttest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"iter"
	"slices"
	"sync"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// Memory is a client.Store that keeps everything in memory, and drops nothing. The zero value is empty.
type Memory struct {
	mu     sync.Mutex // guards all below
	kept   core.Kept
	lists  []catalog.Digest // the newest first
	texts  map[catalog.Digest][]byte
	layers map[catalog.Digest]layer
	stage  *stage
}

// layer is a layer with what its rows name.
type layer struct {
	trie   catalog.Trie
	bodies map[catalog.Digest][]byte // by digest
}

type stage struct {
	fetch   core.Fetch
	changes []catalog.Change
	bodies  map[catalog.Digest][]byte
}

// Kept returns what is kept.
func (m *Memory) Kept() (core.Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept, nil
}

// Accept keeps a mark.
func (m *Memory) Accept(mark catalog.Mark, head []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.kept.Mark
	same := mark.Epoch == old.Epoch && mark.Version == old.Version
	if mark.Epoch < old.Epoch || mark.Epoch == old.Epoch && mark.Version < old.Version || same && mark.Root != old.Root {
		return &reason.Error{Code: reason.HeadRefused, Doing: "keep a head", Cause: errors.New("it is lower than the one that is kept, or another of its version")}
	}
	m.kept.Mark, m.kept.Head = mark, head
	if v := &m.kept.Verdict; v.Epoch != mark.Epoch || v.Version != mark.Version || v.Root != mark.Root {
		*v = wire.Verdict{}
	}
	return nil
}

// Remember keeps a verdict.
func (m *Memory) Remember(v wire.Verdict) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.kept.Mark; v.Epoch == k.Epoch && v.Version == k.Version && v.Root == k.Root {
		m.kept.Verdict = v
	}
	return nil
}

// SetStatements keeps statements.
func (m *Memory) SetStatements(list []core.Statement) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range list {
		for _, have := range m.kept.Statements {
			if a, b := have.Mark(), list[i].Mark(); have.Layer == list[i].Layer && (b.Epoch < a.Epoch || b.Epoch == a.Epoch && b.Number < a.Number) {
				return &reason.Error{Code: reason.StatementRefused, Doing: "keep a statement", Cause: errors.New("it is lower than the one that is kept")}
			}
		}
	}
	m.kept.Statements = slices.Clone(list)
	return nil
}

// Count keeps the counters.
func (m *Memory) Count(refused wire.Refused) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept.Refused = refused
	return nil
}

// Lists returns the roots of the lists.
func (m *Memory) Lists() ([]catalog.Digest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lists), nil
}

// List returns a list.
func (m *Memory) List(root catalog.Digest) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts[root], nil
}

// PutList keeps a list.
func (m *Memory) PutList(encoded []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.texts == nil {
		m.texts = map[catalog.Digest][]byte{}
	}
	root := catalog.ListRoot(encoded)
	m.texts[root] = slices.Clone(encoded)
	m.lists = slices.Insert(slices.DeleteFunc(m.lists, func(d catalog.Digest) bool { return d == root }), 0, root)
	return nil
}

// Trie returns the trie of a layer.
func (m *Memory) Trie(root catalog.Digest) (catalog.Trie, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, found := m.layers[root]
	return l.trie, found, nil
}

// Remains says that nothing was damaged.
func (m *Memory) Remains(catalog.Digest) (catalog.Trie, bool, error) {
	return catalog.Trie{}, false, nil
}

// Room says that there is room.
func (m *Memory) Room(catalog.Digest, uint64) error { return nil }

// Body returns a body.
func (m *Memory) Body(root, key catalog.Digest) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.layers[root]
	digest, found, err := l.trie.Get(key)
	if !found {
		return nil, err
	}
	return l.bodies[digest], nil
}

// Begin opens the stage.
func (m *Memory) Begin(f core.Fetch) (core.Staged, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stage == nil || m.stage.fetch != f {
		m.stage = &stage{fetch: f, bodies: map[catalog.Digest][]byte{}}
	}
	var staged core.Staged
	for _, c := range m.stage.changes {
		staged.Count, staged.Last = staged.Count+1, c.Key
		staged.Bytes += uint64(len(m.stage.bodies[c.Digest]))
	}
	return staged, nil
}

// Append adds to the stage.
func (m *Memory) Append(changes []wire.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stage == nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "stage changes", Cause: errors.New("no stage is open")}
	}
	for _, c := range changes {
		change := catalog.Change{Key: c.Key, Deleted: c.Deleted}
		if !c.Deleted {
			change.Digest = sha256.Sum256(c.Body)
			m.stage.bodies[change.Digest] = bytes.Clone(c.Body)
		}
		m.stage.changes = append(m.stage.changes, change)
	}
	return nil
}

// Staged iterates over the stage.
func (m *Memory) Staged() iter.Seq2[catalog.Change, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stage == nil {
		return catalog.Changes()
	}
	return catalog.Changes(m.stage.changes...)
}

// Outline is what becomes of a base with the stage.
func (m *Memory) Outline(base catalog.Trie) (catalog.Trie, error) { return base.Outline(m.Staged()) }

// Commit makes a layer of the stage.
func (m *Memory) Commit(target catalog.Trie) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stage
	m.stage = nil
	corrupt := func(why string) error {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "put a layer together", Cause: errors.New(why)}
	}
	if s == nil || target.Root() != s.fetch.Target {
		return corrupt("the stage is for another root")
	}
	base := m.layers[s.fetch.Base]
	trie, err := base.trie.Apply(catalog.Changes(s.changes...))
	if err != nil {
		return err
	}
	if trie.Root() != s.fetch.Target {
		return corrupt("what was staged does not lead there")
	}
	l := layer{trie: trie, bodies: map[catalog.Digest][]byte{}}
	for r, err := range trie.From(catalog.Digest{}) {
		if err != nil {
			return err
		}
		body, found := s.bodies[r.Digest]
		if !found {
			body, found = base.bodies[r.Digest], base.bodies[r.Digest] != nil
		}
		if !found {
			return corrupt("a body is missing")
		}
		l.bodies[r.Digest] = body
	}
	if m.layers == nil {
		m.layers = map[catalog.Digest]layer{}
	}
	m.layers[s.fetch.Target] = l
	return nil
}

// Drop throws the stage away.
func (m *Memory) Drop() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stage = nil
	return nil
}
