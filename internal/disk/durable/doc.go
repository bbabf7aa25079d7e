// Package durable is the one way to change files and directories of a host: whole, durable, and only what the caller has seen.
//
// A file is written in this order, so that at every system call it is either the old file or the new one, and never
// readable by more than it should be:
//
//	open the directory
//	create .tako.NAME.RANDOM beside the file, exclusively, mode 0600
//	write -> owner -> attributes of the old file, and those that are declared -> mode
//	run the check on it -> fsync -> look at the old file again
//	nothing to back up: rename (without replacing when it is new)
//	a backup is wanted: exchange the two -> back up the old file under the temporary's name -> remove it
//	fsync the directory, once for all files of a batch
//
// Directories and symlinks, too, are made under a temporary name. What a killed run leaves, SweepTemporaries finds by that
// name.
//
// Goroutines: WriteAll owns up to syncWorkers for the time of the call. Nothing else is started.
package durable
