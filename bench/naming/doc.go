// Package naming measures how long it takes from the moment at which an instance is ready, or is not any more, until the answers of the DNS say so: those of
// its own host, of another one, and of the server. It runs the real programs: a server, two agents in directories of their own, and an instance whose
// readiness is that a file is there.
//
// Measure has ended all of them when it returns. An instance goes on without its agent, so it ends by itself, after a while, where it could not be ended.
package naming
