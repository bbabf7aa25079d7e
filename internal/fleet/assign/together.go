package assign

// group is the configs on one node of which none can go on without the others: what each wants collides with what another one has.
type group struct {
	first *claimant // was made first; nil: the claimant is in no group
	free  bool      // nothing else is in the way
}

// entangle finds the groups, among what is there in the end and does not go there yet.
func (d *decider) entangle(all []*claimant) {
	behind := map[*claimant][]*claimant{} // who has to go on with it or before
	for _, c := range all {
		if !c.ends || c.moving() || c.full {
			continue
		}
		for _, other := range all {
			if other != c && other.have != nil && !other.moving() && d.collide(*c.want, *other.have) {
				behind[c] = append(behind[c], other)
			}
		}
	}
	if len(behind) < 2 {
		return
	}
	reached := make(map[*claimant]map[*claimant]bool, len(behind))
	for c := range behind {
		reached[c] = map[*claimant]bool{}
		reach(c, behind, reached[c])
	}
	for c, to := range reached {
		if !to[c] {
			continue
		}
		g := group{first: c, free: true}
		for other := range to {
			switch mutual := reached[other][c]; {
			case !mutual:
				g.free = false
			case compareAge(other.config, g.first.config) < 0:
				g.first = other
			}
		}
		c.group = g
	}
}

// reach notes all that come before or with c.
func reach(c *claimant, behind map[*claimant][]*claimant, seen map[*claimant]bool) {
	for _, other := range behind[c] {
		if !seen[other] {
			seen[other] = true
			reach(other, behind, seen)
		}
	}
}

// chooses: the others wait for the claimant.
func (c *claimant) chooses() bool { return c.group.first == c && c.group.free }

// joins: the claimant goes there as soon as all of its group may.
func (c *claimant) joins() bool { return c.group.first != nil && c.group.free && c.group.first.now }

// together are the targets that wait for one another.
func together(node string, all []*claimant) []Together {
	var list []Together
	for _, c := range all {
		if c.joins() {
			list = append(list, Together{node, c.config.ID, c.want.target()})
		}
	}
	return list
}
