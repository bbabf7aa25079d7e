// Package mistakes proves that a mistake in a declaration is told in the same words whoever finds it: the server, asked by
// kubectl; tako; and an agent alone. The programs are the built ones. What kubectl refuses by itself, before a server of ours
// is asked, is listed with what it says instead (differences_test.go).
//
// Tests that run programs need the build tag e2e. The package has no code of its own and starts nothing but what its tests end.
package mistakes
