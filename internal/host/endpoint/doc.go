// Package endpoint is the resource type of what a host needs of others: a service that answers. It changes nothing. A check looks up where
// the service is and asks it; while it does not answer the resource has failed, and what requires it waits.
//
// Nothing tells of what happens on another host, so time does: a resource is asked again after a while, by the one clock of the
// subscriptions, and a failed one after the pause that its error names. Checks of one call run at once, each with a deadline of its own;
// Check waits for all of them, and no goroutine outlives it.
//
// That a service answers again is a change, which is told to what is notified. It is known from what this process has seen: of an answer
// that came while no agent ran nobody is told.
package endpoint
