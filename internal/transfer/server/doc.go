// Package server is the end of the transfer that the control plane has: it brings each host its signed head and what the head's root is
// made of, and hears how the hosts fare.
//
// Run serves one TCP listener with HTTP/2 over TLS 1.3, until its context ends. What waits for a connection, for a call or for an answer
// is bounded (listener.go, ask.go, budget), and so is what one host may ask for, whoever has its certificate (allowance.go).
//
//	accept   admission before TLS, keepalive so that a lost host is known within 15 s
//	call     certificate -> Identity, per call; a join and the trust documents go without
//	watch    one goroutine for each: the newest head whenever there may be another one (a closed channel, never a queue), and as heartbeat
//	sync     shown head -> verified, for the caller -> its list -> the layer in it -> difference or snapshot, in parts
//	nodes    the same, then nodes of the trie and bodies by their hash
//	object   shown head -> verified -> the entry at the key that is given names the digest -> the file, from where it was
//	stored   the same without a head, and bundles, for another server: what is here, and nothing that is elsewhere
//	names    whatever Options.Names sends, for as long as both are there
//	answer   to whoever asked
//
// What hosts are to have, who they are and what becomes of their reports is elsewhere: Catalogs, Members, Presence.
package server
