// Package relay serves the transfer calls of a server to hosts that cannot reach one. It holds no key but its own, signs nothing, and is not
// trusted: a host verifies all that it gets, from whomever it comes, and a relay never says for a host what the host has not said.
//
//	hosts    server.Server  the listener, the calls and the bounds of a server; what is behind them is of this package:
//	           Heads, Presence  agents.go: the newest that the server has said of each node, and what is to be told to it of each agent
//	           Members          members.go: joins and renewals are passed on; a certificate is verified here, and anew by the server
//	           Content          content.go: answers that were kept, or are asked for once for all that want the same
//	servers  stream.go      one stream for all agents, to one server; to another one when that fails (transfer/core.Sticky)
//	         questions.go   a question goes to its host, and the answer back as it comes
//	         upkeep.go      the relay's own certificate and trust documents
//	disk     cache.go       answers by name, least recently wanted let go; identity.go: who the relay is
//
// What is decided about agents and answers is in package core. Run owns all goroutines.
package relay
