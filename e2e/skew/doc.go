// Package skew proves that a server and agents one version apart work together, and that an upgrade of the server moves no root.
//
// There is one version yet. The later one is this one that knows one more schema of bodies: what a later version is like as long as
// nobody declares anything that needs it. The earlier one is this one.
package skew
