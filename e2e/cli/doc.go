// Package cli proves the command line with the programs that people put before and beside it: kustomize in a pipe, kubectl on
// the same objects, and a server that is restarted under a watch. The programs are the built ones.
//
// All tests need the build tag e2e. The package has no code of its own; a test starts what it needs, and its cleanup ends that.
package cli
