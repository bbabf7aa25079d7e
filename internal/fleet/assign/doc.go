// Package assign decides which revision of which config is on which node. It is a pure function of what is there: it does no
// I/O, reads no clock, owns no goroutine, and keeps nothing between two decisions.
//
//	for every node, alone:
//	  configs that select it have a row there (what is assigned now), or want one (their newest, or what their rollout lets go on)
//	  1. what is wanted and collides with a row that stays is kept out; its config keeps the row that it has; repeat
//	  2. of two rows that would both go there now and collide, neither goes; repeat from 1
//	  3. of a config that is new on the node and one that is to come there later, and collide, neither goes
//	  4. above catalog.LayersMax, what is new there is kept out: the lowest priority first, of equal ones the youngest
//	for every config: which others it collides with, about what, and on which nodes; both of a pair are told
//
// Two rows collide when they have equal priority and want different things of one claim, whatever a third row of higher priority
// makes of that claim: otherwise taking away the third would leave a node with two rows that cannot be there together.
// A priority is a part of the row: a new one goes the way of a new revision.
//
// Invariants, tried in model_test.go:
//
//  1. No two rows on one node collide.
//  2. A config that is on a node and still selects it stays there, with the row that it has or the one that was let go on.
//  3. The order of nodes, configs and rows in the view means nothing, and deciding again about the result changes nothing.
//  4. Who is kept out is told why, and the one in the way is told too.
//  5. Nothing is told of the content of a private file.
package assign
