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
	active store.Active
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
	if id == converge.None || int(id) >= b.active.Len() {
		b.mu.Unlock()
		return declare.Resource{}, superseded(key)
	}
	active, graph, lookup, open := b.active, b.graph, b.lookup, b.open
	b.mu.Unlock()
	e, err := readEntry(active, int(id))
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
		if err := assemble(&r, active, graph, lookup); err != nil {
			return declare.Resource{}, err
		}
	}
	if r.Fragment != nil && !taken(r.Fragment, active, graph) {
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

// piecesOf lists the entries that may be pieces of the file at a path.
func piecesOf(path string, graph *converge.Graph) []converge.ID {
	piece := string(core.Key(declare.Claim{Kind: declare.ClaimFragment, ID: path + "#"}))
	var ids []converge.ID
	for i := range graph.Vertices {
		if v := &graph.Vertices[i]; strings.HasPrefix(string(v.Key), piece) && !v.NotApplicable {
			ids = append(ids, converge.ID(i))
		}
	}
	return ids
}

// taken reports whether a file takes a piece.
func taken(f *declare.Fragment, active store.Active, graph *converge.Graph) bool {
	id := graph.ID(core.Key(declare.Claim{Kind: declare.ClaimPath, ID: f.Path}))
	if id == converge.None || int(id) >= active.Len() {
		return false
	}
	e, err := readEntry(active, int(id))
	return err == nil && e.Resource.File != nil && e.Resource.File.Fragments
}

// assemble reads the pieces of a file and puts it together.
func assemble(r *declare.Resource, active store.Active, graph *converge.Graph, lookup declare.Lookup) error {
	var pieces []declare.Piece
	for _, id := range piecesOf(r.File.Path, graph) {
		if int(id) >= active.Len() {
			break // removals come after the entries
		}
		e, err := readEntry(active, int(id))
		if err != nil {
			return err
		}
		piece, err := e.Resource.Expanded(lookup)
		if err != nil {
			return err
		}
		if piece.Fragment != nil && piece.Fragment.Path == r.File.Path {
			pieces = append(pieces, declare.Piece{Claim: e.Claim(), Fragment: piece.Fragment})
		}
	}
	return core.Assemble(r, pieces)
}

func superseded(key converge.Key) error {
	return &reason.Error{Code: reason.ConcurrentEdit, Doing: "read the declaration of " + string(key), Cause: fmt.Errorf("it has just been replaced")}
}

// readEntry reads one entry of the active state.
func readEntry(active store.Active, i int) (catalog.Entry, error) {
	kept, err := active.Entry(i)
	if err != nil {
		return catalog.Entry{}, err
	}
	e, err := catalog.Decode(kept.Body)
	if err != nil {
		return catalog.Entry{}, err
	}
	e.Config, e.Place = kept.Config, declare.Place{File: kept.Place}
	return e, nil
}
