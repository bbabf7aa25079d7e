// Package bundle is the form in which a list of entries goes to a server: as the difference to one that the server has.
//
//	entries (data) -> items, rows -> trie: its root is the digest of the bundle
//	root of a bundle that the server has -> catalog.Descent -> its trie -> catalog.Difference -> Write -> bytes
//	bytes -> Read -> changes, each verified -> the trie after them has the digest, or all of it is refused
//
// The bytes follow from the two bundles alone, so an upload that broke off goes on at the byte where it was, whoever goes on with it.
// A bundle holds data only: what is delivered to hosts and not acted upon.
//
// The package does no I/O of its own and owns no goroutine.
package bundle
