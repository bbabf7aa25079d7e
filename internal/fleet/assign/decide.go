package assign

import (
	"cmp"
	"maps"
	"slices"

	"tako.dev/tako/internal/catalog"
)

// Decide returns what is to be on the nodes. The error is InternalFault: two resources could not be compared for people.
func Decide(v View) (Decision, error) {
	configs := make([]*Config, len(v.Configs))
	for i := range v.Configs {
		configs[i] = &v.Configs[i]
	}
	slices.SortFunc(configs, func(a, b *Config) int { return cmp.Compare(a.ID, b.ID) })
	d := decider{view: &v, clashes: map[[2]RevisionID]clash{}, unknown: map[RevisionID]bool{}, pairs: map[pair]*Places{}, crowded: map[string]*Places{}}
	decision := Decision{Rows: make(map[string][]Row, len(v.Nodes)), Told: map[string]Told{}}
	nodes := make([]*Node, len(v.Nodes))
	for i := range v.Nodes {
		nodes[i] = &v.Nodes[i]
	}
	slices.SortFunc(nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		claimants := d.claimants(n, configs)
		d.settle(claimants)
		crowd(claimants)
		d.entangle(claimants)
		decision.Rows[n.Name] = rowsOf(claimants)
		decision.Refused = append(decision.Refused, d.tell(n.Name, claimants)...)
		decision.Together = append(decision.Together, together(n.Name, claimants)...)
	}
	decision.Unknown = slices.SortedFunc(maps.Keys(d.unknown), func(a, b RevisionID) int {
		return cmp.Or(cmp.Compare(a.Config, b.Config), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Root, b.Root))
	})
	return decision, d.told(decision.Told)
}

// decider is one decision on its way. What two revisions want different things of is found once, not for every node.
type decider struct {
	view    *View
	clashes map[[2]RevisionID]clash
	unknown map[RevisionID]bool
	pairs   map[pair]*Places
	crowded map[string]*Places // by config
}

// claimant is a config on one node that it selects.
type claimant struct {
	config *Config
	have   *Row  // what is assigned; nil: nothing
	want   *Row  // what is to be assigned instead; nil: nothing else
	now    bool  // want may go there now; otherwise it is for later
	eager  bool  // want is taken to go there now, to see where all this ends
	ends   bool  // want is there in the end
	out    bool  // want is kept out, because it collides
	full   bool  // want is kept out, because there is no room
	group  group // whom it goes there with
}

// moving: want goes there in this decision, as far as is known yet.
func (c *claimant) moving() bool { return c.want != nil && (c.now || c.eager) && !c.out && !c.full }

// coming: the config is new on the node, and is to come there later.
func (c *claimant) coming() bool { return c.want != nil && !c.now && !c.out && c.have == nil }

// row is what is on the node after this decision; nil: nothing.
func (c *claimant) row() *Row {
	if c.moving() {
		return c.want
	}
	return c.have
}

// claimants are the configs that select a node, by ID.
func (d *decider) claimants(n *Node, configs []*Config) []*claimant {
	assigned := make(map[string]Row, len(n.Assigned))
	for _, r := range n.Assigned {
		assigned[r.Config] = r
	}
	var all []*claimant
	for _, config := range configs {
		if !config.Selects(n) {
			continue
		}
		c := claimant{config: config}
		if r, ok := assigned[config.ID]; ok {
			d.knows(r)
			c.have = &r
		}
		c.want, c.now = d.wanted(c.have, config.Release[n.Name], config), true
		if c.want == nil {
			c.want, c.now = d.wanted(c.have, config.Newest, config), false
		}
		if c.have != nil || c.want != nil {
			all = append(all, &c)
		}
	}
	return d.apart(all)
}

// wanted is the row of a target, where it is another one than what is there.
func (d *decider) wanted(have *Row, t Target, config *Config) *Row {
	r := Row{t.Priority, config.ID, t.Revision, t.Root}
	if t.Revision == "" || have != nil && *have == r || !d.knows(r) {
		return nil
	}
	return &r
}

func (d *decider) knows(r Row) bool {
	if d.view.Revisions[r.id()] != nil {
		return true
	}
	d.unknown[r.id()] = true
	return false
}

// apart drops assigned rows that collide with one another. No decision leaves any; if there are some nevertheless, the config that
// was made first stays, because an agent would refuse all of them together.
func (d *decider) apart(all []*claimant) []*claimant {
	byAge := slices.SortedFunc(slices.Values(all), func(a, b *claimant) int { return compareAge(a.config, b.config) })
	for i, c := range byAge {
		if c.have != nil && slices.ContainsFunc(byAge[:i], func(older *claimant) bool {
			return older.have != nil && d.collideSurely(*older.have, *c.have)
		}) {
			if c.want == nil {
				c.want = c.have
			}
			c.have = nil
		}
	}
	return all
}

// collideSurely: what they want is known, and is different. What is there together has been the same once, as far as that is not known now.
func (d *decider) collideSurely(a, b Row) bool {
	return a.Config != b.Config && a.Priority == b.Priority && d.known(a) && d.known(b) && d.clash(a.id(), b.id()).sure
}

