// Package kill stops an agent at each system call with which it applies a resource, and looks at what is left: nothing may ever be there by
// half, and the agent that comes after must bring it to its end and leave nothing behind.
//
// A package has Main as its TestMain, which tells how an agent of its types starts. A kill test is then a table of Rows: what is there
// before, what is declared, and how to see what is there. Everywhere works one off:
//
//	arrange; before := what is seen
//	apply in a helper, and list its system calls; after := what is seen
//	for each of the calls (outside a long run, of those that only look: for each eighth):
//		arrange; apply in a helper that is killed as it enters the call
//		each part of what is seen is as before or as after, and Killed has nothing against it
//		an agent starts, as one does after a crash, and sweeps; no temporary file is left in Dirs
//		it converges
//		what is seen is as after, and no temporary file is left in Dirs
//
// Meddled has somebody else change something at each of the calls instead, and shows that the next look sees what is not as declared.
//
// LooksOnly takes the same rows to show that no check, at any depth, makes a system call that changes something.
//
// A helper is the test binary once more, under strace. It works on one thread, so that the same work makes the same calls each time and
// "the 7th fsync" names one of them. Where the marker is among the calls, the helper is about to begin.
//
// The package starts no goroutine.
package kill
