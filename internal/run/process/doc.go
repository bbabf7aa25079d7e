// Package process is the runtime that needs nothing of the host but its kernel: package shim supervises, and a task is a child of its shim, with
// the user, the session and the cgroup that it is to have. It works without root, with less: see Capabilities.
//
// The kernel kills a task with its shim.
//
// Goroutines: Runtime.Run has none but its caller's.
package process
