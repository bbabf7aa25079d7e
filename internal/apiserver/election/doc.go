// Package election says which of several servers leads, and keeps one that leads no more from writing.
//
//	etcd   /tako-lead/leader          who leads: put once for each term, under the leader's lease; its revision is the term
//	       /tako-lead/servers/LEASE   each server that runs, under its lease: where it is reached
//
//	core.go      what to do next, of what is known and the time: no I/O
//	election.go  carries that out; one goroutine follows the keys, one decides, and one leads
//	fence.go     each transaction of a leader names its term, and etcd refuses it once there is another one
//	carry.go     the same for what goes over the API: the term goes along as a header
//
// A lease lasts 8 s and is renewed every two. By its own clock a server leads for 8 s from the moment at which it asked for the renewal that
// came through last, and by etcd's the lease lasts at least that long: so it has stopped to lead before another one may begin. That needs clocks
// that run at about the same pace, and who was stopped in between does not look at one; so it is the fence that keeps a leader that
// leads no more from writing, and the clock only ends its work early.
//
// Run owns all goroutines. A server with an etcd of its own needs none of this: nobody else has a way to it.
package election
