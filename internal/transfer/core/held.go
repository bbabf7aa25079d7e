package core

import (
	"slices"

	"tako.dev/tako/internal/catalog"
)

// there tells whether a layer is held.
func (m *Machine) there(root catalog.Digest) (bool, error) {
	if _, known := m.tries[root]; known {
		return true, nil
	}
	t, found, err := m.held.Trie(root)
	if err != nil || !found || t.Root() != root {
		return false, err
	}
	m.keepTrie(root, t)
	return true, nil
}

// keepTrie notes that a layer is held. One that is too large to be kept stands there as the empty trie, which its root tells apart.
func (m *Machine) keepTrie(root catalog.Digest, t catalog.Trie) {
	rows := t.Len()
	for _, other := range m.tries {
		rows += other.Len()
	}
	if rows > triesRowsMax {
		t = catalog.Trie{}
	}
	m.tries[root] = t
}

// forget drops what neither the active state nor the goal has.
func (m *Machine) forget() {
	keep := map[catalog.Digest]bool{}
	for _, c := range []*candidate{m.active, m.goal} {
		if c != nil {
			for i := range c.list {
				keep[c.list[i].Root] = true
			}
		}
	}
	for root := range m.tries {
		if !keep[root] {
			delete(m.tries, root)
		}
	}
}

// trie is a layer that is held.
func (m *Machine) trie(root catalog.Digest) (catalog.Trie, bool, error) {
	if t, known := m.tries[root]; known && t.Root() == root {
		return t, true, nil
	}
	t, found, err := m.held.Trie(root)
	return t, found && t.Root() == root, err
}

// baseOf is the newest root of a layer that is held, other than the target, and its trie; the zero root when there is none.
func (m *Machine) baseOf(l *catalog.Layer) (catalog.Digest, catalog.Trie, error) {
	var lists []catalog.List
	if m.active != nil {
		lists = append(lists, m.active.list)
	}
	roots, err := m.held.Lists()
	if err != nil {
		return catalog.Digest{}, catalog.Trie{}, err
	}
	for _, root := range roots {
		data, err := m.held.List(root)
		if err != nil {
			return catalog.Digest{}, catalog.Trie{}, err
		}
		if list, err := catalog.DecodeList(data); err == nil {
			lists = append(lists, list)
		}
	}
	tried := map[catalog.Digest]bool{l.Root: true}
	for _, list := range lists {
		at := slices.IndexFunc(list, func(other catalog.Layer) bool { return other.ID == l.ID })
		if at < 0 || tried[list[at].Root] {
			continue
		}
		tried[list[at].Root] = true
		t, found, err := m.trie(list[at].Root)
		if err != nil || found {
			return list[at].Root, t, err
		}
	}
	return catalog.Digest{}, catalog.Trie{}, nil
}
