// Package watch tells what the kernel knows of changes to files: that something changed (Watcher, over the one inotify
// descriptor of the agent) and, where it can be had, who did it (Writers, over fanotify); and that the kernel's own lists of mounts and swaps
// changed (Polled, over epoll).
//
// A Watcher turns inotify events into marks on the caller's IDs. Per directory path it keeps one way: the watches that are
// needed to notice every change on it (the directory, its parent, and every directory that holds a symlink on the way; or
// the nearest directory that exists). When a way breaks it is walked again until the watches it needs are those it has,
// and only then its IDs are marked; so whoever looks after a mark misses nothing.
//
// Goroutines: Watcher.Run, Writers.Run and Polled.Run block and read in the caller's goroutine. Nothing is started.
package watch
