// Package core decides which other hosts a host asks while it reaches no server, and when. It does no I/O and reads no clock.
//
//	no server for a minute -> a round: the next of the list in turn, and two at random -> 10 to 30 s -> another round
//	a server answers       -> none, until there was no server for a minute once more
//
// The one in turn is for what is kept for this host by the first of its list; the two at random are how a word goes from host to host in
// as many rounds as the logarithm of their number.
//
// Who cannot be reached rests for a while that doubles. When that is so of all, it is this host that is cut off: one of them is asked all the same, and
// as soon as one answers the others do not rest any more. Who has sent what is not signed, or not what was asked for, rests for long,
// whatever it says in between.
package core
