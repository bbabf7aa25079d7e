package fleet

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"tako.dev/tako/internal/fleet/node"
)

// bumpEpoch is what ends the suspicion that the store is an old copy, once somebody has looked.
const bumpEpoch = "tako trust bump-epoch, on the server, if its store is right as it is"

// storeBehind says on one line that hosts know what the store does not: it is about all of them, because a store that was put back was
// put back for all. Empty: none says so.
func (f *Fleet) storeBehind() string {
	var names []string
	for i := range f.Nodes {
		c := meta.FindStatusCondition(f.Nodes[i].Status.Conditions, node.RollbackSuspected)
		if c != nil && c.Status == "True" && c.Reason == node.ReasonStoreBehind {
			names = append(names, f.Nodes[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("✗ The store of the server is older than what %d nodes have: %s. Nothing new is signed for them; what is declared may be an old copy", len(names), few(names))
}
