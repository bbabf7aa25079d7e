// Package jobs decides when a scheduled job runs, and when a run of a job is over. Its functions are pure: they get what is stored and the
// time; they do no I/O and own no goroutine.
//
// Schedule says which run begins:
//
//	due      = the last time of the schedule that has come since the one dealt with last. Earlier ones were missed: one stands for all of them
//	dealt with is remembered by the scheduled time, in the status and by the runs themselves, whose names are made of it. So another leader
//	           begins none a second time, whichever of the two the last one has written
//	too late = after startingDeadline; with missedRun Skip, when it could not begin at its time
//	Forbid   leaves a run out while another one is not over; Replace ends that one, and begins when it is over; Allow begins beside it
//	an edit of the schedule, and a suspension, begin anew: nothing of before is made up for
//
// Run says how many instances of a run are wanted, and what became of it:
//
//	counted  = instances that have ended, each once: its UID stays in the status until it is gone, and it goes only when that was stored
//	wanted   = parallelism, but not more than completions that are missing; after a failure no new one until a pause is over, which doubles
//	over     = enough have ended well; or too many have failed, or the deadline has passed: then what runs is ended first
//
// Invariants, tried in sim_test.go:
//
//  1. No scheduled time begins twice, none before it has come or after its deadline, and none while suspended.
//  2. With Forbid and Replace there are never two runs that are not over.
//  3. In a world without outages every scheduled time is begun, or left out with a reason.
//  4. The counts are what has happened, however often a decision is lost or made twice.
//  5. A run has one result, which stays; it is over only when nothing of it runs.
//  6. In a quiet world every run gets over, and is deleted.
package jobs
