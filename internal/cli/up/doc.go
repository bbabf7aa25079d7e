// Package up runs a whole fleet of one on a machine, without root: a server, and an agent in a directory that stands for a host.
//
//	DIR/server   data directory of the server
//	DIR/host     what the agent manages, as if it were /
//	DIR/*.log    what the two say
//	DIR/up.pid   who runs them; locked for as long as they run
//
// Run owns the server's goroutine and the one that waits for the agent's process, and ends both before it returns.
package up
