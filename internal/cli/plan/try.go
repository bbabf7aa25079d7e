package plan

import (
	"cmp"
	"slices"

	"tako.dev/tako/declare"
)

// TriedFirst puts the configs that there are already before all else. A config that is to be tried has to say so before the values that
// it takes are others: those that come first would come to hosts for good.
func TriedFirst(changes []*Change) {
	rank := func(c *Change) int {
		kind := c.Ref.Kind.Kind
		if c.Before != nil && (kind == declare.KindNodeConfig || kind == declare.KindClusterNodeConfig) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(changes, func(a, b *Change) int { return cmp.Compare(rank(a), rank(b)) })
}
