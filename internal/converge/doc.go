// Package converge is the graph core of everything that tako converges: hosts, stacks and recipes. It knows order,
// readiness, outcomes, back-off and notifications. It knows no files, no persistence, no replacement and no deletion: those
// belong to whoever drives it.
//
// A Graph is immutable: vertices, explicit edges (require, notify, onFailure) and automatic edges, which yield to explicit ones.
// An Engine is a state machine over one Graph:
//
//	effects := engine.Step(now, event)
//
// Step does no I/O and reads no clock; it owns no goroutine and is called by one at a time. The driver carries the effects
// out and feeds the results back:
//
//	loop:
//	    event   <- a watcher (Touched), an operation (Done), a timer (Tick), a person (Examine)
//	    effects := Step(now, event)
//	    make effects.Persist durable, then start effects.Start, then show effects.Reports
//	    wake up again after effects.Wake, and at effects.Opens
//
// The way of a vertex:
//
//	dirty -> waits until everything it is ordered after has settled
//	      -> notApplicable, while nothing has failed that it is for
//	      -> blocked, while something it requires is not converged
//	      -> check -> in sync:  kept
//	               -> differs:  held off (contended) | rate limited, outside of its window (deferred) | apply -> repaired | failed, backs off
//	      -> refresh, while a notification is pending
//
// Invariants, tried by the simulation in sim_test.go:
//
//  1. At most one operation is in flight for a key, also across Swap.
//  2. An operation starts only when everything its vertex is ordered after has settled; an apply or a refresh, and the
//     check of what was never converged, only when everything required is converged.
//  3. A notification is in Persist before the apply that may cause it is in Start, and is cleared only after a refresh
//     that started later than the change has succeeded.
//  4. A vertex whose apply or refresh has failed is not acted upon before its back-off is over, whatever events ask for,
//     unless it was found converged meanwhile. A failed check is repeated before that only when an event asks for it, and then
//     it is no attempt.
//  5. Outside of its window a vertex is not refreshed, and a frozen one not applied either, unless it was released. What it owes stays
//     durable, and is done when the window opens, however the clock was set meanwhile.
//  6. When the world is quiet and nothing fails, everything converges and the engine becomes quiet.
package converge
