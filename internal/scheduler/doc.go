// Package scheduler decides which node each instance goes to, and says why an instance goes nowhere. It does no I/O, reads no clock and
// owns no goroutine: a Snapshot is told what is and what changes, and Place is a function of it, of a group of identical instances, and of
// the time. The same changes in the same order and the same seed give the same placements.
//
//	SetNode, SetWorkload, SetInstance, ... -> Snapshot;  Place(group, now) -> bindings, evictions, explanation
//
//	filter     sets of nodes as bits: one for each label and value, architecture, taint, port ...; a condition is one operation on sets
//	rules      affinity, anti-affinity, spread: counters of instances by the values of a label, kept up to date as instances come and go
//	buckets    the nodes that are left, by the values that the rules look at; in each a heap by score
//	repeat     the best node of the best bucket that the rules allow; only its own score and its bucket's count change
//	explain    how many nodes each condition has kept away, an example of each, and the nodes that were nearest to taking one
//	evict      nodes where instances of lower priority hold what is missing, within their budgets; the room is kept for who it was made for
//
// What was decided counts at once (it is assumed), and becomes a fact or is taken back when the store has answered. A binding names the
// revision of its node's column in the store, and how many bindings to that node were on their way before it, so that a store could refuse it when
// anything else was written there meanwhile. The controller of workloads does not ask for that: one leader writes, each write is fenced by its term,
// and the host's own admission has the last word.
//
// A Queue holds the groups that wait: those that may be tried in order of priority and age, and the others by what could help them. What
// changes between a decision and the moment at which its group is put back wakes it too, because the decision says what it had seen.
//
// Invariants, tried in sim_test.go after every step:
//
//  1. What instances hold of a node, those that are ending included, is not more than it has at any binding.
//  2. A binding that the store accepts was decided on what the store has.
//  3. No two living instances have one name, and nothing is placed for a workload that is not there.
//  4. A group that nothing was placed for has no node that a walk over all nodes and instances would find; its explanation counts the same.
//  5. In a quiet world everything that there is room for is placed, whoever else cannot be.
//  6. No workload is disturbed beyond its budget, and no instance is told to go twice.
package scheduler
