package load

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// State is a state that may become the active one.
type State struct {
	Entries  []catalog.Entry
	Removals []store.Removal // what has to be undone: because it is not in Entries any more, or still from before
	Compiled *core.Compiled
	Lookup   declare.Lookup // what it was compiled for
	// Delivered counts what is delivered beside that and not acted upon, where it was read together with Entries.
	Delivered int
	Expiry    Expiry

	claims  []declare.Claim
	encoded [][]byte // bodies, by entry; nil where the state is the active one already
	root    catalog.Digest
	without catalog.Digest    // identifies what is left out
	expired []catalog.Expired // what that is, as far as it was found out now
	leaving []store.Removal   // of Removals, what was not there before
}

// Lane names the lane of a resource type, see converge.Vertex.
type Lane func(declare.ResourceType) string

// Declared reads declaration files and directories and compiles them against what is active. Every mistake of every file comes
// back at once, as declare.Faults; nothing is written.
func Declared(files []string, st *store.Store, lookup declare.Lookup, lane Lane) (*State, error) {
	documents, err := declare.Load(files)
	if err != nil {
		return nil, err
	}
	entries, faults := catalog.Resolve(documents)
	if len(faults) > 0 {
		return nil, declare.Faults(declare.SortFaults(faults))
	}
	d := &State{Lookup: lookup}
	d.Entries = slices.DeleteFunc(entries, func(e catalog.Entry) bool { return e.Claim().Kind == declare.ClaimData })
	d.Delivered = len(entries) - len(d.Entries)
	if err := d.encode(); err != nil {
		return nil, err
	}
	d.root = catalog.Root(d.claims, d.encoded)
	if err := d.leave(st); err != nil {
		return nil, err
	}
	return d, d.compile(lane)
}

// Layers compiles the layers of configs that a signed catalog lists, in its order, against what is active, without what of them has expired. root
// is the catalog's. What is sealed in them waits for Unseal. The errors say why the host refuses the state: PriorityConflict, TooManyResources, and as
// declare.Faults the cycles; nothing is written.
func Layers(root catalog.Digest, layers []catalog.DecodedLayer, p catalog.Proof, st *store.Store, lookup declare.Lookup, lane Lane) (*State, error) {
	living := catalog.Alive(layers, p)
	entries, conflicts := catalog.ResolveLayers(living.Layers)
	if len(conflicts) > 0 {
		return nil, conflicts[0].Reason()
	}
	if len(entries) > declare.ResourcesMax {
		return nil, &reason.Error{Code: reason.TooManyResources, Doing: "resolve the configs of this host",
			Cause: fmt.Errorf("%d resources, the limit on one host is %d", len(entries), declare.ResourcesMax)}
	}
	d := &State{Entries: entries, Lookup: lookup, root: root}
	d.expire(living, p, catalog.Digest{})
	if err := d.encode(); err != nil {
		return nil, err
	}
	if err := d.leave(st); err != nil {
		return nil, err
	}
	return d, d.compile(lane)
}

// encode makes the bodies that are kept of the entries.
func (d *State) encode() error {
	d.encoded, d.claims = make([][]byte, len(d.Entries)), make([]declare.Claim, len(d.Entries))
	for i := range d.Entries {
		body, err := d.Entries[i].Encode()
		if err != nil {
			return err
		}
		d.encoded[i], d.claims[i] = body, d.Entries[i].Claim()
	}
	return nil
}

// Claims yields what the state has, and what of it has expired: that was declared to go, and is no deletion.
func (d *State) Claims(yield func(declare.Claim) bool) {
	for i := range d.Entries {
		if !yield(d.Entries[i].Claim()) {
			return
		}
	}
	for i := range d.expired {
		if !yield(d.expired[i].Claim) {
			return
		}
	}
}

// ActiveClaims lists what is active, for core.Guard.
func ActiveClaims(st *store.Store) ([]declare.Claim, error) {
	active := st.Active()
	claims := make([]declare.Claim, 0, active.Len())
	for ref, err := range active.Refs() {
		if err != nil {
			return nil, err
		}
		claims = append(claims, ref.Claim)
	}
	return claims, nil
}

// LastGood reads the active state back: what is enforced when the declarations cannot be.
func LastGood(st *store.Store, lookup declare.Lookup, lane Lane) (*State, error) {
	return LastGoodAt(st, catalog.Proof{}, lookup, lane)
}

// LastGoodAt is LastGood without what has expired.
func LastGoodAt(st *store.Store, p catalog.Proof, lookup declare.Lookup, lane Lane) (*State, error) {
	active := st.Active()
	d := &State{Lookup: lookup, root: catalog.Digest(active.Root())}
	for i := range active.Len() {
		e, err := readEntry(active, i)
		if err != nil {
			return nil, err
		}
		d.Entries = append(d.Entries, e)
	}
	var living catalog.Living
	d.Entries, living = catalog.Remaining(d.Entries, p)
	d.expire(living, p, catalog.Digest(active.Without()))
	d.Expiry.Stands = active.Without() != converge.Digest{}
	if len(living.Expired) > 0 { // it is another state now
		if err := d.encode(); err != nil {
			return nil, err
		}
		if err := d.leave(st); err != nil {
			return nil, err
		}
		return d, d.compile(lane)
	}
	var err error
	if d.Removals, err = st.Removals(); err != nil {
		return nil, err
	}
	return d, d.compile(lane)
}

