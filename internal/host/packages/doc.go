// Package packages carries out Debian packages: installed, at one version, or absent.
//
// A check reads dpkg's own database, runs nothing, and costs one stat while that has not changed. Applying is one
// transaction of apt-get for all plans:
//
//	somebody holds a lock                  -> PackageLock for all, with the holder's name; nothing waits
//	a plan is out of date                  -> ConcurrentEdit for that one
//	dpkg was interrupted                   -> dpkg --configure -a first
//	a package or version is in no list     -> apt-get update, at most once in a while; still none: an error for that one
//	simulate; it fails, or would remove what is not declared absent
//	                                       -> halve the set until the culprits are alone: an error for each
//	apt-get install NAME NAME=VERSION NAME-   for the rest
//	read the database again                -> each package's own result
//	a package's own scripts failed         -> dpkg --configure -a, and what is still not done again in halves
//
// Files of configuration that somebody has changed stay as they are (confold, confdef). Removing never purges.
//
// A service that was not running before a transaction is not started by it, because its configuration may not be in place
// yet; the rule that says so to Debian's tools lives in a mount namespace of the transaction and ends with it (guard.sh).
//
// A transaction outlives the agent: apt-get has a session of its own and writes to a file in memory, not to a pipe that
// breaks. When the context ends, Apply returns and apt-get goes on. The next attempt is deferred while it holds the locks,
// and then finds what it did. Only after transactionMax it is stopped.
//
// The package owns no goroutine.
package packages
