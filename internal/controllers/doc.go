// Package controllers runs the controllers of a server against its API: thin shells that read, ask a pure decision of
// internal/fleet, and carry it out.
//
//	garbage collector  watches the metadata of every kind that can be listed, those of custom resource definitions included, and
//	                   deletes what no owner keeps (fleet/gc)
//	namespaces         empties a namespace that is being deleted and lets it go (fleet/namespace)
//	event bounds       counts Events in their objects and deletes the oldest (fleet/events)
//	revisions          makes of every NodeConfig and ClusterNodeConfig a Revision or ClusterRevision, named by the digest of
//	                   what is declared, and removes old ones that no node has and no rollout would go back to
//
// One server of several runs them: who that is, is the caller's business. All are level-triggered: what they missed they
// find again by listing.
//
// Run owns all goroutines: one that keeps the kinds up to date and starts and stops a watch for each, one for each such watch,
// the garbage collector's workers, one for event bounds, and those of controller-runtime's manager, which has the namespaces
// and the revisions. They end with Run's context, and Run waits for them.
//
// Memory is bounded by the number of objects: of each the garbage collector keeps identity, owners and version, and nothing of
// its content; the manager keeps the metadata of revisions and namespaces, and of configs also the status.
package controllers
