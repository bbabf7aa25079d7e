// Package fit decides whether one node takes one instance, and says in words with numbers why it does not. The scheduler asks it of all
// nodes, and the agent of its own when an instance arrives: the code is the same, so the two disagree only about what is, never about what
// follows from it. It does no I/O, reads no clock and owns no goroutine.
//
//	Compile(template) -> Request          what an instance needs: the sum over its tasks
//	Check(node, left, request) -> reasons why not, each with what is needed, what there is, and what would make it fit
//	Ledger                                who holds what on one node: amounts, pieces of hardware by name, ports
//
// An instance holds what it has until its processes have ended, whatever is declared by then. A node that becomes smaller than what is held
// has less than nothing left: what runs stays, and nothing comes.
package fit
