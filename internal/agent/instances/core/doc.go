// Package core decides about the instances of workloads on one host: whether the host takes one, what it holds, when its tasks begin and
// end, what is told of it, and when it is forgotten. The life of each task is decided by run/core. The package does no I/O, reads no clock and
// owns no goroutine.
//
//	Step(now, event) -> effects, to be carried out in order;  WakeAt() -> when to step again though nothing happens
//
//	             admitted         ports found      tasks begin                 Stop, or not wanted any more
//	(unknown) ------------> held -------------> bound -----------> begun ---------------------------------> ending
//	   |  no room: for good                                          |  a job: every task has ended            |
//	   v                                                             v                                         v
//	refused -----------------------------------------------------> over <--------------------------------------'
//	                                                                 |  not wanted any more
//	                                                                 v
//	                                                             forgotten
//
// What must outlive the agent is in a Record for each instance. A step that changes one begins with Save, and nothing of that instance may be
// carried out before its record is durable. When the agent begins again it gives the records back (Restored), then what it is to have (Desired)
// and what each runtime has (Found), in any order: an instance is left alone until its runtime was listed and its template is known.
//
// What is wanted is not known (no Desired yet, because the host's state was lost or cannot be read): what runs goes on, nothing is ended,
// nothing is begun.
//
// Invariants, tried in sim_test.go after every step:
//
//  1. The sum of what is held is never more than the host has, but where the host became smaller. What is held is given back when the last
//     process has ended, and not before.
//  2. No two instances have a port or a piece of hardware, and none changes while the instance lives.
//  3. What was refused, or is over, does not run again.
//  4. What is reported of one instance goes forward only: by attempt, then by phase.
//  5. What is not wanted any more leaves nothing behind: no process, no attempt, no record.
//  6. A restart of the agent ends nothing, starts nothing twice and changes no readiness.
package core
