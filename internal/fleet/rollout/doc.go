// Package rollout decides which nodes get the new revision of one config next. It is a pure function of what is assigned, what the nodes
// have said and the time; it does no I/O and owns no goroutine. What it must remember is in its Status, which is stored and given back.
// What it shares with rollouts of workloads is in package pace.
//
//	selected nodes in order: the wave, then a hash of config and name, so that the same nodes go first each time
//	unavailable  = nodes on the way, silent, or not heard yet
//	not paused, not halted, everybody had time to be heard:
//	  next in order, until maxUnavailable are unavailable; a wave begins when the ones before have converged
//	  nodes where other configs can only go on together with this one come first
//	looked at    = what has come, wave by wave and in the end: for as long as the wave's pause, or monitor, says, and until its gates were measured since
//	               gates count from when the first node works; without a measure nothing goes on
//	failed       = a gate is out of bounds; or, where what has failed is rolled back, nodes on which it does not work would halt it, or lose a wave
//	               it is remembered until something else is declared; silence is no failure
//	goal         = the target; or what is proven, where the target has failed and is rolled back: a rollout like any other, without waves
//	halted       = haltOnFailed nodes have the new revision, and failed, rejected, withheld or quarantined it, take too long, or are silent
//	proven       = what all selected nodes that are heard had converged on at once: the way back
//	  (a value that a revision takes from elsewhere cannot go back by itself: whoever puts the old one back makes it the target again)
//	  a node that had it when it was proven, or has converged on it later with all others, is not on the way again while it is busy
//	  a node that has nothing of the config gets it while the newer one is not on its way to it
//	  when it is the target again, nodes that are broken get it at once: it cannot make them worse, and it has worked on them
//
// A halt by nodes is what is, and no memory: when the nodes have converged, or their number is below haltOnFailed, it goes on. Going back is
// a rollout like any other; a newer target takes the place of one that is under way.
//
// Invariants, tried in sim_test.go:
//
//  1. A node that has converged on what it has, or has nothing, gets something new only while fewer than maxUnavailable nodes are
//     unavailable, that is, on the way, silent or not heard yet. Those that have nothing and get what is proven are counted by
//     themselves, by the same bound, so that a host that joins while a rollout is halted becomes whole.
//  2. Nothing goes to a node that is silent, or that was not heard yet; and nothing at all before Quiet.
//  3. While it is paused or halted, the goal goes to nobody. There are two exceptions, both about what is proven: while it is halted,
//     nodes that are broken get it; while it is paused, nodes that have nothing get it, within maxUnavailable.
//  4. In a quiet world in which everybody is heard and converges, and gates are within bounds, it ends, whatever happened before.
//  5. What has failed goes to nobody before something else is declared, unless it is proven; and nothing goes on while a gate is not measured or out of bounds.
//  6. Nobody gets the target who is in no wave up to the one that is looked at, unless other configs wait for it there.
package rollout
