// Package etcd runs one member of etcd in this process, or connects to a cluster that others run.
//
// The member listens on a unix socket that only its user can reach, for watches and leases; an attached client reads and writes by
// calls within the process (attach.go). The client of etcd that needs no socket at all is not used: it has no endpoints, from which
// the API library learns what etcd can do, and it stops for ever after hundreds of cancelled watches (etcd-io/etcd issue 18879).
//
// etcd ends its process when it cannot write. So a disk that gets full is met in three places. A guard (guard.go) is before each
// write of an attached client: it refuses what would leave less free than a floor (room.go). What passes it, and what others take
// from the disk in the same moment, is met by a reserve: blocks of the disk that the database's file has already (reserve.go), more
// than what may be on its way; etcd does that for its log itself. If it could not, since the disk was full as the log began a new
// segment, Maintain sees that from the files (segments.go) and opens the member again when there is room. Whatever still makes etcd
// end itself stops the goroutine that says so and closes Ended, so that the process can end with a reason (log.go).
//
// etcd owns the goroutines of a member; they end with Close, unless etcd has ended itself.
package etcd
