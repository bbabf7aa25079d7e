// Package disk looks at the files and directories of a host without being led astray by who may write there. Its subpackages are
// the one way to change them (durable) and to hear of changes (watch).
//
// A Root is where absolute paths begin: the host's own root or a sandbox directory that nothing leaves. Root.Dir opens a
// directory: with one openat2 when no symlink is on the way, otherwise component by component (Walker), following a symlink
// only where nobody but root and the agent's user could have planted it. Everything else works relative to the opened
// directory, never on a path that somebody may redirect in between.
//
// Beside that stands what all who do so share: error numbers as coded errors, the names of temporaries, and the calls on open
// directories (OpenAt, StatAt, Fsync) that the subpackages are made of.
//
// The package owns no goroutine.
package disk
