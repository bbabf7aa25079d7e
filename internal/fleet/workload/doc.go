// Package workload decides which instances of one workload are created, and which are taken away. Decide is a pure function of a View
// and the time: no I/O, no randomness, no goroutine, no memory beside the Status that it returns and is given back.
//
//	declared    the revision that has the template of the spec; one is made, or gets the highest number again
//	unreachable a node is gone for onUnreachable.after, and nothing brakes: Replace gives its instances up, and does not count them;
//	            Fence drops them when they have ended for certain, counted from when this leader has missed the node, or its agent has been silent;
//	            Keep waits. Unheard and, but for Fence, silent are not gone
//	reunite     a node is back with what was given up: one copy stays
//	inPlace     what runs the same with the goal gets it as it is: only probes, labels, or the like are others
//	judge       failures and progress are counted; steps end; everything has the goal and is available: that is stable.
//	            Too many failures, or no progress for too long: back to what is stable, once, or halted
//	shares      how many have the goal, how many the old one, how many there are at most in all
//	evict       who is wanted away goes, as far as the budget allows; where it does not, another one is started first
//	grow        what is missing is created, as far as there is room
//	stopOld     old ones go, as far as what is available allows: first what does not work
//	shrink      what is too much goes
//
//	target = goal -> steps -> whole -> monitored -> over: stable
//	   |                |________________|
//	   |                      failed: goal = stable -> whole -> over: rolled back
//	   |                                     |
//	   |___ another target begins anew       failed again: halted
//
// An instance counts from when it is created until it has ended: one that was asked to stop still has its memory and its ports, so what
// is started in its place is within replicas and surge only then. What was given up does not count; it keeps its slot, so no other has
// its name. Slots are reused when an instance has ended, the lowest first; those of an exclusive workload (onUnreachable Fence) are its
// identity, and are those below replicas.
//
// Data is a slot's too, of either bond to a node: a successor takes the lowest slot whose data waits, with the node where an instance has begun in it
// last, and there is nothing beyond replicas. Status.Homes says which node that is, before the object of that instance goes.
//
// What ends badly for good is made anew, the first time at once, then after pauses that double until all are available again.
//
// Whoever carries a decision out stores its Status first, compared with what was decided on. Of two leaders that decide on one status one
// is refused, and what it would have taken away too is not. So the budget is spent atomically. Everything else may be done twice or not
// at all: what was taken away and does not look so yet is in Status.Taken, and is repeated.
//
// Invariants, tried after every step in sim_test.go:
//
//  1. Instances that may run, with those created, are within replicas and surge (twice the replicas with two halves), and one more for
//     each that is wanted away and held. With mode PerNode a node has one, and gets another one when that has ended (I1, W1).
//  2. None that is available is taken away on purpose where fewer than maxUnavailable or the budget allow would be left (I2, I10).
//  3. Nothing is created where nothing is wanted (I3).
//  4. No two instances that are stored have one slot; one that was given up has one that stands in for it; of an exclusive slot one runs (I4).
//  5. While it is paused nothing new is created (I7), and of a canary's step no more than its replicas (I8).
//  6. Before all nodes had the time to be heard nothing that has a node is taken away, and nothing is given up.
//  7. Deciding again on what a decision has come to does nothing, and the order of what is given does not matter.
//  8. When the world is quiet it becomes whole, or says why not (I9).
//  9. A decision names the generation that it was decided on (I11).
package workload
