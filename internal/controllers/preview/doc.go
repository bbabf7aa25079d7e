// Package preview says where the instances of workloads would go that nobody has applied. What decides is package workloads itself, on a copy of the
// fleet that nobody else has: objects that are shared and never changed, a store in memory, and hosts that do at once what they are told.
//
//	the fleet as it is, with the planned workloads in it
//	until nothing happens any more:
//	    a round of workloads.Lead     -> instances come, go and are changed, in memory
//	    the hosts                     -> what is to run is ready, what is to end has ended
//	    where a planned rollout waits for time, such as a pause of a canary: the clock goes on to when it is over
//	compare the instances that there are then with those that there were
//
// Hosts that are not heard do nothing, here as there; what fails at present goes on failing. Nothing is written, and no goroutine outlives a call.
package preview
