// Package catalog turns declarations into the set of entries that one host enforces. It does no I/O.
//
//	declarations -> Resolve (one winner per claim, or a conflict told with both places) -> entries -> Encode (canonical CBOR)
//	             -> Root (one hash over all of them)
//
// An entry stands for itself: its references are claims, not names, so that it can be stored, compared and acted upon
// without the declaration that it came from.
//
// What travels stands beside it:
//
//	resources of a revision -> Compile -> items -> TrieOf: a layer with one root -> List: the layers of a host -> Head: signed
//	bodies that have come   -> DecodeLayer -> ResolveLayers: the same resolution -> entries
//	what is for one node    -> Own.Items -> a layer of its own -> DecodeOwn
//	a workload's template   -> Template.Item -> a layer of one item, for the nodes with instances of it -> DecodeTemplate
//
// Difference, Nodes and Descent bring a trie from one place to another; DecodeBody reads what came; Mark says which head counts.
// Content that only some may read is Sealed wherever it is in here. A body that this version cannot read is kept as it came: its
// claim is taken, and it is not acted upon.
package catalog
