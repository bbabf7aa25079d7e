// Package scale decides how many replicas a workload has by what is measured. It is a pure function of the measures, of what the last
// decision said, and of the time; it does no I/O and owns no goroutine. What it must remember is in its Status, which is stored and given
// back, so that another leader goes on where the last one stopped.
//
//	current    = what the last decision said; the declared number, where that was changed since: a person has edited it
//	bounds     = min and max of the scale, or of the last of the scheduled windows that is open
//	each target asks for a number, and the highest counts:
//	  share    = what an instance uses of what one is wanted to use
//	  upwards    only what was measured counts, and no more instances than there are to be: what is missing, not ready yet, of a revision
//	             that does not work, or there only for a rollout makes no number grow
//	  downwards  whatever was not measured counts as fully used: what is missing makes no number shrink
//	  within the tolerance of the current number nothing is asked for; a target without an answer lets nothing shrink
//	  a measure that is not newer than the last change counts nothing: it is of another number
//	stabilised: the number grows when it was asked to for all of up.stabilization, to the lowest that was asked for meanwhile; it shrinks
//	  when it was asked to for all of down.stabilization, to the highest. A change the other way begins both anew
//	limited:    no more than maxChange in a period, counted from how many there were when it began
//
// The number of replicas 0, declared by a person where min is more, is off: it stays.
//
// Invariants, tried in sim_test.go:
//
//  1. The number is within the bounds, or 0 because it is off.
//  2. It does not shrink by measures within down.stabilization after it has grown, nor grow by them within up.stabilization after it has shrunk.
//  3. It does not shrink by measures while a target has no answer, and by no more than all missing instances, fully used, would allow.
//  4. It changes by no more than maxChange within a period, but for bounds and edits.
//  5. Under a steady load it gets to the number that the load needs, and stays there.
//  6. Deciding again on the result changes no number.
package scale
