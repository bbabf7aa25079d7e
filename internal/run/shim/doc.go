// Package shim is what runtimes have in common that supervise by themselves: each attempt has a process between it and the agent, a shim, which
// is the agent's own program started as a child (Serve). How the first process of an attempt is made is the runtime's (Launch).
//
//	agent                        shim                                        task
//	start, an order    -> stdin  lock; "begun"
//	                             reaper of its descendants; cgroup; umask
//	                             Launch                                   -> the first process
//	                             "running"
//	a word             <- fd 3
//	                             its output, to files that are rotated    <- stdout, stderr
//	asks: "stop", "kill" ------> the bell rings: signal
//	                             the first process ends                   <- status
//	                             end all that is left of it
//	seen by inotify    <-------- "ended", durable; ends
//
// A shim belongs to nobody and asks nobody: it goes on when the agent ends, is killed or replaced by another program, and an agent that
// begins finds on disk what there is. All that agent and shims say to each other is files:
//
//	DIR/status/ID.begun, .running, .ended     what there is of an attempt, each put in place as a whole; the agent has one watch
//	DIR/attempts/ID/start, lock               one shim at a time; held as long as it lives
//	DIR/attempts/ID/stop, kill, until         what is asked of it
//	DIR/attempts/ID/bell                      rings when something is asked
//	DIR/attempts/ID/log, log.1, ...           what the task has printed: TIME STREAM F|P TEXT
//
// Whether a shim lives is told by its lock, never by a number; its end without "ended" by a descriptor of the process. Then the task has
// ended, too: a Launch sees to it that the kernel kills it with its shim, and what it has started is looked for, by its cgroup or by the variable TAKO_ATTEMPT that it
// has got, and killed before "ended" says that it is lost.
//
// Only "ended" is made durable: what the other files say is over when the host is restarted.
//
// Goroutines: Shims.Run has none but its caller's. A shim has one that hands on SIGCHLD.
package shim
