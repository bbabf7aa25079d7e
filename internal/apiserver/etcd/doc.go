// Package etcd runs one member of etcd in this process, or connects to a cluster that others run.
//
// The member listens on a unix socket that only its user can reach. The client of etcd that needs no socket is not used: it
// has no endpoints, from which the API library learns what etcd can do, and it stops for ever after hundreds of cancelled
// watches (etcd-io/etcd issue 18879).
//
// etcd owns the goroutines of a member; they end with Close.
package etcd
