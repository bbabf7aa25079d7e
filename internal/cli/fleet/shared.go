package fleet

import (
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/assign"
)

// sharedBy is what other configs on the same nodes declare of what this one declares too. A host tells of each thing under one config
// only: that of the highest priority, of equal ones the first by name. Without this, a config that comes after another one would seem to
// have nothing to do with what is wrong there.
func (f *Fleet) sharedBy(c *Config) []Finding {
	var list []Finding
	for i := range f.Configs {
		other := &f.Configs[i]
		nodes := f.nodesWithBoth(c.ID, other.ID)
		if len(nodes) == 0 || !other.isBefore(c) {
			continue
		}
		same, instead := c.alsoIn(other)
		wrong := f.problemsWith(same, other, nodes)
		list = append(list, wrong...)
		if len(same) > 0 {
			text := other.ID + " declares the same"
			if len(wrong) == 0 {
				text = "kept, as " + text
			}
			list = append(list, Finding{Weight: Note, Subject: c.Argument(), What: "Shared", Text: few(titles(same)) + ": " + text + "; hosts tell of it there"})
		}
		if len(instead) > 0 {
			list = append(list, Finding{Weight: Note, Subject: c.Argument(), What: "Overridden", Text: fmt.Sprintf("%s: %s has the priority %d and declares something else", few(titles(instead)), other.ID, other.priority())})
		}
	}
	return list
}

// problemsWith are what is wrong with resources on nodes, where it is told under another config.
func (f *Fleet) problemsWith(resources []*declare.Resource, told *Config, nodes []string) []Finding {
	var list []Finding
	for _, name := range nodes {
		for _, x := range problemsOf(f.Node(name), told.ID) {
			if slices.ContainsFunc(resources, func(r *declare.Resource) bool { return r.Claim().String() == x.Claim }) {
				list = append(list, x)
			}
		}
	}
	return list
}

func (c *Config) priority() int { return c.Spec.PriorityOr(strings.SplitN(c.ID, "/", 2)[0]) }

// isBefore: hosts tell under this config what both declare.
func (c *Config) isBefore(other *Config) bool {
	if c.priority() != other.priority() {
		return c.priority() > other.priority()
	}
	return c.ID < other.ID
}

func (f *Fleet) nodesWithBoth(a, b string) []string {
	var names []string
	for i := range f.Nodes {
		if on := f.Assignments[f.Nodes[i].Name]; on != nil && layerOf(on, a) != nil && layerOf(on, b) != nil {
			names = append(names, f.Nodes[i].Name)
		}
	}
	return names
}

// alsoIn are the resources of which another config that goes before declares the same, and those of which it declares something else.
func (c *Config) alsoIn(other *Config) (same, instead []*declare.Resource) {
	theirs := map[declare.Claim]*declare.Resource{}
	for i := range other.Spec.Resources {
		theirs[other.Spec.Resources[i].Claim()] = &other.Spec.Resources[i]
	}
	for i := range c.Spec.Resources {
		mine := &c.Spec.Resources[i]
		its := theirs[mine.Claim()]
		if its == nil || mine.Claim().Kind.Own() {
			continue
		}
		difference, err := assign.DifferenceOf(*mine, *its)
		if err == nil && difference == (assign.Difference{}) || c.priority() == other.priority() { // at equal priority, no two on a node differ
			same = append(same, mine)
		} else {
			instead = append(instead, mine)
		}
	}
	return same, instead
}

// OfRollout is what is to be said of the way of a config over its nodes, with what is held there: that is on the way until the hold ends.
func (f *Fleet) OfRollout(c *Config) []Finding {
	return sorted(slices.Concat(f.OfConfig(c), f.heldOf(c)))
}

// heldOf are the holds of a config, of what it declares, and of whole nodes that have it: one finding for all that somebody has held at once.
func (f *Fleet) heldOf(c *Config) []Finding {
	var list []Finding
	nodes := map[string][]string{}
	var texts []string
	for _, name := range f.HavingConfig(c.ID) {
		for _, h := range f.Node(name).Spec.Holds {
			if h.Config != c.ID && h.Config != "" || h.Resource != "" && !c.declares(h.Resource) {
				continue
			}
			next := "tako resume " + c.Argument()
			if h.Config == "" {
				next = "tako resume node/" + name
			}
			if h.Resource != "" {
				next += " --resource " + h.Resource
			}
			text := holdText(&h)
			if nodes[text] = append(nodes[text], name); len(nodes[text]) == 1 {
				texts = append(texts, text)
				list = append(list, Finding{Weight: Note, Subject: c.Argument(), What: "Held", Next: next})
			}
		}
	}
	for i, text := range texts {
		list[i].Text = "on " + few(nodes[text]) + ": " + text
	}
	return list
}

// declares reports whether a claim is one of the config's.
func (c *Config) declares(claim string) bool {
	return slices.ContainsFunc(c.Spec.Resources, func(r declare.Resource) bool { return r.Claim().Of(c.ID).String() == claim })
}

func titles(list []*declare.Resource) []string {
	var all []string
	for _, r := range list {
		all = append(all, r.Title())
	}
	return all
}

// IsResource reports whether a word is a type of resources.
func IsResource(word string) bool {
	return slices.Contains(declare.ResourceTypes(), declare.ResourceType(word))
}
