// Package run is the contract between the agent and the runtimes that run the tasks of instances: what a task is, how one is started,
// stopped, found again and looked at. Each runtime lives in its own folder below this one, implements Runtime, and passes runtest. What
// those share that supervise by themselves is run/shim. What is to run, when it is started again and when it is stopped is decided in
// run/core; a runtime decides nothing of that.
//
// A task is started in attempts, and an attempt has an identity (ID) for ever: the instance's UID, the task's name, the number of the
// attempt. Everything is idempotent by it. Starting an attempt twice starts one process; stopping it twice stops it once; what an attempt
// came to is the same whoever asks how often, until it is removed. So an agent that was killed between starting something and noting
// that starts it again, and finds it.
//
//	          Start                    the first process ends
//	(unknown) -----> Starting, Running ----------------------> Ended  -----> (unknown)
//	                  Stop: a signal                                  Remove
//	                  Kill: everything
//
// An attempt lives as long as its first process. When that has ended, however, everything that it has started is ended too, also what
// has left its session; only then the attempt has Ended. What a runtime runs does not end with the agent.
//
// Times are of the kernel's boot clock (Moment), which no correction moves, and hold within one boot only. A runtime owns the goroutines
// that Run starts for its own time, and no others.
package run
