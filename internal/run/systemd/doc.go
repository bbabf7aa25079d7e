// Package systemd is the runtime whose tasks are units of the host's systemd: each attempt is a transient service of its own, which systemd
// runs, bounds, seals off and ends. Nothing of tako stays in between.
//
//	agent                     systemd                     tako, started by the unit (Serve)      task
//	start: an order
//	StartTransientUnit  --->  cgroup, limits, mounts,
//	                          sandbox
//	                          ExecStart             --->  execute: read the order, "begun",
//	                          active                <---  ready; become the task's user
//	a word              <---------------------------      exec                             ---> runs
//	                          signals               ----------------------------------------->
//	                          the first process ends                                       <---
//	                          kills what is left of it
//	                          ExecStopPost          --->  record: "ended", durable
//	a change            <---  inactive, forgotten
//
// An attempt that may run until a moment has a second unit, tako_guard-ID.service, whose process kills the first one of the task then. It ends when the
// attempt has ended.
//
// What there is of an attempt is its unit, as long as systemd has that, and two files:
//
//	DIR/status/ID.begun     what the task's process is, and when and during which boot it was executed: written once
//	DIR/status/ID.ended     how it ended, for ever: written once, durable
//	MEMORY/ID/              what may be secret, on a file system in memory: the order until it was read, config files, what was asked, until when it may run
//
// Nothing is kept by the agent: one that begins lists units and files, and has what the one before had. The unit has no more to say when
// "ended" is there. Where it could not be written, the unit stays as failed, and says how its process ended until the agent has written that
// down. A unit that is gone without either was taken out of systemd by somebody: what has begun then is lost.
//
// What everybody may read of a unit over the bus names files only. Values of variables and contents of files go by MEMORY.
//
// Goroutines: Runtime.Start has two for its own time. Runtime.Run has none but its caller's, Serve none.
package systemd
