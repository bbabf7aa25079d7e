// Package events keeps the Events of a cluster bounded: one object per thing that happens and reason, however often it
// happens; so many objects; so many writes a second. What is evicted is counted, with the time that it is from.
//
//	an event arrives -> Admit -> a new object | into the object that is there | counted, written later | refused for now
//	the store says   -> Observe, Forget, Sync: what objects there are
//	now and then     -> Due: counts to write into objects; Evict: objects to delete, the oldest first
//
// A Bounds does no I/O and owns no goroutine; the time is an argument. It has a lock of its own, because a server admits events
// from many requests while its controller evicts.
//
// Invariants, tried against a naive model in model_test.go:
//
//  1. In a time of t seconds at most Burst + t * WritesPerSecond writes are admitted.
//  2. Admit never makes more than ObjectsMax objects.
//  3. No event is lost that was not refused: the counts of the objects, once what is due is written, are all that arrived.
//  4. What is evicted is older than anything that stays.
//  5. Memory is that of the objects that are there.
package events
