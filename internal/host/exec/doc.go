// Package exec carries out commands: the resource type exec.
//
// A command has something to do when all that is declared about it says so, looked at in this order:
//
//	refreshOnly  only a notification has it run
//	creates      nothing is at the path
//	unless       this guard does not succeed
//	onlyIf       this guard does
//	none of these: it has not run with this content yet, says the record in STATE/exec
//
// A guard is a program, and a check may write nothing. So a check runs it sealed (package command). What a sealed guard says is
// not always what it would say: it may have wanted to write, or the network. Where that is seen, or it cannot be sealed, the plan is
// Unknown, and Apply asks the guard for real before the command runs. That nothing is to be done is believed only after the guard
// has said the same for real, once in the life of the agent: otherwise a guard that fails because it is sealed would keep its command
// from ever running. A person's preview has no such life, and takes the guard's word.
//
// What runs in its windows only may not be applied before, so Apply cannot ask. There the agent's own check asks the guard for real where
// its sealed word is not good: the window is for the command, and a guard changes nothing. Otherwise a host on which nothing is to be done
// would wait for its window.
//
// A guard of test(1) is about paths, and these are watched: a request such as /run/reboot-required is seen when it is made.
//
//	check:    conditions, guards sealed                   -> nothing | run | unknown
//	apply:    conditions, guards for real -> run -> is there what it creates? -> record it, durably
//	refresh:  conditions, guards for real -> it has run since the change: done | run -> record it
//
// The record has the digest of what was run, and when that began. A run that is killed leaves none, so it is repeated: commands must
// bear that. A notification is satisfied by a run that began later than its cause.
//
// A command that fails has changed something, as far as anybody knows, and will be tried again, so whom it notifies hears of it when it
// has succeeded; or when its conditions say afterwards that nothing is left to do, because then nobody would try again.
//
// The package owns no goroutine.
package exec
