// Package state is what the server keeps beside the objects of its API: the data directory, the cluster's keys and its trust
// documents, and how all of it is backed up and restored.
//
//	DIR/lock              held by the server that runs
//	DIR/format            version of all this; what has none and is not empty is not ours
//	DIR/machine-secret    what the cluster's keys are sealed under; a copy belongs where it survives the machine
//	DIR/trust/root-key    signs trust documents, until `tako trust export-root` takes it away
//	DIR/trust/root-key.next  what a rotation takes its place with, until it has ended
//	DIR/etcd/             objects, sealed keys (/tako-trust/keys), trust documents (/tako-trust/chain) and the seal that binds them
//	                      to the cluster (/tako-trust/pin)
//	DIR/etcd.restoring/   what a restore has not finished; no server starts while it is there and etcd/ is not
//
// The directory belongs to the server's user. Root may work on it by Admin and Restore: it reads what is that user's, what it writes
// becomes that user's, and it follows no link out of the directory (os.Root). A restore works by path, in the library too, so root has
// the directory for itself until it is done.
//
// While a server runs, Documents follows what others add to the trust documents.
//
// The package owns no goroutine.
package state
