// Package bundles keeps the lists of entries that people push to a server, for configs to name by their digest (spec.bundle):
//
//	GET   /content/bundles/DIGEST?namespace=N                          is it here, and upon which bundle may a difference build?
//	GET   /content/bundles/DIGEST?namespace=N&base=B&size=S            and how much of that difference is here?
//	POST  /content/bundles/DIGEST/nodes?namespace=N                    nodes of the trie of a bundle that is here, by their hashes
//	PATCH /content/bundles/DIGEST?namespace=N&base=B&size=S&offset=O   the next piece of a difference, at most 2 MiB
//
// All take who may update the NodeConfigs of the namespace; without a namespace, who may update ClusterNodeConfigs. With the last piece the
// difference is looked through: each entry must be data that could be declared, and the trie after all of them must have the digest.
// Otherwise all of it is thrown away. An upload that broke off goes on at its byte, also when the server was killed meanwhile.
//
//	HEX/rows        key, digest, place and length of each body, in the order of the keys
//	HEX/bodies      the bodies, in the same order
//	part/NAME       what has come of a difference
//	newest/N        the digest that was pushed last for a namespace
//	tmp/            what is being made; emptied when the directory is opened
//
// A bundle is made in tmp, made durable, and renamed to its place: it is whole or not there. It is in the data directory of the server that
// it was pushed to, and of those that have taken it from there because a config names it: as a difference from none, which is looked through like
// any other (Take, Whole). One that no config and no revision has named for 30 days goes; where more than half of the quota is in use, for one day.
//
// Run owns the one goroutine, which looks differences through and collects. The other methods may be called from several goroutines.
package bundles
