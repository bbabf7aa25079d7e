package main

// Mutant is one breakage and the test that must notice it.
type Mutant struct {
	Name    string // what is broken, in a few words
	File    string // path from the top of the repository, with slashes
	Old     string // stands in File exactly once
	New     string // stands there instead
	Package string // of the test: "./internal/disk"
	Run     string // regexp of the test, as of go test -run; it must run, and pass, without the mutant
}

// table lists the mutants: each a line that somebody might write by mistake, and that a case or a scenario is there to prevent.
func table() []Mutant {
	return nil
}
