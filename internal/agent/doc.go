// Package agent is the arm: one process that keeps one host as declared. It knows order, events, durable state and
// reporting; it knows no resource type, only their contract (internal/host).
//
//	declarations -> load:  read, resolve, compile; journal what leaves; swap the active state (package load)
//	events       -> loop:  one goroutine owns the engine and everything about it; others post to it (package subscribe)
//	effects      -> work:  one goroutine per operation in flight, bounded by the engine's lanes
//	reports      -> books: history on disk, the report that status and why are answered from (packages store, socket)
//
// Where the declarations come from is a source: files, or, on a host that has joined a cluster, the signed states that its servers hand
// over (packages held and transfer/client). A state that is handed over goes this way, in the loop:
//
//	set out (durable) -> read, compile -> refused: REJECTED, WITHHELD, QUARANTINED, and the one before stays
//	                  -> try armed, state noted as not settled (durable) -> swap -> quiet for the first time: settled (durable)
//
// Without a server the last one goes on being enforced, from the disk. What is only tried falls back by the host's own clock.
//
// Run owns every goroutine: the loop itself, the operations, what listens to the kernel and the system bus, the facts, the
// local socket, the audit, the transfer. When Run returns, none is left, and what was begun has ended.
package agent
