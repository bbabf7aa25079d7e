// Package disk is the one way to touch files and directories of a host, and the one inotify descriptor of the agent.
//
// A Root is where absolute paths begin: the host's own root or a sandbox directory that nothing leaves. Root.Dir opens a
// directory: with one openat2 when no symlink is on the way, otherwise component by component, following a symlink only
// where nobody but root and the agent's user could have planted it. Everything else works relative to the opened
// directory, never on a path that somebody may redirect in between.
//
// A file is written in this order, so that at every system call it is either the old file or the new one, and never
// readable by more than it should be:
//
//	open the directory
//	create .tako.NAME.RANDOM beside the file, exclusively, mode 0600
//	write -> owner -> attributes of the old file -> mode
//	run the check on it -> back up the old content -> fsync
//	look at the old file again -> rename (without replacing when it is new)
//	fsync the directory, once for all files of a batch
//
// Watcher turns inotify events into marks on the caller's IDs. Per directory path it keeps one way: the watches that are
// needed to notice every change on it (the directory, its parent, and every directory that holds a symlink on the way; or
// the nearest directory that exists). When a way breaks it is walked again until the watches it needs are those it has,
// and only then its IDs are marked; so whoever looks after a mark misses nothing.
//
// Writers says who wrote a file, where the kernel tells.
//
// Goroutines: Watcher.Run and Writers.Run block and read in the caller's goroutine. Root.WriteAll owns up to syncWorkers
// goroutines for the time of the call. Nothing else is started.
package disk
