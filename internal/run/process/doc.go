// Package process is the runtime that needs nothing of the host but its kernel: each attempt has a process between it and the agent, a shim,
// which is this same program started as a child (Serve). It works without root, with less: see Capabilities.
//
//	agent                        shim                                        task
//	start, an order    -> stdin  lock; "begun"
//	                             reaper of its descendants; cgroup; umask
//	                             start                                    -> runs as its user, in a session of its own
//	                             "running"
//	a word             <- fd 3
//	                             its output, to files that are rotated    <- stdout, stderr
//	asks: "stop", "kill" ------> seen by inotify: signal
//	                             the first process ends                   <- status
//	                             end all that is left of it
//	seen by inotify    <-------- "ended", durable; ends
//
// A shim belongs to nobody and asks nobody: it goes on when the agent ends, is killed or replaced by another program, and an agent that
// begins finds on disk what there is. All that agent and shims say to each other is files:
//
//	DIR/status/ID.begun, .running, .ended     what there is of an attempt, each put in place as a whole; the agent has one watch
//	DIR/attempts/ID/start, lock               one shim at a time; held as long as it lives
//	DIR/attempts/ID/stop, kill                what is asked of it; it has one watch
//	DIR/attempts/ID/log, log.1, ...           what the task has printed: TIME STREAM F|P TEXT
//
// Whether a shim lives is told by its lock, never by a number; its end without "ended" by a descriptor of the process. Then the task has
// ended, too: the kernel kills it with its shim, and what it has started is looked for, by its cgroup or by the variable TAKO_ATTEMPT that it
// has got, and killed before "ended" says that it is lost.
//
// Only "ended" is made durable: what the other files say is over when the host is restarted.
//
// Goroutines: Runtime.Run has none but its caller's. A shim has one that hands on SIGCHLD.
package process
