// Package swarm is many simulated hosts in one process. Each has keys, a certificate, an address and a connection of its own, speaks
// HTTP/2 over TLS 1.3 as an agent does, and decides with the agent's own machine (transfer/core) which head counts and what is fetched.
// What it fetches it keeps in memory; acting on it takes 3 ms, which is a durable write of one small file. It reports when an agent
// does, and what one does.
//
// An agent's client would need some hundred KiB for each host and most of two processors for 10,000 of them, which are to be
// measured beside the server. So the connection is one of its own (link.go), which has no buffers that are not in use.
//
//	Join     makes hosts members of a cluster by the way that everybody takes, and writes down who they are
//	Start    starts a process with some of them; Process.Do tells it what to do, and how the hosts stand
//	Serve    is that process: one command a line on its standard input, one answer a line on its standard output
//
// A host has one goroutine that decides, and while it is connected one that reads; both end with the context of Serve.
package swarm
