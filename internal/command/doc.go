// Package command is the one place that runs programs for the types of host resources: without a shell, with an environment of
// their own, in a session of their own, with a deadline, and with an output of which a bounded part is kept.
//
// A Tool is a program whose ways are known, such as a package manager or a check of a configuration. It is ended with its process
// group, or goes on when the agent ends. A Warden is for commands of anybody: it ends a command with all that this has started,
// also what has left its group. A warden is a process between the agent and the command, which is this same program started as a
// child (Serve):
//
//	agent                       warden                                     command
//	start, an order   -> stdin  becomes the reaper of its descendants
//	                            umask, OOM score, seal it where asked
//	                            start                                   -> runs as its user
//	the output        <---------------------------------------------------- stdout and stderr
//	                            the command ends                        <- status
//	a report          <- fd 3   ends; what the command left goes on
//
// When the time is over, or stdin ends because the agent has closed it or is gone, the warden sends SIGTERM to all its
// descendants and, after the grace, SIGKILL until none is left: whoever loses its parent becomes the warden's child, however it
// was started.
//
// A sealed command may look and not write: everything but a private /tmp is read-only, there is no network, and no way to new
// privileges. That guards against mistakes, not against malice: who writes it may have it run unsealed too, and what it asks of
// another process through a socket is not seen.
//
// Goroutines: Tool.Run and Warden.Run have some for their own time only. Serve has none.
package command
