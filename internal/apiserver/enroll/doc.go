// Package enroll decides who is a host of the cluster: it lets hosts join, renews their certificates, and says whose one is.
//
// Joining, for a host that shows a token, a name and a certificate request:
//
//	the Node of that name ...        and                          then
//	has this key as its identity     the same sealing key         a new certificate: the answer before was lost
//	any                              spec.approvedKey is the key  the identity becomes this host's; no token is needed
//	has another key                  the token admits the name    refused, and status.joinRequest says so to a person
//	waits for its host               token of the environment     one use of the token, the identity
//	is not there                     the token admits the name    one use of the token, the Node, the identity
//
// One use is counted before anything is made, by an update of the Token that fails when somebody else has counted meanwhile. So at
// most as many hosts get in as the token is for, over all servers; a server that dies between the two steps has wasted a use, and has
// let in nobody. A use that turns out not to be needed is given back.
//
// Whose a certificate is, is answered from an index of all Nodes by UID, which Run's one goroutine keeps by a watch. What the index
// does not know is asked of the store, so that a host that joined a moment ago, at another server too, is known; a UID that is gone
// never comes back, and is remembered.
package enroll
