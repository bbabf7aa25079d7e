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
	clear(m.lacking)
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

// listOf is a list that is held, and is as it should be; nil where there is none.
func (m *Machine) listOf(root catalog.Digest) (catalog.List, error) {
	data, err := m.held.List(root)
	if err != nil || data == nil || catalog.ListRoot(data) != root {
		return nil, err
	}
	l, err := catalog.DecodeList(data)
	if err != nil {
		return nil, nil // it is fetched, and refused
	}
	return nonNil(l), nil
}

// reread has what is enforced mended.
func (m *Machine) reread() {
	clear(m.tries)
	m.mend = true
}

// inspect has what is enforced mended at the start, where the newest head is refused and nothing else looks at it.
func (m *Machine) inspect() {
	if m.active == nil {
		if c, known := m.ground(); known && !m.isQuarantined(c.mark.Root) {
			m.goal = c // its list is lost
		}
		return
	}
	for i := range m.active.list {
		if there, err := m.there(m.active.list[i].Root); err != nil || !there {
			m.mend = true
		}
	}
}

// mending tells whether the turn of what is enforced has come: it may be damaged, and nothing newer is on its way.
func (m *Machine) mending() bool {
	return m.mend && m.active != nil && m.goal == nil && m.next == nil
}

// repair makes what is enforced the goal once more. It stays what statements are judged by meanwhile.
func (m *Machine) repair() {
	if list, _ := m.arranged(m.active); m.quarantined(list) {
		m.mend = false // nothing but what kills the host could be put together
		return
	}
	m.goal = m.active.again("")
	m.goal.list, m.goal.plain = nil, nil
}
