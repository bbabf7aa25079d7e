// Package runtest is what every runtime passes, with real processes: how they end and are ended, that nothing is left of them, what they are
// given and what they print, their bounds, and that an agent that was killed anywhere finds what it has started.
//
// A package has Main as its TestMain: the test binary is, started again, the program that tasks run, and the agent that is killed.
//
// The package starts no goroutine that outlives a test.
package runtest