// Nothing is the state of a host that was never told anything, or nothing that can be enforced. Committing it changes nothing.
func Nothing(lookup declare.Lookup, lane Lane) (*State, error) {
	d := &State{Lookup: lookup}
	return d, d.compile(lane)
}

// leave finds what is active and not declared any more.
func (d *State) leave(st *store.Store) error {
	stays := make(map[declare.Claim]bool, len(d.claims))
	for _, c := range d.claims {
		stays[c] = true
	}
	pending, err := st.Removals()
	if err != nil {
		return err
	}
	for _, r := range pending {
		if !stays[r.Claim] {
			d.Removals = append(d.Removals, r)
		}
	}
	active := st.Active()
	for i := range active.Len() {
		ref, err := active.Ref(i)
		if err != nil {
			return err
		}
		if stays[ref.Claim] || ref.OnRemove == declare.OnRemoveKeep {
			continue
		}
		was, err := active.Entry(i)
		if err != nil {
			return err
		}
		e, err := catalog.Decode(was.Body)
		if err != nil {
			return err
		}
		if applies, err := core.Applicable(e.Resource.When, d.Lookup); err != nil || !applies {
			continue // it was not ours on this host
		}
		d.leaving = append(d.leaving, store.Removal{Claim: ref.Claim, Title: ref.Title, Config: ref.Config, Digest: ref.Digest,
			OnRemove: ref.OnRemove, After: ref.After, Body: was.Body, Since: time.Now()})
	}
	d.Removals = append(d.Removals, d.leaving...)
	return nil
}

// compile makes the graph of the entries and of what is to be undone.
func (d *State) compile(lane Lane) error {
	in := core.Input{Entries: d.Entries, Lookup: d.Lookup, Lane: lane, Zones: time.LoadLocation}
	for _, r := range d.Removals {
		e, err := catalog.Decode(r.Body)
		if err != nil {
			return err
		}
		in.Removals = append(in.Removals, core.Removal{Claim: r.Claim, Title: r.Title, Config: r.Config, Type: e.Resource.Type(),
			Digest: r.Digest, OnRemove: r.OnRemove, After: r.After, Resource: e.Resource})
	}
	compiled, faults := core.Compile(in)
	if len(faults) > 0 {
		return declare.Faults(declare.SortFaults(faults))
	}
	d.Compiled = compiled
	return nil
}

// Active reports whether the state is the active one already, down to where each resource is declared.
func (d *State) Active(st *store.Store) bool {
	return st.Active().Is(converge.Digest(d.root), converge.Digest(d.without), func(yield func(string) bool) {
		for i := range d.Entries {
			if !yield(d.Entries[i].Place.String()) {
				return
			}
		}
	})
}

// Commit makes the state the active one, durably: first what has to be undone because of it, then the state itself.
func (d *State) Commit(st *store.Store) error {
	if d.encoded == nil || d.Active(st) {
		return nil
	}
	if err := st.AddRemovals(d.leaving); err != nil {
		return err
	}
	entries := make([]store.Entry, len(d.Entries))
	for i := range d.Entries {
		e := &d.Entries[i]
		it := &d.Compiled.Items[i]
		entries[i] = store.Entry{Claim: d.claims[i], Title: it.Title, Config: e.Config, Place: e.Place.String(),
			Digest: d.Compiled.Graph.Vertices[i].Digest, OnRemove: it.OnRemove, After: it.After, Body: d.encoded[i]}
	}
	if err := st.SetActiveWithout(converge.Digest(d.root), converge.Digest(d.without), entries); err != nil {
		return err
	}
	taken := make(map[declare.Claim]bool, len(d.claims))
	for _, c := range d.claims {
		taken[c] = true
	}
	d.encoded = nil
	return st.VoidRemovals(func(c declare.Claim) bool { return taken[c] })
}

// Wants reports whether a graph wants what the state does: the facts of the two may differ.
func (d *State) Wants(g *converge.Graph) bool {
	return slices.EqualFunc(d.Compiled.Graph.Vertices, g.Vertices, func(x, y converge.Vertex) bool {
		return x.Key == y.Key && x.Digest == y.Digest && x.NotApplicable == y.NotApplicable
	})
}

// SameFacts reports whether two observations of a host are the same, also in the facts that have no name of declare.FactNames.
func SameFacts(a, b declare.Lookup) bool {
	x, _ := a(declare.AllFacts)
	y, _ := b(declare.AllFacts)
	if x != y {
		return false
	}
	for _, f := range declare.FactNames() {
		x, hasX := a(f.Name)
		y, hasY := b(f.Name)
		if hasX != hasY || x != y {
			return false
		}
	}
	return true
}
