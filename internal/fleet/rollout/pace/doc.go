// Package pace is what every rollout has in common, whatever it rolls out: config revisions over nodes (package rollout) or template
// revisions over instances (package workload). It is arithmetic on what its callers have counted: no I/O, no clock, no goroutine.
//
//	Share       how many "25%" of so many are, and on which side the rest falls
//	Place       who goes first: the wave, then a hash that is the same each time
//	Deal        who is in which wave
//	Wave        when one lot has proved enough for the next to begin
//	Reached     when failures end it
//	Gates       what was measured: whether it may go on, or has failed
//	Proven      what has worked everywhere at once: the way back, and whose troubles are their own affair
//	Deadline    when waiting has been too long, and Alarm when to look again
//	Phase       how it stands
//
// What differs stays with its owner: a node gets a revision in its place and may keep what it has, an instance gives way to another one
// and costs room while both are there.
package pace