func (d *decider) known(r Row) bool { return d.view.Revisions[r.id()] != nil }

func compareAge(a, b *Config) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// collide reports whether two rows cannot be on one node.
func (d *decider) collide(a, b Row) bool {
	if a.Config == b.Config || a.Priority != b.Priority {
		return false
	}
	return !d.known(a) || !d.known(b) || d.clash(a.id(), b.id()).count > 0
}

func (d *decider) clash(a, b RevisionID) clash {
	if a.Config > b.Config {
		a, b = b, a
	}
	key := [2]RevisionID{a, b}
	c, ok := d.clashes[key]
	if !ok {
		c = clashOf(d.view.Revisions[a], d.view.Revisions[b])
		d.clashes[key] = c
	}
	return c
}

// settle finds what is kept out. First for good: as if every config that is there went on now to what it is to have in the end, so that
// what is kept out does not depend on which rollout comes first. Then what cannot go there yet. Every round keeps out at least one more,
// so that it ends; what is kept out does not come back, and what has made room for it neither.
func (d *decider) settle(all []*claimant) {
	for _, eager := range []bool{true, false} {
		for _, c := range all {
			c.eager = eager && c.have != nil
		}
		for d.keepOutOfPlace(all) || d.keepOutHopeless(all) || d.keepOutBoth(all) || d.keepOutComing(all) || d.keepOutNew(all) {
		}
		for _, c := range all {
			c.ends = c.ends || eager && c.want != nil && !c.out
		}
	}
}

// keepOutOfPlace keeps out what collides with a row that stays.
func (d *decider) keepOutOfPlace(all []*claimant) bool {
	return d.keepOut(all, func(c, other *claimant) bool {
		return (c.moving() || c.coming()) && !other.moving() && other.have != nil && d.collide(*c.want, *other.have)
	})
}

// keepOutHopeless keeps out what collides with another config there, whether that one goes on or not.
func (d *decider) keepOutHopeless(all []*claimant) bool {
	return d.keepOut(all, func(c, other *claimant) bool {
		return c.moving() && other.moving() && other.have != nil && d.collide(*c.want, *other.have) && d.collide(*c.want, *other.want)
	})
}

// keepOutBoth keeps out what collides with one another and would go there now: both where both are new on the node, otherwise the one that
// is new, or that was made later.
func (d *decider) keepOutBoth(all []*claimant) bool {
	return d.keepOut(all, func(c, other *claimant) bool {
		return c.moving() && other.moving() && !c.before(other) && d.collide(*c.want, *other.want)
	})
}

// before: of two that collide, this one goes on.
func (c *claimant) before(other *claimant) bool {
	if c.have == nil || other.have == nil {
		return c.have != nil
	}
	return compareAge(c.config, other.config) < 0
}

// keepOutComing keeps out, of what comes later, what collides with the next row of a config that is there already.
func (d *decider) keepOutComing(all []*claimant) bool {
	return d.keepOut(all, func(c, other *claimant) bool {
		return c.coming() && other.moving() && other.have != nil && d.collide(*c.want, *other.want)
	})
}

// keepOutNew keeps out configs that are new on the node and collide, though one of them would come later: otherwise the order in
// which their rollouts reach the node would decide.
func (d *decider) keepOutNew(all []*claimant) bool {
	isNew := func(c *claimant) bool { return c.moving() && c.have == nil }
	return d.keepOut(all, func(c, other *claimant) bool {
		return (isNew(c) && other.coming() || c.coming() && isNew(other)) && d.collide(*c.want, *other.want)
	})
}

// keepOut keeps out, all at once, each for which another one is in the way, and reports whether there was any.
func (d *decider) keepOut(all []*claimant, inTheWay func(c, other *claimant) bool) bool {
	var out []*claimant
	for _, c := range all {
		if slices.ContainsFunc(all, func(other *claimant) bool { return other != c && inTheWay(c, other) }) {
			out = append(out, c)
		}
	}
	for _, c := range out {
		c.out = true
	}
	return len(out) > 0
}

// crowd keeps out what is above the number of layers that a node may have.
func crowd(all []*claimant) {
	var fresh []*claimant
	rows := 0
	for _, c := range all {
		if c.row() != nil {
			rows++
		}
		if c.moving() && c.have == nil {
			fresh = append(fresh, c)
		}
	}
	slices.SortFunc(fresh, func(a, b *claimant) int {
		return cmp.Or(-cmp.Compare(a.want.Priority, b.want.Priority), compareAge(a.config, b.config))
	})
	for ; rows > catalog.LayersMax && len(fresh) > 0; rows-- {
		fresh[len(fresh)-1].full = true
		fresh = fresh[:len(fresh)-1]
	}
}

func rowsOf(all []*claimant) []Row {
	rows := []Row{}
	for _, c := range all {
		if r := c.row(); r != nil {
			rows = append(rows, *r)
		}
	}
	slices.SortFunc(rows, compareRows)
	return rows
}
