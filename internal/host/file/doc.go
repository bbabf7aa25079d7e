// Package file carries out what stands at a path: the resource types file, directory, symlink and sudoers, which is a file
// with fixed owner, mode and check. They are one package and one Type because they share the claim kind path: each may find
// one of the others in its way, and restoring what was there before may turn one into another.
//
// A resource is a path and the thing that shall stand there: type, mode, owner and group, a file's digest and size, a
// symlink's target, and the attributes that it declares: access list, label, extended attributes. It keeps no content: that
// is read again when it is written. It remembers the signature of what it last found, or left, to be as declared.
//
//	check:  sort by directory, open each directory once
//	        look (one statx); shallow, and it is what is remembered: recognised
//	        otherwise compare type, the content's hash or the target, mode, owner, attributes
//	apply:  only owner, mode, attributes differ -> change these
//	        a file's content                    -> durable.WriteAll, one batch: check command, backup, rename, fsync
//	        a directory or symlink, another type -> one by one; what is in the way is backed up and removed first
//	remove: delete  -> back up what is not as declared, remove
//	        restore -> the original is a thing too: compare and apply with it
//
// A signature is trusted without a look at the content only when it was taken after the tick of the kernel's clock in which
// the file changed: within one tick two changes may leave the same signature (see looker.now).
//
// Goroutines: durable.WriteAll owns some for the time of Apply; nothing else is started.
package file
