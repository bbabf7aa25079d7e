package declare

import (
	"slices"
)

// Defaults are functions and never values filled in: what is encoded, compared and sent holds only what was declared, so a
// later default changes nothing that is stored (model.md, Body).

// The default priorities and paces.
const (
	priorityDefault        = 100
	clusterPriorityDefault = 1100
	priorityMax            = 999  // of a NodeConfig, whose priorities begin at 0
	clusterPriorityMin     = 1000 // of a ClusterNodeConfig
	clusterPriorityMax     = 1999
	haltOnFailedDefault    = 1
	maxUnavailableDefault  = IntOrPercent("10%")
)

// PriorityOr returns the declared priority, or the default of the kind: 100, and 1100 for a ClusterNodeConfig.
func (s *NodeConfigSpec) PriorityOr(kind string) int {
	switch {
	case s.Priority != nil:
		return *s.Priority
	case kind == KindClusterNodeConfig:
		return clusterPriorityDefault
	}
	return priorityDefault
}

// Effective returns the resources with what the config says for all of them: its drift and its windows, where they do not say that
// themselves. It shares memory with the spec.
func (s *NodeConfigSpec) Effective() []Resource {
	own := func(r Resource) bool { return len(r.Windows) > 0 || r.WindowFor != "" }
	if s.Drift == "" && len(s.Windows) == 0 && !slices.ContainsFunc(s.Resources, own) {
		return s.Resources
	}
	all := slices.Clone(s.Resources)
	for i := range all {
		if all[i].Delivered() {
			continue // nothing is done to it, at any time
		}
		if all[i].Drift == "" {
			all[i].Drift = s.Drift
		}
		all[i] = s.windowed(all[i])
	}
	return all
}

// Priority returns the priority that the config has, declared or by default.
func (c *NodeConfig) Priority() int { return c.Spec.PriorityOr(c.Kind) }
