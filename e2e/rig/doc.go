// Package rig is a tako server and hosts that are directories of this machine, for tests of the built programs that need neither root
// nor a host that boots.
//
// Each server and each agent is a process; each has one goroutine that waits for its end. All end with the test.
package rig
