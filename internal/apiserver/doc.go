// Package apiserver is the control plane's API: the machinery of Kubernetes over etcd, with tako's own kinds.
//
// Run owns everything: the data directory (datadir.go), etcd (etcd/), the cluster's keys (keys.go), the kinds and their storage
// (registry/), who may do what (auth/, admission/), the audit log (audit/), the HTTPS server of the API library (server.go), and the way
// from the declarations to the hosts, with a listener of its own (transfer.go, enroll/).
// It returns when all of that has stopped. The library keeps state of its own in package variables, so there is one server in a
// process.
package apiserver
