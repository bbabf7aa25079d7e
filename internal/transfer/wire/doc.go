// Package wire is what the calls of the transfer carry: the messages, how they are framed, and their bounds. It does no I/O but to
// the reader or writer that it is given, and owns no goroutine.
//
//	POST /v1/join    JoinRequest -> Credentials            no certificate is asked for
//	GET  /v1/trust   ?after=N -> documents                 the same
//	POST /v1/renew   RenewRequest -> Credentials           an expired certificate of a living node will do
//	POST /v1/watch   WatchRequest -> frames, until the watch ends: the newest head at once, then each newer one, and the newest again
//	                 as a heartbeat, which is answered with a status; with a head its list, where that is short; questions; a hint where to go on before it ends
//	POST /v1/sync    SyncRequest -> parts of a difference or a snapshot
//	POST /v1/nodes   NodesRequest -> NodesReply: nodes of tries, bodies, lists, by their hash
//	POST /v1/status  Report -> StatusReply
//	POST /v1/answer  ?id=N, the bytes of an answer -> nothing; ?id=N&refused=1, a Problem: there will be none, and why
//	POST /v1/relay   frames of RelayUp -> frames of RelayDown: all watches of the agents of a relay, as one stream; for relays alone
//
// Messages are CBOR maps with small integers as keys; what a later version adds is passed over. A stream is of frames: four bytes of
// length, the highest first, and a message. A refusal has an HTTP status and a Problem.
package wire
