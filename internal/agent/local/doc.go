// Package local is what is asked of the agent of this host: of the one that runs, over its socket, or, where none does, of what one has left in its
// state directory.
package local
