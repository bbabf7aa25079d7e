// Package gc decides what the garbage collection by owner references does: which objects are deleted because none of their
// owners is left, which owner references are taken away, and when an object that is deleted in the foreground, or whose
// dependents are orphaned, may go. It has the meaning that Kubernetes gives to the three kinds of propagation:
//
//	background  the owner goes at once; dependents go after it
//	foreground  the owner has a deletion time and the finalizer foregroundDeletion: its dependents go first, and it waits for
//	            those that block it
//	orphan      the owner has a deletion time and the finalizer orphan: its dependents lose the reference, then it goes
//
// A Graph holds of every object what matters here. It is told what is seen and asked about one object at a time:
//
//	Observe, Forget, Answer, Recheck -> the objects to decide about anew
//	Decide(object)                   -> what to do about it
//
// It does no I/O, reads no clock, owns no goroutine and is used by one at a time. Whoever drives it carries the decisions out
// with the preconditions that they name, and asks again about an object when that did not work.
//
// Invariants, tried by the simulation in sim_test.go:
//
//  1. A Delete is decided only when every owner of that version of the object is gone for ever (a live read has said so,
//     and a UID does not come back) or is itself being deleted in the foreground, which cannot be undone. With the version as
//     a precondition nothing whose owner lives is deleted, however late the graph is.
//  2. An owner in another namespace, or with another name or kind than the reference says, is a mistake: it is
//     reported, and keeps the object.
//  3. An owner that cannot be read keeps the object.
//  4. When nothing happens any more and everything is carried out, no object is left whose owners are all gone, and no object
//     waits for dependents that it does not have.
//  5. Memory is that of the observed objects and their references: what is known of an owner that was not observed is
//     forgotten with the last reference to it.
package gc
