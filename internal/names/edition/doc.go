// Package edition is what goes from the server that leads to all who answer for names: the names of a cluster as rows, of which each state is an
// edition, with a mark and a root over all rows, signed as heads are. So it may come from anybody: a relay, another server, a disk.
//
//	leader   Publish(rows, keys that are gone) -> root of all rows -> signed edition
//	others   After(mark that somebody has)     -> the rows between that and the newest edition, or all, as parts; the edition with the last
//	         Take(part)                        -> with the last part: verify the signature, apply, compare the root; all of it, or nothing
//
// Of two editions the later one stays, whoever brings which one; an edition does not expire, because names are answered while no server is there.
// A Store keeps what has changed lately, within a bound, for those who have an earlier edition.
//
// Rows are kept as they came, so that what a later version says in them stays in the root. The root is over 256 buckets, by the first byte of
// the hash of a row's key: a change costs those that it touches.
//
// The package starts no goroutine of its own; Feed and Keep block until their context ends.
package edition
