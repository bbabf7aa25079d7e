// Package render says what a tree of files declares: the documents, each with the file and line that it stems from, or every
// mistake of every file at once.
//
//	from the path down, in order of names:
//	    what begins with a dot, and what the ignore rules leave out, is not looked at
//	    a directory with a kustomization is built as a whole by package kustomize; nothing else below it is read
//	    a file *.yaml, *.yml or *.json of any other directory is read as a file of documents
//	then: two documents for one object, and a tree without any document, are mistakes
//
// A kustomization that stands below a plain directory is built as if the plain directory's own kustomization listed it, as Flux
// has it. A component makes nothing alone and is left out there. Rules decide what is looked for in directories: a file that a
// kustomization names is read whatever they say. They stand in a .takoignore file at the path and in the request, which has the
// last word; both are relative to the path.
//
// A tree is not trusted. It is read through a view that leads to nothing else (the files of a commit; or os.Root.FS: not
// os.DirFS, which follows links out of the directory); a link to a file is followed by the view, one to a directory is a
// mistake, because what it leads to would be left out in silence or read twice, and so is one that leads out of the tree: who knows
// what stands there. A pointer of Git LFS is a mistake wherever a file is read, because it is not what was committed. Files, bytes, documents, nesting and the
// values that aliases stand for are bounded.
//
// Nothing is read again that has been read: a Result carries what was parsed of each file, by name and content, and the next
// Render takes over what is still the same. Of a view that knows the identity of a content (BlobID), such a file is not even
// opened. A Result keeps as much as its own tree has, and nothing of those before it.
//
// Renderer owns no goroutine. It may be used by several at once; a Result may be read by several.
package render
