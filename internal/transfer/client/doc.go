// Package client is the host's end of the transfer: it keeps one watch open to a server, fetches what the heads that come there name,
// hands complete states to the host, and sends what the host reports.
//
// core decides; Client does: one goroutine (Run) owns the machine and the store, and does its durable effects one after the other.
// Beside it run the watch, the reports, the upkeep of certificate and trust documents, the look at fallback locations while there is no
// server, at most one fetch, and four answers. All have ended when Run returns.
//
// What a person has brought, and what a fallback location has, is at hand: content is looked for there before a server is asked.
//
// A server is believed to be one for its certificate, whatever it is called; what it says is believed for its signatures.
package client
