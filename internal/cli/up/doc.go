// Package up runs a whole fleet of one on a machine, without root: a server, and an agent in a directory that stands for a host.
//
//	DIR/server   data directory of the server
//	DIR/host     what the agent manages, as if it were /
//	DIR/*.log    what the two say
//	DIR/watched.git  with a watched directory that is no repository: each state that its files were in
//	DIR/watch.yaml   what was declared to keep a directory applied
//	DIR/up.pid   who runs them; locked for as long as they run
//
// Run owns the server's goroutine, the one that waits for the agent's process and the two that watch a directory, and ends all of them
// before it returns.
package up
