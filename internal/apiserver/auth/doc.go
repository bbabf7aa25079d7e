// Package auth says who asks, and what he may do.
//
// People are known by client certificates of the cluster's own authority or by tokens; nobody is anonymous, but for the
// questions whether the server lives and is ready. What they may do is said by roles and bindings (RBAC). Both are read from
// the watch caches of the registry, in process: a Lister owns one goroutine that follows one kind.
package auth
