// Package core decides, for one host, which signed head counts and how what it names is fetched. It does no I/O, starts no goroutine
// and reads no clock: the client feeds it with events and does its effects, and so does the simulation of a whole fleet, package sim.
//
//	head -> Verify, Judge -> waits in one place for the newest -> Accept (durable) -> list -> each layer that is not held -> Activate
//	layer: difference from the root that is held -> descent by hash -> snapshot -> REJECTED, and a pause
//
// Nothing that comes is believed: a list, a node and a body by their hash, a layer by the root that is computed here from what is held
// and what has come. A newer head does not break off a fetch that goes well; when it has ended, or has failed, the newest goes on.
//
// What always holds:
//
//  1. A state is handed over only if its root is that of a head which was verified for this host, and accepted.
//  2. The mark never goes back, and is durable before anything is fetched for it.
//  3. Nothing is fetched for a version and root that the host has refused.
//  4. At most one request is open, and between failed ones there is a pause.
package core
