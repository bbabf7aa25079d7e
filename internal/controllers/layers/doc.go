// Package layers compiles the revisions of configs and of workloads to the layers that hosts get, and keeps them.
//
//	revision + values that it names -> catalog.Compile -> items -> trie, root, bodies, keys of its secrets
//
// A value of a ConfigMap stands in a body as it is, one of a Secret sealed under a key that follows from the value: so equal inputs
// give equal bytes on every server, and a root changes with a value and with nothing else. Values of Secrets are in memory while a
// layer is compiled, and not after that; what their keys open is in the bodies.
//
// The entries of a bundle that a revision names are in its layer beside those: the trie in memory, the bodies on the disk, where each is read
// when a host gets it.
//
// A compiled layer is good until an object that it names has another version. Run watches the metadata of Secrets and ConfigMaps,
// forgets what is no longer good, and tells who subscribed which configs to ask for again. Of compiles: one caller at a time for
// each revision, the others wait for what it finds.
//
// The layer of a workload's revision has its template as its one entry, and an ID of its own: the name of the revision is in it (catalog.TemplateLayer).
//
// Layers of a config that were replaced are kept for a while, so that a host that has one of them is sent the difference.
//
// Run owns two goroutines, one for each kind that it watches.
package layers
