// Package spare gives memory of the process back to the kernel when it is of no use any more. Go collects a heap when it has grown by a share
// of what lives, so a server that has nothing to do keeps for minutes what its last busy moment left, and after that half as much again as it
// needs. To collect more often always would cost the busy moments; while nothing happens it costs nobody anything.
//
//	every few seconds:  was the process idle since the last look?  would a collection give back a part that counts?
//	both            ->  collect, give back; then none for two hundred times as long as that took of a processor
//
// step decides, and does nothing. Run owns the one goroutine that looks; it ends with its context.
package spare
