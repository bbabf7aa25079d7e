package load

import (
	"fmt"
	"strings"
	"sync"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// Bodies reads declared resources again, for what is too large to keep in memory. It follows the active state when that is
// swapped. Its methods may be called from several goroutines.
type Bodies struct {
	store *store.Store

	mu     sync.Mutex // guards what follows
	active []store.Ref
	graph  *converge.Graph
	lookup declare.Lookup
	open   Open // nil where nothing can be opened
}

// NewBodies returns one of a store; it knows nothing before the first Swap.
func NewBodies(st *store.Store) *Bodies { return &Bodies{store: st} }

// Swap follows a committed state.
func (b *Bodies) Swap(d *State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active, b.graph, b.lookup = b.store.Active(), d.Compiled.Graph, d.Lookup
}

// OpenWith says how sealed contents are opened from now on.
func (b *Bodies) OpenWith(open Open) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = open
}

// Read returns the resource that claims key, expanded, with its content if that is sealed: in memory only. digest is what the
// caller was bound to: something else by now is an error, because the caller's operation belongs to a state that is over.
func (b *Bodies) Read(key converge.Key, digest converge.Digest) (declare.Resource, error) {
	b.mu.Lock()
	id := b.graph.ID(key)
	if id == converge.None || int(id) >= len(b.active) {
		b.mu.Unlock()
		return declare.Resource{}, superseded(key)
	}
	ref, lookup, open := b.active[id], b.lookup, b.open
	active, graph := b.active, b.graph
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
	if r.File != nil && r.File.Fragments {
		if err := b.assemble(&r, piecesOf(r.File.Path, active, graph), lookup); err != nil {
			return declare.Resource{}, err
		}
	}
	if r.Fragment != nil && !b.taken(r.Fragment, active, graph) {
		return declare.Resource{}, core.Untaken(r.Fragment)
	}
	d, err := e.DesireOf(r)
	if err != nil {
		return declare.Resource{}, err
	}
	if converge.Digest(d) != digest {
		return declare.Resource{}, superseded(key)
	}
	if unready := core.Unready(&e); unready != nil && (e.Sealed == nil || open == nil) {
		return declare.Resource{}, unready
	}
	return opened(&e, r, open)
}

// piecesOf lists what may be pieces of the file at a path.
func piecesOf(path string, active []store.Ref, graph *converge.Graph) []store.Ref {
	var refs []store.Ref
	for i, ref := range active {
		if ref.Claim.Kind == declare.ClaimFragment && strings.HasPrefix(ref.Claim.ID, path+"#") && !graph.Vertices[i].NotApplicable {
			refs = append(refs, ref)
		}
	}
	return refs
}

// taken reports whether a file takes a piece.
func (b *Bodies) taken(f *declare.Fragment, active []store.Ref, graph *converge.Graph) bool {
	id := graph.ID(core.Key(declare.Claim{Kind: declare.ClaimPath, ID: f.Path}))
	if id == converge.None || int(id) >= len(active) {
		return false
	}
	e, err := readEntry(b.store, active[id])
	return err == nil && e.Resource.File != nil && e.Resource.File.Fragments
}

// assemble reads the pieces of a file and puts it together.
func (b *Bodies) assemble(r *declare.Resource, refs []store.Ref, lookup declare.Lookup) error {
	var pieces []declare.Piece
	for _, ref := range refs {
		e, err := readEntry(b.store, ref)
		if err != nil {
			return err
		}
		piece, err := e.Resource.Expanded(lookup)
		if err != nil {
			return err
		}
		if piece.Fragment != nil && piece.Fragment.Path == r.File.Path {
			pieces = append(pieces, declare.Piece{Claim: ref.Claim, Fragment: piece.Fragment})
		}
	}
	return core.Assemble(r, pieces)
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
