// Package naming answers for names where a server does, by the DNS: for resolvers of others, and for programs on machines that are no hosts. It answers
// from the editions of the names (package edition) that the server which leads makes and all servers have, with what agents answer with (package
// names/server). So all of them say the same, and one that follows, or is cut off, answers from the last edition that it has.
//
//	Store (published here, or taken from the leader)  --Since-->  index  --Swap-->  DNS
//
// Whoever reaches the address may ask, so each client has a rate, but for those of the server's own machine. Run owns the goroutines; all have ended when it returns.
package naming
