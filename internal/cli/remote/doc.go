// Package remote is the API server as commands see it: which kinds it knows, and objects by kind, namespace and name. It
// speaks to any server of the Kubernetes API, knows no kind of its own, and keeps every object as the fields it came with,
// so that an older command line loses nothing that a newer server has said.
//
// Every request has a deadline of its own, but for watches, which end with their context. The package owns no goroutine.
package remote
