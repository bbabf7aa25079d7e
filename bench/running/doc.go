// Package running measures workloads end to end: real servers with their etcd, simulated hosts that report (package swarm), and for the start of one
// replica a real agent.
//
// Rows run in the goroutine of their caller; the hosts are a process of their own.
package running
