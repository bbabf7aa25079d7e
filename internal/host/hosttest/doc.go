// Package hosttest is the suite that every type of host resources passes. A Subject is one type with resources of it, and
// the situations in which those may find the host; Run tries the contract of package host in each:
//
//   - a check writes nothing, at any depth, and says the same at each
//   - what a plan says is what applying it does, no more and no less
//   - what was applied is as declared: another check finds nothing to do, and recognises it where the type remembers
//   - an operation whose context has ended does nothing
//   - a plan for what has changed since is refused
//   - a removal puts back what was there, or removes it, and may be repeated
//   - every error has a code, and no secret gets into anything that is shown
//
// The package starts no goroutine.
package hosttest
