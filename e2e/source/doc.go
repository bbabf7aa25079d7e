// Package source proves that a fleet follows its repositories: real ones, served over https, over ssh and from a directory, a built
// server, and agents that keep directories of this machine. Only TestBootedHostsFollow needs hosts that boot, and with that root; ssh
// needs root too, for sshd.
//
// The tests wait for states, never for a time. They run beside one another, each with a server of its own.
package source
