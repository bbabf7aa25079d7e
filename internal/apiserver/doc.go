// Package apiserver is the control plane's API: the machinery of Kubernetes over etcd, with tako's own kinds.
//
// Run owns everything: the data directory (datadir.go), etcd (etcd/), the cluster's keys (keys.go), the kinds and their storage
// (registry/), who may do what (auth/, admission/), the audit log (audit/), and the HTTPS server of the API library (server.go).
// It returns when all of that has stopped. The library keeps state of its own in package variables, so there is one server in a
// process.
package apiserver
