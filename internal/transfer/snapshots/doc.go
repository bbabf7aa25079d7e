// Package snapshots keeps layers as they go over the wire to hosts that have nothing of them, so that a layer which many hosts want is read,
// packed and compressed once.
//
// A layer is kept as the parts of its snapshot, one after the other in a file. Memory has where each is, of which keys, and its checksum. The
// name of a layer is its root, from which all parts follow; what is kept says nothing that could not be made anew.
//
//	part: kept at that key                    -> read it; compared with its checksum
//	      right behind what is kept           -> make it, with the lock of that layer; keep it
//	      elsewhere, or there is no room      -> make it, and keep nothing
//
// So whoever has come furthest makes the next part for all that come behind, however many there are and however slowly some of them read;
// what he has made stays when he goes away. A layer of one part is not kept: it is made as fast as it is read.
//
// What was asked for last stays while there is room. Files are of one process: what another one has left is removed. What the disk has
// changed or lost is let go, and made anew. Whoever gets parts computes the root of all of them in any case.
//
// A Store may be used from several goroutines. It starts none.
package snapshots
