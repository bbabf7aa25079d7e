package assign

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// pair is two rows that collide, seen by the first.
type pair struct {
	mine, other Row
	inPlace     bool // mine stays
}

// tell notes what is kept out on a node, by whom, and returns it. Nodes come in the order of their names.
func (d *decider) tell(node string, all []*claimant) []Refusal {
	var refused []Refusal
	for _, c := range all {
		if c.full {
			at(d.crowded, c.config.ID).add(node)
		}
		for _, row := range d.targets(node, c) {
			why := d.tellPairs(node, row, c, all)
			if c.want != nil && row == *c.want {
				why = c.why(why)
			}
			if why == "" && c.full {
				why = Crowded
			}
			if why != "" {
				refused = append(refused, Refusal{Node: node, Config: c.config.ID, Target: row.target(), Why: why})
			}
		}
	}
	return refused
}

// why is why what the claimant wants is kept out; seen is what pairs say.
func (c *claimant) why(seen Why) Why {
	switch {
	case !c.ends:
		return Conflicting
	case c.chooses(), c.joins():
		return ""
	case seen == "" && c.out:
		return Later
	}
	return seen
}

// targets are the rows that a config may get on a node, and does not get there now; what it wants first.
func (d *decider) targets(node string, c *claimant) []Row {
	var rows []Row
	if c.want != nil && !c.moving() {
		rows = append(rows, *c.want)
	}
	if c.have != nil {
		return rows
	}
	for _, t := range []Target{c.config.Release[node], c.config.Newest, c.config.Proven} {
		if r := d.wanted(nil, t, c.config); r != nil && !(c.moving() && *r == *c.want) && !slices.Contains(rows, *r) {
			rows = append(rows, *r)
		}
	}
	return rows
}

// tellPairs notes what collides with a row that a config may get on a node, and returns why that keeps it out, if it does: what is on the
// node; where the config has nothing there, what another one that has nothing there may get; and what one that is there is to have in the
// end. Of two that are both not there, each notes its side.
func (d *decider) tellPairs(node string, row Row, c *claimant, all []*claimant) Why {
	var why Why
	for _, other := range all {
		there := other.row()
		if other == c {
			continue
		}
		if there != nil && d.collide(row, *there) {
			if other.ends && !other.moving() && !d.collide(row, *other.want) {
				why = cmp.Or(why, Later)
			} else {
				why = Conflicting
			}
			at(d.pairs, pair{row, *there, false}).add(node)
			at(d.pairs, pair{*there, row, true}).add(node)
		}
		for _, r := range d.targets(node, other) {
			if d.collide(row, r) {
				if there == nil && c.have == nil || other.have != nil && other.ends {
					why = Conflicting
				}
				at(d.pairs, pair{row, r, false}).add(node)
			}
		}
	}
	return why
}

func at[K comparable](m map[K]*Places, key K) *Places {
	if m[key] == nil {
		m[key] = &Places{}
	}
	return m[key]
}

func (p *Places) add(node string) {
	if p.Count++; len(p.Nodes) < PlacesMax {
		p.Nodes = append(p.Nodes, node)
	}
}

// told fills in what people are told.
func (d *decider) told(to map[string]Told) error {
	pairs := slices.SortedFunc(maps.Keys(d.pairs), func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.mine.Config, b.mine.Config), cmp.Compare(a.other.Config, b.other.Config),
			cmp.Compare(a.mine.Revision, b.mine.Revision), cmp.Compare(a.other.Revision, b.other.Revision),
			cmp.Compare(a.mine.Priority, b.mine.Priority), cmp.Compare(a.mine.Root, b.mine.Root), cmp.Compare(a.other.Root, b.other.Root), cmp.Compare(number(a.inPlace), number(b.inPlace)))
	})
	for _, p := range pairs {
		told := to[p.mine.Config]
		if len(told.Conflicts) == ConflictsMax {
			told.More++
		} else {
			c, err := d.conflict(p)
			if err != nil {
				return err
			}
			told.Conflicts = append(told.Conflicts, c)
		}
		to[p.mine.Config] = told
	}
	for config, places := range d.crowded {
		told := to[config]
		told.Crowded = *places
		to[config] = told
	}
	return nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (d *decider) conflict(p pair) (Conflict, error) {
	c := Conflict{Other: p.other.Config, Revision: p.mine.Revision, OtherRevision: p.other.Revision, Priority: p.mine.Priority, InPlace: p.inPlace, Places: *d.pairs[p]}
	if !d.known(p.mine) || !d.known(p.other) {
		return c, nil
	}
	found := d.clash(p.mine.id(), p.other.id())
	var err error
	c.Claim, c.Claims = found.first, found.count
	c.Difference, err = d.view.Revisions[p.mine.id()].difference(d.view.Revisions[p.other.id()], c.Claim)
	return c, err
}

// String tells a person of the conflict, without the nodes.
func (c Conflict) String() string {
	if c.Claims == 0 {
		return fmt.Sprintf("it is not known what revision %s of this config or %s of %s claims, at priority %d", c.Revision, c.OtherRevision, c.Other, c.Priority)
	}
	more := ""
	if c.Claims > 1 {
		more = fmt.Sprintf(", and of %d more", c.Claims-1)
	}
	return fmt.Sprintf("this config and %s want different things of %s%s at equal priority %d: %s is %s here and %s there",
		c.Other, c.Claim, more, c.Priority, c.Difference.Field, c.Difference.Value, c.Difference.OtherValue)
}
