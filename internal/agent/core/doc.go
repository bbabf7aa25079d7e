// Package core is the agent's pure part: what the entries of a host, its facts and its labels, and the removals that are
// still due, make of the graph that converge drives; what is held; and when a state must wait, or has cost the agent its life
// too often (Guard, Trial). It does no I/O, reads no clock and owns no goroutine; the simulation drives it as the agent does.
package core
