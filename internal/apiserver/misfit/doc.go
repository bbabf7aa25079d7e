// Package misfit says in words what an applied object has that its kind does not. The library finds that out, and calls it a fault of
// the server, with a text of its own and no type: this is the one place that reads that text. The package has no goroutine and does no
// I/O.
package misfit
