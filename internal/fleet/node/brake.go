package node

import "fmt"

// The brake on replacements. When this many nodes vanish at once it is rather the network, or the servers' part of it, than the hosts: what
// ran there runs on, and replacing it would load what is left with all of it, and be undone when they are back.
const (
	// brakeShare is the share of the nodes, in percent, that is not replaced any more: as in Kubernetes' node controller, where it has proved
	// itself.
	brakeShare = 55
	// brakeLeast is how few nodes no brake is for: one of one, or two of three, is what small fleets lose by themselves.
	brakeLeast = 3
)

// Brake says why nothing is replaced now that was on nodes that are gone; empty: it may be. whole names all of them, such as "of the fleet".
func Brake(gone, all int, whole string) string {
	if gone < brakeLeast || gone*100 < brakeShare*all {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes %s are gone at once: what was there is not replaced before fewer than %d%% are", gone, all, whole, brakeShare)
}
