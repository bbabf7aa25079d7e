// Package archive carries out the resource type archive: a directory that holds what is in a tar or zip file, and nothing else.
//
//	check:  look at the directory (one stat); shallow, and it is what is remembered: recognised
//	        otherwise: is it one that was unpacked here (record), of the declared archive (recipe), and as it was left (imprint)?
//	apply:  make .tako.NAME.RANDOM, mode 0700, and note it (record)
//	        unpack into it, relative to its descriptor, following no symlink, within limits; refuse what could do harm
//	        take the imprint of it, note that, make all of it durable
//	        exchange the two names: at each moment the whole old directory is there, or the whole new one
//	        remove the old one
//	remove: set the directory aside, if it is as it was left; then remove it
//
// An imprint is a hash over all entries: once with what stat tells, ctime included, which nobody can set back, and once with their contents.
// The second is only taken where the first differs, so a check of an untouched directory reads no file.
//
// The record of a directory is a file in the state directory, outside of what an archive, or who owns it, can reach. It names inodes, so that
// nothing is removed that was not made here. What a killed run has left is removed by the next Apply or Forget.
//
// The package owns no goroutine.
package archive
