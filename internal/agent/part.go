package agent

import (
	"fmt"
	"sync"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// part is one vertex of the graph as the loop knows it. There may be 100,000: it keeps no declaration.
type part struct {
	claim   declare.Claim
	title   string
	config  string
	place   string
	kind    declare.ResourceType
	when    string        // why it is not applicable; empty where it is
	err     *reason.Error // why it could not be bound; it is tried again at each check
	res     host.Resource // nil until it is bound
	digest  converge.Digest
	restore bool      // what was there before the first change is kept
	removal *removal  // not nil for what has left the declaration
	plan    host.Plan // of the last check, until it is applied; then its changes, until they are told
	note    string    // of the last operation
	slot    disk.ID   // what the watcher knows it by
}

// removal is what is still to be undone.
type removal struct {
	how  declare.OnRemove
	done bool
}

func newPart(it *core.Item, digest converge.Digest) *part {
	return &part{claim: it.Claim, title: it.Title, config: it.Config, place: it.Place.String(), kind: it.Type, when: it.When, err: it.Err,
		digest: digest, restore: it.OnRemove == declare.OnRemoveRestore}
}

func (p *part) key() converge.Key { return core.Key(p.claim) }

// bodies reads declared resources again, for what is too large to keep in memory. It is shared with the operations, and
// follows the active state when that is swapped.
type bodies struct {
	store *store.Store

	mu     sync.Mutex // guards what follows
	active []store.Ref
	graph  *converge.Graph
	lookup declare.Lookup
}

func (b *bodies) swap(active []store.Ref, graph *converge.Graph, lookup declare.Lookup) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active, b.graph, b.lookup = active, graph, lookup
}

// read returns the resource that claims key, expanded. digest is what the caller was bound to: something else by now is an
// error, because the caller's operation belongs to a state that is over.
func (b *bodies) read(key converge.Key, digest converge.Digest) (declare.Resource, error) {
	b.mu.Lock()
	id := b.graph.ID(key)
	if id == converge.None || int(id) >= len(b.active) {
		b.mu.Unlock()
		return declare.Resource{}, superseded(key)
	}
	ref, lookup := b.active[id], b.lookup
	b.mu.Unlock()
	e, err := readEntry(b.store, ref)
	if err != nil {
		return declare.Resource{}, err
	}
	r := e.Resource
	if r.Expand {
		if r, err = r.Expanded(lookup); err != nil {
			return declare.Resource{}, err
		}
	}
	d, err := catalog.Desire(r)
	if err != nil {
		return declare.Resource{}, err
	}
	if converge.Digest(d) != digest {
		return declare.Resource{}, superseded(key)
	}
	return r, nil
}

func superseded(key converge.Key) error {
	return &reason.Error{Code: reason.ConcurrentEdit, Doing: "read the declaration of " + string(key), Cause: fmt.Errorf("it has just been replaced")}
}

// readEntry reads one entry of the active state.
func readEntry(st *store.Store, ref store.Ref) (catalog.Entry, error) {
	data, err := st.Body(ref)
	if err != nil {
		return catalog.Entry{}, err
	}
	e, err := catalog.Decode(data)
	if err != nil {
		return catalog.Entry{}, err
	}
	e.Config, e.Place = ref.Config, declare.Place{File: ref.Place}
	return e, nil
}
