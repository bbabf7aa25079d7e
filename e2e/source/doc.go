// Package source proves that a fleet follows its repositories: real ones, served over https, over ssh and from a directory, a built
// server, and agents that keep directories of this machine. Nothing here needs a host that boots; ssh needs root, for sshd.
//
// The tests wait for states, never for a time.
package source
