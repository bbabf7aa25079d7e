// Package heads says what each host is to have, signed. It is how a server hands Assignments to the transfer.
//
//	Assignment -> content: catalog list, own layer, fallback     (deterministic: Derive)
//	content + epoch + period -> head -> signature                (the same bytes on every server; never stored)
//
// A head is signed when somebody asks for it and the last one is of another period: signing again at the end of a period is no write
// and needs no timer, because every watch asks with its heartbeat.
//
// The view of Assignments and Nodes is what two watches tell. Between hosts and the view stands one channel for each node, which is
// closed when there may be another head: a flag, and never a queue. What was replaced is known for a while, so that a transfer that
// has begun can end.
//
// New heads are signed only while the view is proven fresh (fresh.go). A host that has seen a higher version than the view has is
// looked into (shown.go), because that is what a store looks like that went back in time. Every few minutes everything is read again and
// compared, because watches have lost events before (compare.go).
//
// Run owns four goroutines: two watches, one that proves freshness and follows the trust documents, and one that compares.
package heads
