// Package core is the agent's pure part: what the entries of a host, its facts and its labels, and the removals that are
// still due, make of the graph that converge drives. It does no I/O, reads no clock and owns no goroutine; the simulation
// drives it as the agent does.
package core
