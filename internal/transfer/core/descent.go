package core

import (
	"crypto/sha256"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// descend asks for the nodes of the layer that are not held, and then for the bodies.
func (m *Machine) descend() {
	p := &m.progress
	if p.descent == nil {
		p.descent = catalog.NewDescent(p.fetch.Target, p.base, catalog.EntriesMax)
	}
	if p.target != nil {
		m.askBodies()
		return
	}
	if p.descent.Rows() > descentRowsMax {
		m.leaveBase()
		return
	}
	if wanted := p.descent.Wanted(wire.HashesMax); len(wanted) > 0 {
		m.askNodes(p.fetch.Layer, wanted)
		return
	}
	t, err := p.descent.Built()
	if err != nil {
		m.poison(err)
		return
	}
	p.target, p.descent = &t, nil
	m.plan()
}

// leaveBase is when a layer has little in common with what is held.
func (m *Machine) leaveBase() {
	p := &m.progress
	p.fetch.Base, p.base, p.way = catalog.Digest{}, catalog.Trie{}, bySnapshot
	p.descent, p.target, p.needs = nil, nil, nil
	m.restage()
}

// plan finds out which bodies are missing, and keeps what was staged if it is the beginning of that.
func (m *Machine) plan() {
	p := &m.progress
	p.needs = nil
	for c, err := range catalog.Difference(p.base, *p.target, catalog.Digest{}) {
		switch {
		case err != nil:
			m.unread(err)
			return
		case len(p.needs) == descentRowsMax:
			m.leaveBase()
			return
		}
		p.needs = append(p.needs, c)
	}
	at := 0
	for c, err := range m.held.Staged() {
		if err != nil {
			m.unread(err)
			return
		}
		if at == len(p.needs) || p.needs[at] != c {
			m.restage() // opened comes here again by way of askLayer
			return
		}
		at++
	}
	p.needs = p.needs[at:]
	m.askBodies()
}

// askBodies asks for the next bodies; when there are none left, the layer is complete.
func (m *Machine) askBodies() {
	p := &m.progress
	var hashes []catalog.Digest
	for i := range p.needs {
		if len(hashes) == wire.HashesMax {
			break
		}
		if !p.needs[i].Deleted {
			hashes = append(hashes, p.needs[i].Digest)
		}
	}
	if len(hashes) > 0 {
		m.askNodes(p.fetch.Layer, hashes)
		return
	}
	m.stage(len(p.needs), nil)
	p.waits = forCommit
	m.do(Commit{Target: *p.target})
}

// stage moves the first needs to the stage, with the bodies of those that have one.
func (m *Machine) stage(count int, bodies [][]byte) {
	p := &m.progress
	if count == 0 {
		return
	}
	changes := make([]wire.Change, 0, count)
	for _, c := range p.needs[:count] {
		change := wire.Change{Key: c.Key, Deleted: c.Deleted}
		if !c.Deleted {
			change.Body, bodies = bodies[0], bodies[1:]
		}
		changes = append(changes, change)
	}
	p.needs = p.needs[count:]
	m.append(changes)
}

func (m *Machine) nodesCame(e NodesCame) {
	p := &m.progress
	if !m.answers(e.ID) {
		return
	}
	m.progress.aside = e.Aside
	items := e.Reply.Items
	switch {
	case m.goal.list == nil:
		m.listCame(items)
	case len(items) > len(p.hashes) || !areThose(items, p.hashes):
		m.wrong(errHash)
	case p.target != nil:
		m.bodiesCame(items)
	default:
		m.partsCame(items)
	}
}

// areThose tells whether each item that is there has the hash that was asked for.
func areThose(items [][]byte, hashes []catalog.Digest) bool {
	for i, item := range items {
		if len(item) > 0 && sha256.Sum256(item) != hashes[i] {
			return false
		}
	}
	return true
}

func (m *Machine) partsCame(items [][]byte) {
	came := false
	for _, item := range items {
		if len(item) == 0 {
			continue
		}
		if err := m.progress.descent.Take(item); err != nil {
			m.progress.waits = forNothing
			m.poison(err) // it has the hash that was asked for
			return
		}
		came = true
	}
	if !came {
		m.lacks()
		return
	}
	delete(m.lacking, m.progress.fetch.Target)
	m.progress.waits = forNothing
	m.descend()
}

// bodiesCame stages what came up to the first body that is missing.
func (m *Machine) bodiesCame(items [][]byte) {
	p := &m.progress
	count, bodies := 0, 0
	for count < len(p.needs) {
		if !p.needs[count].Deleted {
			if bodies == len(items) || len(items[bodies]) == 0 {
				break
			}
			if n := len(items[bodies]); n > declare.BodyBytesMax {
				p.waits = forNothing
				m.poison(tooLarge(n)) // it has the hash that is signed
				return
			}
			bodies++
		}
		count++
	}
	if bodies == 0 {
		m.lacks()
		return
	}
	delete(m.lacking, p.fetch.Target)
	p.waits = forNothing
	m.pace.backoff.Reset() // it gets on
	m.stage(count, items[:bodies])
	m.askBodies()
}

// lacks is after a source that answered, and has nothing of what was asked for. When all that there are have, the layer is asked for as a whole: what
// an operator has ordered is at no server, and where somebody brings it, it is there as a whole.
func (m *Machine) lacks() {
	target := m.progress.fetch.Target
	if len(m.lacking) >= lackingMax {
		clear(m.lacking)
	}
	m.lacking[target]++
	if m.lacked(target) {
		m.progress.open = false // it begins anew, as a whole
	}
	m.failed(0)
}

// lacked tells whether a layer is not to be had by hash.
func (m *Machine) lacked(target catalog.Digest) bool {
	return m.lacking[target] >= max(len(m.sources.blamed), lacksMin)
}
