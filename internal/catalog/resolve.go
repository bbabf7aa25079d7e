package catalog

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Resolve picks per claim the resource of the highest priority, whole; fields never merge. Equal desires at equal priority
// are one. Different desires at equal priority are a fault, told with both places, and then there are no entries.
// The documents must have passed Validate. Entries come sorted by claim.
func Resolve(documents []declare.Document) ([]Entry, []declare.Fault) {
	var faults []declare.Fault
	layers, resources := make([]DecodedLayer, len(documents)), 0
	for i := range documents {
		if documents[i].Config.Spec.Bundle != nil {
			faults = append(faults, noBundle(&documents[i]))
		}
		layers[i] = documentLayer(&documents[i])
		for j := range layers[i].Entries {
			if !layers[i].Entries[j].Resource.Delivered() {
				resources++
			}
		}
	}
	if resources > declare.ResourcesMax && len(documents) > 1 {
		faults = append(faults, declare.Fault{Code: reason.TooManyResources,
			Message: fmt.Sprintf("%d resources in %d declarations, the limit on one host is %d", resources, len(documents), declare.ResourcesMax)})
	}
	r := resolve(layers)
	for _, c := range r.clashes() {
		faults = append(faults, c.fault(documents))
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return r.entries(), nil
}

// noBundle refuses a bundle where there is no server to have it from.
func noBundle(d *declare.Document) declare.Fault {
	p := d.Place("spec.bundle")
	return declare.Fault{Code: reason.FieldNotAllowed, File: p.File, Line: p.Line, Column: p.Column, Path: p.Path,
		Message: "a bundle is on servers, and this host stands alone", Hint: "write its entries as resources of the type data"}
}

// Conflict is two layers of equal priority that want different things of one claim.
type Conflict struct {
	Claim    declare.Claim
	Priority int
	IDs      [2]string // of the layers
	Titles   [2]string // of what they want
}

// Reason is the conflict as an error.
func (c *Conflict) Reason() *reason.Error {
	return &reason.Error{Code: reason.PriorityConflict, Doing: "resolve the configs of this host",
		Cause: fmt.Errorf("%s of %s and %s of %s want different things of %s %q at equal priority %d", c.Titles[1], c.IDs[1], c.Titles[0], c.IDs[0],
			c.Claim.Kind, c.Claim.ID, c.Priority),
		Hint: "give one of the configs a higher spec.priority, or drop one of the two resources"}
}

// ResolveLayers is Resolve of layers, in the order of a List. With a conflict there are no entries. It shares memory with the layers.
func ResolveLayers(layers []DecodedLayer) ([]Entry, []Conflict) {
	r := resolve(layers)
	var conflicts []Conflict
	for _, c := range r.clashes() {
		conflicts = append(conflicts, Conflict{Claim: c.claim, Priority: c.a.layer.Priority, IDs: [2]string{c.a.layer.ID, c.b.layer.ID},
			Titles: [2]string{c.a.title(), c.b.title()}})
	}
	if len(conflicts) > 0 {
		return nil, conflicts
	}
	return r.entries(), nil
}

// documentLayer is a document as a layer.
func documentLayer(d *declare.Document) DecodedLayer {
	resources := d.Config.Spec.Effective()
	claims := make(map[string]string, len(resources)) // by name
	for i := range resources {
		claims[resources[i].Name] = resources[i].Claim().String()
	}
	relations := declare.Relations(resources)
	l := DecodedLayer{ID: ConfigName(d.Config), Priority: d.Config.Priority(), Entries: make([]Desired, len(resources))}
	for i, r := range resources {
		of := func(names []string) []string {
			var to []string
			for _, name := range names {
				to = append(to, claims[name])
			}
			return to
		}
		e := Desired{Claim: claims[r.Name], Require: of(relations[i].Require), Notify: of(relations[i].Notify), Failure: of(relations[i].OnFailure),
			Place: d.Place(declare.ResourcePath(i)), Resource: r.Unrelated()} // what it names is claims now
		e.Resource.Name = r.Name
		l.Entries[i] = e
	}
	return l
}

// ConfigName is how a declaration is named to people: KIND/NAME or KIND/NAMESPACE/NAME.
func ConfigName(c *declare.NodeConfig) string {
	if c.Metadata.Namespace != "" {
		return c.Kind + "/" + c.Metadata.Namespace + "/" + c.Metadata.Name
	}
	return c.Kind + "/" + c.Metadata.Name
}

// candidate is one entry that wants a claim.
type candidate struct {
	layer *DecodedLayer
	index int // in the layer's entries
}

func (c *candidate) entry() *Desired { return &c.layer.Entries[c.index] }

func (c *candidate) title() string { return c.entry().title() }

// resolution is who wants what: per claim the candidates of the highest priority, in the order of the layers.
type resolution struct {
	layers  []DecodedLayer
	claims  []declare.Claim // sorted
	winners map[declare.Claim][]candidate
}

func resolve(layers []DecodedLayer) resolution {
	r := resolution{layers: layers, winners: map[declare.Claim][]candidate{}}
	for i := range layers {
		for j := range layers[i].Entries {
			claim := claimOf(layers[i].Entries[j].Claim, layers[i].ID)
			held := r.winners[claim]
			if len(held) == 0 {
				r.claims = append(r.claims, claim)
			}
			switch {
			case len(held) == 0 || layers[i].Priority > held[0].layer.Priority:
				r.winners[claim] = []candidate{{&layers[i], j}}
			case layers[i].Priority == held[0].layer.Priority:
				r.winners[claim] = append(held, candidate{&layers[i], j})
			}
		}
	}
	slices.SortFunc(r.claims, func(a, b declare.Claim) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return r
}

// clash is two candidates of equal priority that want different things of a claim.
type clash struct {
	claim declare.Claim
	a, b  candidate
	err   error // why they could not be compared
}

// clashes compares what several want. It tells of the first candidate beside each that differs from it.
func (r *resolution) clashes() []clash {
	var all []clash
	for _, claim := range r.claims {
		held := r.winners[claim]
		if len(held) == 1 {
			continue
		}
		first, err := held[0].entry().desire()
		for _, c := range held[1:] {
			var d Digest
			if err == nil {
				d, err = c.entry().desire()
			}
			if err != nil || d != first {
				all = append(all, clash{claim, held[0], c, err})
			}
		}
	}
	return all
}

func (c *clash) fault(documents []declare.Document) declare.Fault {
	f := declare.Fault{
		Code: reason.PriorityConflict,
		Message: fmt.Sprintf("%s of %s and %s of %s want different things of %s %q at equal priority %d",
			c.b.title(), c.b.layer.ID, c.a.title(), c.a.layer.ID, c.claim.Kind, c.claim.ID, c.a.layer.Priority),
		Hint:    "give one of the configs a higher spec.priority, or drop one of the two resources",
		Related: []declare.Place{c.a.entry().Place},
	}
	if c.err != nil {
		e := reason.Of(c.err)
		f = declare.Fault{Code: e.Code, Message: e.Error(), Hint: e.Hint}
	}
	p := c.b.entry().Place
	f.File, f.Line, f.Column, f.Path = p.File, p.Line, p.Column, p.Path
	return f
}

// entries are the winners, sorted by claim. Nothing may clash.
func (r *resolution) entries() []Entry {
	entries := make([]Entry, 0, len(r.claims))
	for _, claim := range r.claims {
		entries = append(entries, r.entry(r.winners[claim]))
	}
	return entries
}

// entry makes the entry of a claim. Where several layers want the same of it, the first one's resource stands for all, and
// the order that each of them wants is kept.
func (r *resolution) entry(held []candidate) Entry {
	e := held[0].entry().entry()
	e.Config = held[0].layer.ID
	for i := range held {
		c := &held[i]
		for _, text := range c.entry().Require {
			claim := claimOf(text, c.layer.ID)
			e.Require = addRef(e.Require, claim, r.cross(c.layer, claim))
		}
		for _, text := range c.entry().Notify {
			claim := claimOf(text, c.layer.ID)
			e.Notify = addRef(e.Notify, claim, r.cross(c.layer, claim))
		}
		for _, text := range c.entry().Failure {
			claim := claimOf(text, c.layer.ID)
			e.Failure = addRef(e.Failure, claim, r.cross(c.layer, claim))
		}
	}
	return e
}

// cross reports whether another layer than this one has won a claim.
func (r *resolution) cross(layer *DecodedLayer, claim declare.Claim) bool {
	return !slices.ContainsFunc(r.winners[claim], func(w candidate) bool { return w.layer == layer })
}

// claimOf reads the text form of a claim that a config has; zero if it is none.
func claimOf(text, config string) declare.Claim {
	claim, ok := cutClaim(text)
	if !ok {
		return declare.Claim{}
	}
	return claim.Of(config)
}

// addRef adds a reference to a claim, once.
func addRef(to []Ref, claim declare.Claim, cross bool) []Ref {
	if claim == (declare.Claim{}) || slices.ContainsFunc(to, func(r Ref) bool { return r.Claim == claim }) {
		return to
	}
	return append(to, Ref{claim, cross})
}

// entry is what is desired without its order and who desires it.
func (d *Desired) entry() Entry {
	if d.Unsupported != nil {
		return Entry{Place: d.Place, Unsupported: d.Unsupported, unread: d}
	}
	return Entry{Place: d.Place, Resource: d.Resource, Sealed: d.Sealed}
}

// title is how people see it.
func (d *Desired) title() string {
	e := d.entry()
	return e.Title()
}

// desire is the digest of what is wanted of the claim, whatever it is called and whenever its turn is.
func (d *Desired) desire() (Digest, error) {
	if d.Unsupported == nil {
		return sealedDesire(d.Resource, d.Sealed)
	}
	b, err := unnamed(d.body)
	if err != nil {
		return Digest{}, &reason.Error{Code: reason.InternalFault, Doing: "compare " + d.Claim, Cause: err}
	}
	return sha256.Sum256(b), nil
}

// unnamed is a body of any version without its name and its order, which all versions have in the same place.
func unnamed(data []byte) ([]byte, error) {
	var b, resource map[string]cbor.RawMessage
	if err := lenient.Unmarshal(data, &b); err != nil {
		return nil, err
	}
	delete(b, "q")
	delete(b, "n")
	delete(b, "f")
	if err := lenient.Unmarshal(b["r"], &resource); err == nil && resource != nil {
		delete(resource, "name")
		raw, err := encoding.Marshal(resource)
		if err != nil {
			return nil, errors.Join(errors.New("its resource cannot be encoded"), err)
		}
		b["r"] = raw
	}
	return encoding.Marshal(b)
}
