// Package unit carries out unit files of systemd: the resource types unit (a unit file or a drop-in as it is written) and timer (a timer,
// and the service that runs its command). They are one package because a timer is two unit files and that they are in effect.
//
//	check:  look at each file; shallow, and it is what was last left there: that is all
//	        compare content, owner and mode; in order: has systemd read it?
//	        timers: one look at the unit through the bus, at every depth: enabled, waiting
//	apply:  verify the new files of the whole batch together, in a directory of their own: systemd-analyze verify
//	        write them through package durable
//	        one daemon-reload for all; before it no unit is touched
//	        timers: enable, start
//	remove: units: remove the file, or put the text back that was there; daemon-reload
//	        timers: stop both, disable, then the same
//
// A run that is killed between the file and the daemon-reload leaves a file that systemd says it has not read. Nothing stops or restarts what
// runs when a unit file changes: that is for a service that is notified. So a command of a timer that is running goes on.
//
// The package owns no goroutine.
package unit
