// Package core decides the life of one task on its node: when it is started, asked, stopped, killed and started again. It does no I/O,
// reads no clock and owns no goroutine.
//
//	Step(config, state, event, now) -> state, effects;  WakeAt(config, state, now) -> when to step again though nothing happens
//
//	             due              runs            Stop, a probe, the lease             it has ended
//	Waiting ------------> Starting ----> Running ---------------------------> Stopping ------------.
//	   ^                      \            \  it has ended                                         |
//	   |                       `------------`------------------------------------------------------+
//	   `----- with a pause, where the policy says so ----------------------------------------------+
//	                                                                                    otherwise  v
//	                                                                                            Finished
//
// The State is what an agent keeps on disk. Whoever drives this writes down what Kept returns before it carries out the effects, and
// carries them out in order; both may be cut short anywhere. When it begins again it gives the state what the runtime has (Found):
// what runs is taken over, what was only meant to be started is started, once, because an attempt has an identity. Deadlines are
// moments of the boot clock in the state: neither a restart of the agent nor a wall clock that jumps moves them.
//
// Invariants, tried in sim_test.go after every step:
//
//  1. No two attempts of a task run at once, and none is started while another one may run.
//  2. Between the end of an attempt that has failed and the next start there is the pause, and it doubles until the task has run well
//     for long enough, whatever happens to the agent meanwhile.
//  3. Nothing is killed before its grace is over, and nothing lives on long after it while somebody is there to kill it.
//  4. Liveness ends nothing that has not started up.
//  5. What is to be stopped is not started again, is not asked to end before its delay is over, and is over in the end.
//  6. Readiness does not change because an agent was restarted.
//  7. The state is bounded, however often a task ends, and comes back from its bytes as it was.
package core
