// Package cni gives instances networks of their own by CNI plugins (github.com/containernetworking/cni, SPEC.md, versions 0.3.0 to 1.1.0), which are
// programs of the host's: a plugin is executed with a document on its standard input, and says on its standard output what it has made.
//
//	Hold:     a record of what is about to be made, durable
//	          a network namespace, pinned: it is there though nobody is in it, and though the agent ends
//	          ADD of each plugin of the list, in order, each with the result of the one before
//	          each result into the record
//	Release:  DEL of each plugin, in reverse, with that result; the namespace; last the record
//
// Whoever is killed in between has left the record: of a network that is not made as a whole, or without a pinned namespace because the host was restarted, a network
// is taken away before it is made again, and what no task is left of is taken away. DEL may be repeated, and is due after an ADD that has failed.
//
// The list is the host's first one in /etc/cni/net.d, as it is for other runtimes. A host that declares none gets one that is built in: a bridge, on
// it addresses that only this host knows, and ports of the host that lead to those of instances.
//
// Goroutines: one at a time to make a namespace, which the caller waits for.
package cni
