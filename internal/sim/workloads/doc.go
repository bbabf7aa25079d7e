// Package workloads is a fleet that runs workloads, in one process: three servers, fifty hosts, and the people who declare. The clock, the network, the
// store and the disks are virtual, and a seed says everything that happens. The package has nothing but tests.
//
// It drives what decides: the loop of controllers/workloads, with fleet/workload, fleet/jobs and the scheduler in it; fleet/node, by which a server
// knows who is there; and agent/instances/core with run/core on each host. What stands around them in the product does I/O, and is modelled here, each
// in a file:
//
//	store          etcd with its rules, and watches that are late, for each server and kind differently
//	server         who leads, by what clock; who is there; what each host is to have
//	relay          what stands between some hosts and the server that leads, with the roster of transfer/relay/core; it is cut off from the servers
//	host, process  records on a disk, a runtime that outlives the agent, boots; the way of a state and of a word of a server to the host
//	people, faults what people declare, and what goes wrong
//	check, truth   the invariants, and what they are measured by
//
// A world lives so:
//
//	for some minutes: draw what goes wrong, and what people do; check each write of a server and each start of a process
//	heal: nothing goes wrong any more, and what is declared works
//	within healTime: everything is as declared (I9)
//	after that: nothing is written
//
// What is checked (names are those of architecture.md, and of the cases of workloads):
//
//	W1  what may run, with what is created, is within replicas and surge, and one more for each that is wanted away; nothing that works is taken
//	    away on purpose where fewer would be left than rollout and budget allow (I1, I2, I10)
//	W2  no instance is placed where less is free than it asks for, and no host takes more than it has (I6)
//	I3  nothing is created for what is being deleted, or is not there
//	I4  of an exclusive slot never two processes run, whatever hosts, agents, networks and clocks do
//	I5  what was told to end, or is not wanted any more, is not begun
//	I7  while people pause a rollout nothing gets what is new
//	I8  in a step of a canary no more than it says get what is new, and one for each that is wanted away
//	I9  see above; a host that is heard all the time begins what has a lease, and what is scheduled begins or is left out soon
//	I11 no status is of a generation that there is not
//	G1  when a gang begins all of it is tried at once
//	G2  of a gang that has begun, one that the store has refused is tried again where room was found for it, as long as that node is fit
//	J1  no run of a schedule is begun twice, before its time, at another time, or while it is suspended
//	J2  where a schedule does not allow it, no run is begun while another one is not over
//	J3  a run is begun for the last time that was due, and as late as its deadline and what it says of missed runs allow
//
// A process of an exclusive slot ends by its host's clock, by its agent or, where that stands still, by its runtime. Who has lost its disk joins anew, for the
// same Node or for another one of its name; what ran may go on where only records are lost. What is not here: several environments, scales that follow
// what is measured, preemption, which fleet/scale and scheduler have simulations for, deadlines of drains, changes in place, and servers that
// follow, and are cut off from the leader.
package workloads
