// Package layerstore keeps layers on disk, each under its root, so that one of a million rows takes a few MB of memory and one changed row
// some hundred bytes of writing.
//
// A file has the name of the root of its layer, and begins with a line that says what it is of which version:
//
//	head     root, root of the base, root that it is the remains of, numbers of rows and of acting rows, length; with a checksum
//	rows     80 bytes each, sorted by key: key, digest, where the body is, how long it is, flags; with a checksum
//	acting   a bit for each row: whether it is acted upon, so that these are found without reading the rest
//	bodies   in the order of the rows
//
// A file without a base has all rows of its layer. One with a base is a difference to the layer of that root: the rows that are other
// there, and those that are not there any more. What is read of a layer is read of its chain of files, the newest first. Keys are hashes,
// so the place of a row is guessed from its key, and one or two reads find it.
//
//	put: size = that of the changes
//	     while the last difference of the base is at most twice as large: take it along, add its size
//	     more than half of the whole file at the beginning of the chain: write everything into a whole one
//	     else: write the changes with what was taken along, as a difference to what was not
//
// So a row is written anew about once for each doubling of what was changed, and a chain has few files.
//
// A file does not change. It is written beside its place, made durable, renamed, and the directory made durable; so a crash leaves it or
// does not. The first time that a layer is asked for, all of it is read and verified; from then on memory has its trie without the leaves, and
// what is read is compared with that, or with its own checksum.
//
// A disk changes what is on it. Of a layer that is not what its name says any more, what is left is written into a file of its own, under
// the root that it has: whoever fetches the layer again begins there, and gets what is missing alone.
//
// A Store may be used from several goroutines. It starts none. A directory belongs to one Store that writes.
package layerstore
