// Package store is the agent's state on disk: what is enforced, what is still owed, what happened. It survives kill -9, power
// cuts and full disks; what is damaged is detected, set aside and rebuilt, and never enforced.
//
// The directory belongs to one process, which holds a lock on it:
//
//	lock        held while the agent runs; its process id, for people
//	active      the state that is enforced: replaced as a whole, and read on demand: only where its entries are stays in memory
//	journal     what must not be forgotten: notifications, removals, originals, budgets; appended, rewritten when mostly dead
//	converged   what was once converged, so that drift is told from change; written now and then, its loss is harmless
//	report      the last report, for when nobody runs
//	history/    what happened: numbered segments, 7 days, at most 16 MiB
//	corrupt/    the last 10 files that were damaged
//
// Every file is a line with its kind and version, then frames of length, checksum and payload (core deterministic CBOR). A
// frame with a wrong checksum is passed over where a good one follows it; otherwise the file ends there. The active state is
// taken whole or not at all.
//
// The journal is an event log over a small state in memory, the ledger:
//
//	append:  write the events' frames behind the last good one -> fsync, if one of them is a promise -> apply to the ledger
//	failure: cut the file back to the last good frame; a promise (something that the caller may only rely on when it is
//	         durable) does not enter the ledger, a fact does; the next append first writes the whole ledger to a new file
//	open:    replay the frames; what a crash left undecided is decided and noted:
//	         a notification without a stamp is stamped, a removal of what is active is void
//
// Before each write the lock and the journal are looked up by their names. Where somebody has deleted or replaced them, the
// directory is made again from memory.
//
// The package starts no goroutine. All methods of Store may be called from several goroutines. Lock order: Store.mu, then
// the mutex of the active state or of the history.
package store
