// Package subscribe knows what tells an agent about what: which path, directory, list of the kernel's or unit belongs to which
// vertex of the graph. It turns what the kernel and systemd tell into a set of vertices to look at.
//
//	watch, systemd -> news: a set, added to by the sources' goroutines, guarded by a mutex
//	Wake           -> the loop takes the set and translates it: slot -> vertex, unit -> vertices
//	Swap           -> a new graph: watch what is new, drop what is gone, leave alone what both need
//
// A subscriber keeps its slot, the watcher's number for it, over graphs for as long as its key is in them; so what is told while
// the graph is swapped finds the new vertex.
//
// Run owns one goroutine for each source and returns when all have ended.
package subscribe
