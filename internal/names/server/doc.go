// Package server answers questions of the DNS by UDP and TCP, from an index of names that is replaced as a whole. Agents serve the index of
// their own copy of what there is at a local address, so names are answered while no server is reached; servers serve theirs to others.
//
// It asks nobody else: what is not below the domain is refused. So it belongs behind a resolver that sends it the questions about that
// domain, and it cannot be used to reach others, or to load a cache with what is not so.
//
//	UDP   a fixed number of goroutines for each address: read -> respond -> write
//	TCP   one goroutine for each address that accepts, one for each connection, of which there is a bounded number; more wait in the
//	      kernel. Where clients have a rate, each has few connections
//
// Respond takes the index once, so an answer is of one version. A question that comes when Swap has returned is answered from the new one.
// Run owns all goroutines and has ended them when it returns.
package server
