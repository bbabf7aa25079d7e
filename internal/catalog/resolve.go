package catalog

import (
	"cmp"
	"fmt"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// candidate is one resource that wants a claim.
type candidate struct {
	config   string
	document *declare.Document
	index    int // in the config's resources
	priority int
	desire   Digest
}

func (c *candidate) resource() *declare.Resource { return &c.document.Config.Spec.Resources[c.index] }

func (c *candidate) place() declare.Place { return c.document.Place(declare.ResourcePath(c.index)) }

// Resolve picks per claim the resource of the highest priority, whole; fields never merge. Equal desires at equal priority
// are one. Different desires at equal priority are a fault, told with both places, and then there are no entries.
// The documents must have passed Validate. Entries come sorted by claim.
func Resolve(documents []declare.Document) ([]Entry, []declare.Fault) {
	var faults []declare.Fault
	winners := map[declare.Claim][]candidate{}
	resources := 0
	for i := range documents {
		d := &documents[i]
		for j := range d.Config.Spec.Resources {
			resources++
			r := &d.Config.Spec.Resources[j]
			desire, err := Desire(*r)
			if err != nil {
				e := reason.Of(err)
				faults = append(faults, located(d, j, declare.Fault{Code: e.Code, Message: e.Error(), Hint: e.Hint}))
				continue
			}
			c := candidate{ConfigName(d.Config), d, j, d.Config.Priority(), desire}
			winners[r.Claim()] = contend(winners[r.Claim()], c)
		}
	}
	if resources > declare.ResourcesMax && len(documents) > 1 {
		faults = append(faults, declare.Fault{Code: reason.TooManyResources,
			Message: fmt.Sprintf("%d resources in %d declarations, the limit on one host is %d", resources, len(documents), declare.ResourcesMax)})
	}
	claims := make([]declare.Claim, 0, len(winners))
	for claim := range winners {
		claims = append(claims, claim)
	}
	slices.SortFunc(claims, func(a, b declare.Claim) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	for _, claim := range claims {
		faults = append(faults, conflicts(claim, winners[claim])...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	entries := make([]Entry, 0, len(claims))
	refs := newNames(documents)
	for _, claim := range claims {
		entries = append(entries, refs.entry(winners[claim], winners))
	}
	return entries, nil
}

// ConfigName is how a declaration is named to people: KIND/NAME or KIND/NAMESPACE/NAME.
func ConfigName(c *declare.NodeConfig) string {
	if c.Metadata.Namespace != "" {
		return c.Kind + "/" + c.Metadata.Namespace + "/" + c.Metadata.Name
	}
	return c.Kind + "/" + c.Metadata.Name
}

// contend keeps the candidates of the highest priority.
func contend(held []candidate, c candidate) []candidate {
	switch {
	case len(held) == 0 || c.priority > held[0].priority:
		return []candidate{c}
	case c.priority == held[0].priority:
		return append(held, c)
	}
	return held
}

// conflicts tells of candidates of equal priority that want different things.
func conflicts(claim declare.Claim, held []candidate) []declare.Fault {
	var faults []declare.Fault
	for i := 1; i < len(held); i++ {
		if held[i].desire == held[0].desire {
			continue
		}
		a, b := &held[0], &held[i]
		f := declare.Fault{
			Code: reason.PriorityConflict,
			Message: fmt.Sprintf("%s of %s and %s of %s want different things of %s %q at equal priority %d",
				b.resource().Title(), b.config, a.resource().Title(), a.config, claim.Kind, claim.ID, a.priority),
			Hint:    "give one of the configs a higher spec.priority, or drop one of the two resources",
			Related: []declare.Place{a.place()},
		}
		faults = append(faults, located(b.document, b.index, f))
	}
	return faults
}

func located(d *declare.Document, index int, f declare.Fault) declare.Fault {
	f.Path = declare.ResourcePath(index)
	return d.Locate([]declare.Fault{f})[0]
}

// names finds what a name means inside a config.
type names map[*declare.Document]map[string]declare.Claim

func newNames(documents []declare.Document) names {
	n := names{}
	for i := range documents {
		d := &documents[i]
		of := make(map[string]declare.Claim, len(d.Config.Spec.Resources))
		for j := range d.Config.Spec.Resources {
			r := &d.Config.Spec.Resources[j]
			of[r.Name] = r.Claim()
		}
		n[d] = of
	}
	return n
}

// entry makes the entry of a claim. Where several configs want the same of it, the first one's resource stands for all, and
// the order that each of them wants is kept.
func (n names) entry(held []candidate, winners map[declare.Claim][]candidate) Entry {
	first := &held[0]
	e := Entry{Config: first.config, Place: first.place(), Resource: *first.resource()}
	for i := range held {
		c := &held[i]
		resolve := func(to []Ref, refs []string) []Ref {
			for _, name := range refs {
				claim := n[c.document][name]
				cross := !slices.ContainsFunc(winners[claim], func(w candidate) bool { return w.document == c.document })
				if !slices.ContainsFunc(to, func(r Ref) bool { return r.Claim == claim }) {
					to = append(to, Ref{claim, cross})
				}
			}
			return to
		}
		e.Require = resolve(e.Require, c.resource().Require)
		e.Notify = resolve(e.Notify, c.resource().Notify)
	}
	e.Resource.Require, e.Resource.Notify = nil, nil // they are claims now
	return e
}
