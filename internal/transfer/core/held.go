package core

import (
	"slices"

	"tako.dev/tako/internal/catalog"
)

// there tells whether a layer is held.
func (m *Machine) there(root catalog.Digest) (bool, error) {
	_, found, err := m.trie(root)
	return found, err
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

// trie is a layer that is held, verified since the start of this run. Its leaves may be on disk.
func (m *Machine) trie(root catalog.Digest) (catalog.Trie, bool, error) {
	if t, known := m.tries[root]; known {
		return t, true, nil
	}
	t, found, err := m.held.Trie(root)
	if err != nil || !found || t.Root() != root {
		return catalog.Trie{}, false, err
	}
	m.tries[root] = t
	return t, true, nil
}

// baseOf is the root that is best to begin at, and its trie: what is left of the layer itself when it was damaged, or else the newest other
// root of it that is held, or what is left of that. The zero root when there is none. whole tells whether servers may know it.
func (m *Machine) baseOf(l *catalog.Layer) (t catalog.Trie, whole, found bool, err error) {
	if t, found, err = m.held.Remains(l.Root); err != nil || found {
		return t, false, found, err
	}
	var lists []catalog.List
	if m.active != nil {
		lists = append(lists, m.active.list)
	}
	roots, err := m.held.Lists()
	if err != nil {
		return t, false, false, err
	}
	for _, root := range roots {
		data, err := m.held.List(root)
		if err != nil {
			return t, false, false, err
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
		root := list[at].Root
		tried[root] = true
		if t, found, err = m.trie(root); err != nil || found {
			return t, true, found, err
		}
		if t, found, err = m.held.Remains(root); err != nil || found {
			return t, false, found, err
		}
	}
	return catalog.Trie{}, false, false, nil
}
