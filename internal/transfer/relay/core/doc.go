// Package core is what a relay decides: which agents are here and what its server is still to be told of them (Roster), what of the
// answers that it has kept is let go (Shelf), and under which name an answer is kept, which says to whom it may be given (names.go). It does
// no I/O, owns no goroutine, and is told the time.
//
// All that goes up and down the one stream is state. A Roster holds of each agent the newest report and no more, and says it anew over each
// stream; of what comes down it holds the newest head and answer of each node.
package core
