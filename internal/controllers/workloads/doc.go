// Package workloads keeps of each Workload the instances that it declares: it is the shell around fleet/workload, fleet/jobs and scheduler, and
// writes what they decide into Instances, Revisions and the status of Workloads.
//
//	Workloads, Revisions, Instances, Nodes (watches)  -+
//	presence: who is there, what hosts report and have -+-> one round, at once, and 2 ms after the last one
//
//	for each instance that a report is about:    workload.Observe -> how far it is, and since when it is ready
//	for each workload that something has touched:
//	    of a job, jobs.Decide says how many are wanted; of a schedule, jobs.Schedule which run begins, and that is all
//	    where scale is declared, scale.Decide says how many are wanted, by what is measured
//	    workload.Decide  -> the status first, compared with the one that was decided on: who is refused does nothing else
//	                     -> what has ended goes; revisions are made, numbered and forgotten; instances are told to end, given up, taken back
//	                     -> what is missing is pending
//	for each group of pending ones that may be tried:  scheduler.Place -> an Instance is created on its node, at most 128 at once
//	                                                    what has none: why, in the status; who makes room is told to leave
//	for each workload of which something else is to be told, and each node that is drained:  the status
//
// The state is the objects, and what hosts say. What has no node has no object: it is in memory, and decided again by another leader. What was
// written counts as the store has answered it; when nobody knows, the watch tells. What is only told, such as readiness, stands nowhere:
// whoever reads an Instance is shown it (Describe).
//
// A round changes some thousand instances and not many more, and creates what was decided for as long as decisions rest. Workloads that are left have their turn in the next one, and one that has more to write is
// decided again, as it would be if the server had died in the middle.
//
// # Who wants an instance away
//
// A drain of its node, a NoExecute taint that it does not tolerate any more, labels that do not fit any more where the workload says Move,
// another environment; a declaration that was changed and picks other nodes; and preemption. All go by the disruption budget of the workload. The first
// four follow from what is there, so they are stored nowhere and end with their cause. The others are noted in the status of the Instance. For how long a
// taint is tolerated is counted from when a server has first seen it, which the status of the Node says.
//
// # Who writes what
//
// Instances, and the Revisions of Workloads, are this package's alone; so are the status of a Workload, its finalizer, which is there until no
// instance is, and the condition Drained of a Node.
//
// Run owns one goroutine that decides, four that watch, and while it writes those that do; all end with its context.
package workloads
