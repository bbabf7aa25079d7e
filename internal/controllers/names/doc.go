// Package names says what there is by name: it makes editions of the names (package edition) of what is declared and of what hosts report.
//
//	Namespaces of workloads, Workloads, Revisions, Instances, Nodes (watches)  -+
//	presence: who is there, and what hosts report                              -+-> a round, some milliseconds after the first of a burst
//
//	for each instance of which something is new:  is it ready -> its row, or none
//	rows that differ from the newest edition      -> another edition, signed; at most ten in a second
//
// An instance has a row while its host says that it is ready, nobody has asked it to end, and its host is there, or silent: that an agent does not
// answer says nothing of what it runs. A host that was not heard yet by this leader keeps the rows that it had in the last edition, whoever made that; where
// there is none nothing is said until all hosts were heard, or had the time to be. What is here of that edition may be older than what others were told last:
// so each leader makes an edition of its own, whether it says anything else or not.
//
// Run owns a goroutine that decides and one for each kind that is watched; all end with its context.
package names
