// Package oci is the runtime that runs tasks from OCI images, in containers that runc makes. Package shim supervises, package image has the
// roots; this one says what a container is.
//
//	agent                              shim                                    container
//	image: unpacked once, shared
//	user, command: from the task,
//	or from the image
//	order -------------------------->  a mount namespace of its own
//	                                   overlay of the image; config files
//	                                   a process ID namespace, with a holder
//	                                   runc create, runc start  ------------>  the program, a child of the shim
//
// Everything that a container is made of hangs on its shim. The mounts are in the namespace of the shim, so they go with it, and no host has any
// to be taken away. The configuration that runc reads holds values of secrets: it is in memory that is never swapped, and seen in that
// namespace only. The first process of the process ID namespace is a holder, the agent's program once more, which does nothing but reap, and which
// the kernel kills with the shim; with it all of the namespace ends. So a task is not the first process of its namespace, to which the
// kernel delivers no signal that it has no handler for: a signal ends it as it would on the host.
//
// A container has namespaces of its own for mounts, processes, IPC, host name and cgroups; the network is the host's,
// or one that all tasks of an instance have together (package cni): it is there from the start of the first one that runs until the end of the last.
// Who names no user
// anywhere runs as one that nobody else has; root is written out, has the few capabilities of rootCapabilities, and no other user has
// any. Nobody gets new privileges. What system calls are refused is in seccomp.go.
//
// Goroutines: Runtime.Run has two, and some for the time of taking networks away; it waits for them.
package oci
