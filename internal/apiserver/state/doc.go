// Package state is what the server keeps beside the objects of its API: the data directory, the cluster's keys and its trust
// documents, and how all of it is backed up and restored.
//
//	DIR/lock              held by the server that runs
//	DIR/format            version of all this
//	DIR/machine-secret    what the cluster's keys are sealed under; a copy belongs where it survives the machine
//	DIR/trust/root-key    signs trust documents, until `tako trust export-root` takes it away
//	DIR/etcd/             objects, sealed keys (/tako-trust/keys) and trust documents (/tako-trust/chain)
//	DIR/etcd.restoring/   what a restore has not finished; no server looks there
//
// The package owns no goroutine.
package state
