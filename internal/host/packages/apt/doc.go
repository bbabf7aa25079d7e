// Package apt is the back end of packages for Debian and its relatives: dpkg's database, apt-get, apt-mark and debconf.
//
// What is installed is read from dpkg's own files, without running anything; while these have not changed that is one stat. What the
// lists have is asked of apt-cache, which is told to keep no cache and so writes nothing.
//
// Configuration files that somebody has changed stay as they are (confold, confdef) unless it is declared otherwise. A removal does not
// purge; what a removed package has left is purged by dpkg in a step of its own.
//
// A service that was not running before a transaction is not started by it, because its configuration may not be in place yet; the rule
// that says so to Debian's tools lives in a mount namespace of the transaction and ends with it (guard.sh).
//
// A transaction outlives the agent: apt-get has a session of its own and writes to a file in memory, not to a pipe that breaks. When the
// context ends, Change returns and apt-get goes on. The next attempt is deferred while it holds the locks, and then finds what it did.
// Only after transactionMax it is stopped.
//
// The package owns no goroutine.
package apt
