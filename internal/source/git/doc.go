// Package git reads remote Git repositories with the git program as transport: which refs there are, one commit, its tree
// and its files. There is no working tree, ever, and no history: a commit is fetched alone (depth 1) into a bare cache that
// may be thrown away at any moment.
//
// Threat model. Whoever can write to a repository, and whoever stands between it and us, decides every byte that git reads
// here. Whoever declares a source decides the address. Neither may run a program, read a file of this machine, reach
// another protocol, see the credentials of somebody else, or take more than a stated amount of time, memory and disk. So:
//
//   - The address is parsed here and passed by configuration, never as an argument; https, ssh and, where allowed, http and
//     file are the only protocols that git may speak, and it follows no redirect.
//   - git sees no configuration of the system, of a user or of this process's environment. Its whole configuration is an
//     anonymous file in memory (memfd) that it inherits. HTTP credentials are in that file, bound to scheme, host and port.
//     ssh asks an agent of ours, over a socket in a private directory; the key stays in the memory of this process. ssh knows
//     the host keys that it is given and no others, and reads no configuration.
//   - Nothing is checked out. Hooks, filters, attributes, git's own submodule commands, replacements and lazy fetching are
//     off. What comes is checked by git (fsck) before it is kept, and content is checked against its id again
//     when it is read.
//   - Each command has limits on processor time, memory and file size that are set before git starts, a deadline, a process
//     group that is killed as a whole, and a bound on what it may print.
//   - What git says on its way out is freed of anything secret before it becomes part of an error.
//
// A repository below Options.LocalDirs (file://) has links, alternates and a configuration that git reads. It is read with the rights of
// whom it belongs to where that is not the server's user, or others write there; a server that is not root cannot do that, and refuses
// the links and alternates that it sees.
//
// Submodules, where they are asked for, are more commits in the same cache, each fetched as the first one is, from the same server and
// with the same credentials; their files are grafted into the list of files. What .gitmodules says besides path and url has no part.
//
// Algorithm of Repository.Fetch:
//
//	complete before, with these paths?  -> answer from the cache, no network
//	many packs, or damage?              -> throw the cache away
//	fetch by id; the server refuses?    -> fetch by name
//	only below paths?                   -> one more fetch, of the files there that are missing
//	still odd, and not the remote's doing? -> throw the cache away, once more from the beginning
//	name the commit complete
//	submodules asked for?               -> for each below the paths, by its commit: the same; then theirs, breadth first
//
// Goroutines: those of a command (os/exec copies its output) end with the command; those of the ssh agent end before the
// call that started it returns. Nothing runs between calls.
package git
