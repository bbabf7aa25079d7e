// Package sources keeps applied what Git repositories declare: one loop for each Source.
//
//	when to look   package schedule decides; watches, requests, calls of forges and the clock only wake it
//	look           list the refs -> pick a commit -> (nothing new: that was all) -> fetch it -> verify -> render
//	               -> plan (a dry run of all that is not known to be there) -> apply -> delete what is declared no more
//	guard          what was applied is watched: what others change in it is drift, and is put back or told, without the repository
//	health, hosts  whether what was applied is well, and on how many hosts it is
//	remove         a Source that is deleted takes with it what it has applied, where it says so
//	help           rights, and what Sources name, are watched: what has failed is tried again when they change
//	report         a forge is told what became of a commit, apart from the loop
//	hook           a call of a forge, signed, makes the loop look again
//
// The plan is that of the command line, so that a Source refuses what `tako apply` refuses, in the same words and with the same
// places. Everything is asked and written as the Source's own user, with the rights that somebody has given to that one; only the
// Source itself, what it names, and in which namespaces it has been are read with the server's. What a Source has applied is a set
// (package prune), so that the objects themselves are the inventory: nothing can be lost beside them, and a server that is killed in the
// middle of an apply goes on where it finds things.
//
// What is known to be as declared is not asked about: a loop knows the digest of what it has applied. One that has just begun finds in
// the annotation of each object the digest of what was declared, and that of the fields that the Source came to own with it. If it still owns
// these, and the annotation itself, nobody has changed what is declared: a server that starts with ten thousand objects lists
// them, and asks nothing more. Of each object a loop keeps its origin, two digests and how it is; and what was parsed of the newest commit.
//
// A commit with a mistake changes nothing: all of it is planned before the first write. What is applied then stays until there is
// a commit that can be.
//
// Goroutines: Run owns those that watch Sources, hosts, rights and what Sources name, and one for each Source, which owns one for its reports and one for each kind
// that it guards; a look owns those that plan and write, and waits for them. All end before Run returns.
package sources
