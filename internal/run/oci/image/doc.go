// Package image reads OCI image layouts (github.com/opencontainers/image-spec), and unpacks each image once into a store that all containers
// share.
//
// A layout is a directory on the host, or an archive of one (tar, not compressed: its layers are). Of what it holds the image for this
// machine is taken; there must be one. Nothing in it is believed: every document and layer is compared with its size and SHA-256, every layer
// with that of what it unpacks to, too, and all of it is bounded before it is used.
//
//	DIR/images/sha256-HEX/   the root of the image whose manifest has this digest; put in place as a whole, never changed
//	DIR/temporary/           what is being unpacked, or taken away; emptied when a Store is opened
//	DIR/uses/HOLDER          the digest of the image that somebody runs from
//
// Layers are unpacked one over the other into one directory. No path leads out of that: names with .. and absolute ones are refused, and the
// kernel resolves every way below it, links included (openat2 with RESOLVE_IN_ROOT). What would be a right on the host is left out: devices,
// setuid and setgid, extended attributes.
//
// The package starts no goroutine.
package image
