// Package held is what a joined host keeps on disk of its cluster: who it is, what it was told, what it holds of that.
//
//	identity/      the host's keys, its certificate, the trust documents, whose node it is; node.json is written last, and without
//	               it the host has not joined
//	heads          the highest signed head, the verdict on it, what is enforced, what is on trial: small, twice in one file
//	statements     the highest statement of operators about each layer, and which are in force: twice in one file, too
//	lists/ROOT     catalog lists, each verified against its root when it is read
//	layers/ROOT    layers: package layerstore
//	stage          the log of the one fetch that is under way
//	coming         the state that the agent is on its way to, so that a death on it is counted; not durable
//	corrupt/       the last 10 files that were damaged, shared with package store
//
// Every file but the stage and the coming is replaced as a whole: written beside, made durable, renamed, and the directory made durable. So a crash
// leaves the old one or the new one. The stage is appended to; a torn end is cut off. A list that is not what its name says is set aside, and
// is as if it had never been there; of a layer, what is left stays under a name of its own.
//
// The directory belongs to the process that holds the lock of package store. The package starts no goroutine. The methods of Store
// and of Identity may be called from several goroutines.
package held
