// Package assign decides which revision of which config is on which node. It is a pure function of what is there: it does no
// I/O, reads no clock, owns no goroutine, and keeps nothing between two decisions.
//
//	for every node, alone:
//	  configs that select it have a row there (what is assigned now), or want one (their newest, or what their rollout lets go on)
//	  1. in the end: as if each config that is there went on now to what it wants
//	     what is wanted and collides with a row that stays is kept out; its config keeps the row that it has; repeat
//	     what collides with both the row and the next row of another config is kept out; repeat
//	     of two rows that collide, one of a config that is there goes before one that is new, and of two that are there the older;
//	     of two that are new neither goes; repeat
//	  2. now: the same of what is let go on, with what was kept out; what collides with a row that is still there waits
//	  3. above catalog.LayersMax, what is new there is kept out: the lowest priority first, of equal ones the youngest
//	  4. configs of which each has what another one's next row collides with wait for each other, and go on together. The oldest of
//	     them chooses the node: the others are refused there until it is let go on, and then they are the ones that are waited for
//	for every config: which others it collides with, about what, and on which nodes; both of a pair are told
//
// Two rows collide when they have equal priority and want different things of one claim, whatever a third row of higher priority
// makes of that claim: otherwise taking away the third would leave a node with two rows that cannot be there together.
// A priority is a part of the row: a new one goes the way of a new revision. So is the root of the layer: two configs that take one value
// from one place want different things while one of them has the old value and the other the new one, as a host sees it too.
//
// Contents that have changed since are known only while somebody keeps them. Where they are not, equal references are equal contents,
// and other ones are different; but two rows that are on a node together stay there, because they have been the same once.
//
// Invariants, tried in model_test.go:
//
//  1. No two rows on one node collide.
//  2. A config that is on a node and still selects it stays there, with the row that it has or the one that was let go on.
//  3. The order of nodes, configs and rows in the view means nothing, and deciding again about the result ends.
//  4. Who is kept out is told why, and the one in the way is told too.
//  5. Nothing is told of the content of a private file, nor of one whose content is from elsewhere.
package assign
