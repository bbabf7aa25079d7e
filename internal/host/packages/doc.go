// Package packages carries out packages: installed, at one version, within a range or the newest; held; absent or purged. It knows no
// package manager: that is a Backend, in a folder of its own below this one.
//
// A check reads the package manager's own database, and costs one stat while that has not changed. Where the newest of something is
// wanted it also asks what the lists on the host have, again when these have changed. Applying is one transaction for all plans:
//
//	somebody holds a lock                  -> PackageLock for all, with the holder's name; nothing waits
//	a plan is out of date                  -> ConcurrentEdit for that one
//	somebody was cut off half-way          -> repair first
//	a package or version is in no list     -> fetch lists, at most once in a while; still none: an error for that one
//	take away marks that are in the way, note answers; what does not succeed is an error for that one
//	simulate; it fails, or would remove what is not declared absent, or change what is held
//	                                       -> halve the set until the culprits are alone: an error for each
//	install and remove the rest
//	read the database again                -> each package's own result
//	a package's own scripts failed         -> repair, and what is still not done again in halves
//	purge, hold
//
// Packages that are to be installed in different ways (recommends, conffiles) are transactions of their own.
//
// What no list has is told by the check from then on, until other lists have come or it is time to fetch them again: an error of a check
// is looked at again as soon as somebody has fetched new lists, while one of an attempt waits for its turn.
//
// The package owns no goroutine.
package packages
