// Package cli proves the command line with the programs that people put before and beside it: kustomize in a pipe, kubectl on
// the same objects, a server that is restarted under a watch, a fleet of one under tako up, and what a person changes on a host and
// adopts. The programs are the built ones; hosts are directories.
//
// All tests need the build tag e2e. The package has no code of its own; a test starts what it needs, and its cleanup ends that.
package cli
