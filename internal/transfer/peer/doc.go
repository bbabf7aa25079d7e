// Package peer is the other end of the transfer on a host: it answers other hosts of its cluster, while they reach no server, out of what
// it holds itself.
//
//	news   what is signed and newer than what the caller has: its own head, where a server has left it here for it; trust documents;
//	       statements about layers that the caller's list names
//	sync   what turns one root of a layer into another
//	nodes  the same by hash
//
// Nothing here is believed by whoever asks: it verifies what comes as what comes from a server. And nothing is given to whom it is not for.
// A caller shows a certificate of a node, and a head that is signed for that node, with the list which the head is the root of. It gets
// layers that this list names, at the root that stands there or in a statement of an operator about that layer. Nobody gets a node's own
// layer, and a head is given to the node that it is for.
//
//	connection -> so many a second, so many of one address, so many in all -> handshake: a node of this cluster, valid now
//	call       -> so many a second of one node -> a place, or 503 with Retry-After -> pieces, so many bytes a second over all
//
// Run owns one goroutine that serves, and net/http those of connections, which end with Run.
package peer
