// Package workloads tests workloads from `tako apply` to the processes on hosts, and back to `tako why`: the programs as they are shipped,
// one server, and hosts that are directories of this machine, or have booted.
package workloads
