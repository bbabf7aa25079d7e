// Package load makes a state that an agent can enforce out of its declarations, or out of the active state on disk.
//
//	read the files, or take the layers of a signed catalog -> resolve to entries -> find what has left -> compile the graph
//	                                                                         every mistake at once; nothing is written
//	Unseal: fill in what is sealed, in memory only
//	Commit: note durably what has left and must be undone; then replace the active state as a whole
//
// Killed between the two steps of a Commit, what was noted is of claims that are still active, which the store passes over.
//
// The package owns no goroutine.
package load
