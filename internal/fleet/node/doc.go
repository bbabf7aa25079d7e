// Package node decides what is to be said of a node: whether its host and its agent are there, whether its signed state has expired,
// whether somebody else has its identity, and whether it went back in time. It does no I/O, reads no clock and owns no goroutine.
//
// A Life is what the leader remembers of one node. It is told what happens, and Decide says what follows:
//
//	Opened, Closed, Asked, Heard -> Life;  Decide(Life, View, now) -> Life, Decision
//
//	not heard since the leader began   Unheard for 90 s: nothing changes. Then it is gone
//	connection ended by TCP keepalive  gone at once: no answer of the host's kernel for 12 s
//	connection ended otherwise         gone after 10 s, unless it is back: agents restart, and watches end by age
//	two heartbeats unanswered          silent: the host answers, the agent does not. This cordons, and never replaces
//	back                               at once; after several losses in ten minutes only when it has stayed for a while, which doubles
//	session that should be over        cloned: two that have one identity take turns. Until nothing of the kind was seen for 10 minutes
//	applied mark below the highest     rollback suspected, until it has caught up
//	head expired                       stale
//
// An agent numbers its starts durably, and its reports within a session. So a report that comes late, doubled or out of order, and an old
// connection that is not closed yet, are known from a second agent: they are over within seconds, and a second agent goes on.
//
// One connection counts: the first; another once a report has come over it that was made after all that were heard; the newest that is left when the one
// that counts has ended. A relay or server that stood still, or was cut off, tells afterwards of connections that its hosts have left, as they were or as
// if they had just begun, with reports that are older than what was heard since. Those are past: nothing follows from them.
//
// Invariants, tried in sim_test.go:
//
//  1. While a node is unheard its conditions stay what they were.
//  2. One agent, however often it restarts and however late, often and in whatever order its reports arrive, is not called cloned;
//     two are, within a few heartbeats.
//  3. What is stored changes only when a status or a reason does, and at most a few times in ten minutes, however a node flaps.
//  4. A node that is there and answers is Ready in the end, and nothing is written any more.
//  5. The highest mark never goes back.
package node
