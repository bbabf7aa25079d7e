// Package kustomize builds kustomizations of a tree that nobody trusts, with kustomize's own library.
//
// The library fetches what a kustomization names from the network, clones repositories and starts programs, it cannot be
// interrupted, and a few lines of replacements or patches can make it fill any memory. So two things stand around it:
//
//	Collect  walks from a kustomization over everything that it names, without the library, and refuses whatever is not
//	         a file or directory of the tree, and every field that runs a program; each with file:line:column. What was
//	         walked over is all that the library gets to see, in memory. A field that Collect does not know is refused.
//	Process  runs the library in a child process of our own program (Serve), which has no environment and cannot open one
//	         more descriptor, so no file, no socket and no program, and whose memory and time the kernel limits.
//
// Either alone would do against what reaches outside; against what does not end, only the second does.
//
// As with `kustomize build`, files must be in or below the directory of the kustomization that names them, directories may be
// anywhere in the tree, and resources keep the order in which they are named. Different from it, our own kinds that stand in no
// namespace get none of a kustomization's.
//
// Process owns the child and the goroutines that talk to it; when Build returns, all of them are gone.
package kustomize

import (
	"io/fs"
	"slices"

	"sigs.k8s.io/kustomize/api/konfig"
)

// Object is one object that a kustomization makes.
type Object struct {
	// Text is the object as one YAML document.
	Text []byte
	// File is the file of the tree that the object stems from; for an object of a generator the kustomization. Empty where
	// the library does not say.
	File string
	// Generator is the field of the kustomization that made the object, for example configMapGenerator; else empty.
	Generator string
	// Numbers are the paths of modes that the library has made numbers of. As digits 0644 would have become 420.
	Numbers []string
}

// Built is what became of one kustomization: objects, or in words why there are none.
type Built struct {
	Objects []Object
	Failure string
}

// FileOf returns the name of the kustomization of a directory, and an empty name where it is none. Several are returned for the
// caller to refuse.
func FileOf(view fs.FS, dir string) (names []string) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if info, err := fs.Stat(view, join(dir, name)); err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}

// IsFile tells whether a file of this name, without the directory, is a kustomization.
func IsFile(name string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), name)
}
