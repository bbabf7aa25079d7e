// Package assignments brings revisions and instances to nodes: it is the shell around fleet/rollout and fleet/assign, and writes what they decide into
// Assignments and into the status of configs.
//
//	Nodes, configs, Instances, Assignments -+ (watches)
//	presence: who is there, what they say  -+-> one round, some 2 ms after the first of a burst:
//	layers: what a revision compiles to    -+     and not before what the last decision took has passed three times
//
//	for each config that something has touched:  rollout.Decide -> who may go on
//	if that or what selects has changed:         assign.Decide  -> rows of each node, what is kept out
//	                                             what is kept out is told to the rollouts again, until nothing new is
//	for each node whose rows, instances, keys, holds or consent differ:  write its Assignment, at most 32 at once
//	for each config of which something else is to be told:    write its status
//
// The state is the Assignments: nothing is decided by what was written but not yet seen to be stored. A write that fails, or meets a
// newer version, is decided about anew.
//
// What goes from node to node is a revision with the root that it compiles to. So another value of a Secret or a ConfigMap takes the way of
// another revision. The old value is nowhere then: a node that has it keeps it until its turn, one that has not gets nothing of the config
// before that, and a host that was set up anew meanwhile is like one that is new.
//
// What selects no node is not compiled, and no part of any decision.
//
// # Instances
//
// An Instance that is bound to a node is in its Assignment until its object has gone, with the layer of what it runs beside the rows of configs: nothing is
// decided about that here. What is in the way (a value that a template takes is not there, a host takes no more) is told by Unassigned, and is looked at
// again with each news. While many come, hosts wait for more, and an Assignment is written for several (patience). Another template's root goes to all its
// nodes at once. Assignments that differ in instances alone say the same of configs: what hosts have said of these counts on, and no rollout is asked.
//
// # Who writes what
//
// Of the status of a config, the controller of revisions writes revision and the condition Revised, and this package everything else:
// observedGeneration, rollout, conflicts, and the conditions Ready, Reconciling, Stalled and Conflict. Ready is True when all nodes
// that the config selects have converged on what is declared in that generation.
//
// A node that no host has joined as yet is part of no rollout: there is nobody to wait for. What is kept out there is told all the same.
//
// Run owns one goroutine that decides, five that watch, and while it writes those that do; all end with its context.
package assignments
