// Package gitea proves that a fleet follows a repository of a Gitea: it calls, is told what became of each commit, and what it merges is
// applied.
//
// One body of tests runs against two forges: a recording, which is a git server that calls and answers word for word as a Gitea did, and
// that Gitea itself. It is built from its Go module by the first long run (TAKO_SOAK), which takes minutes, and kept in the user's cache;
// once it is there every run has it. It also checks that the recording in testdata is still what Gitea does;
// `TAKO_SOAK=1 go test ./e2e/gitea -update` records it anew.
//
// What is sent to either of them is compared with the recording: method, path, each header, each field. The rest of
// what people do there, by its pages and with git, is not recorded.
//
// A Gitea is a process that ends with its test, and one goroutine that waits for it.
package gitea
