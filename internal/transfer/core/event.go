package core

import (
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Event is what a Machine is fed with.
type Event interface{ event() }

// Began begins: what is held is looked through, and the state that was accepted last is handed over, or fetched.
type Began struct{}

// Trusted says which chain is believed from now on. It is fed too when there are no later trust documents: then it is the same.
type Trusted struct{ Chain *trust.Chain }

// HeadCame is a head from anybody. The machine keeps the slice.
type HeadCame struct{ Signed []byte }

// StatementCame is a layer statement from anybody. The machine keeps the slice.
type StatementCame struct{ Signed []byte }

// Stored ends an effect that stores something. Staged is for Begin alone.
type Stored struct {
	Staged Staged
	Err    error
}

// PartCame is one part of the answer to a Sync.
type PartCame struct {
	ID    uint64
	Part  wire.SyncPart
	Aside bool // it is not of the source that was asked, but of another host, or of a place: the source is not to blame
}

// NodesCame is the answer to a Nodes.
type NodesCame struct {
	ID    uint64
	Reply wire.NodesReply
	Aside bool // as that of PartCame
}

// Failed ends a Sync or a Nodes that has no answer, or not all of it.
type Failed struct {
	ID      uint64
	Err     error
	After   time.Duration // not to be tried again before; 0 is as the machine thinks
	Garbled bool          // something came that cannot be read
}

// Garbled says that something came unasked that cannot be read.
type Garbled struct{ Err error }

// Judged ends an Activate.
type Judged struct {
	Verdict wire.Verdict
	Err     error // the host could not take it now
}

// Ticked says that the time of Wake has come.
type Ticked struct{}

// Reread says that what is held has been damaged: all of it is verified anew, and what is not as it should be is fetched again.
type Reread struct{}

// SourcesKnown says how many sources there are to ask now, at least one, of which the first are those that there were.
type SourcesKnown struct{ Count int }

func (Began) event()         {}
func (Trusted) event()       {}
func (HeadCame) event()      {}
func (StatementCame) event() {}
func (Stored) event()        {}
func (PartCame) event()      {}
func (NodesCame) event()     {}
func (Failed) event()        {}
func (Garbled) event()       {}
func (Judged) event()        {}
func (Ticked) event()        {}
func (Reread) event()        {}
func (SourcesKnown) event()  {}

// Effect is what is to be done, in the order in which Step returns it. Of one Step at most the last effect is answered with an event.
// Effects that store something, and Activate, are answered before any other event is fed; when one of those that are not the last
// fails, the rest is left out and the answer is Stored with the error.
type Effect interface{ effect() }

// Accept makes a mark durable. Answered by Stored.
type Accept struct {
	Mark   catalog.Mark
	Signed []byte
}

// Prolong makes a later expiry of the mark durable. It is not answered, and its failure means nothing but that it was not done.
type Prolong struct {
	Mark   catalog.Mark
	Signed []byte
}

// Remember makes a verdict durable that the host is not asked again for. Not answered.
type Remember struct{ Verdict wire.Verdict }

// AcceptStatements makes what is kept of statements durable: none of their marks goes back. Answered by Stored.
type AcceptStatements struct{ Statements []Statement }

// RememberStatements does too, and its failure means nothing but that the same is found out again. Not answered.
type RememberStatements struct{ Statements []Statement }

// Count stores the counters. Not answered.
type Count struct{ Refused wire.Refused }

// PutList stores a list. Answered by Stored.
type PutList struct{ Encoded []byte }

// Begin opens the stage of a fetch. Answered by Stored.
type Begin struct{ Fetch Fetch }

// Append adds to the stage. Not answered.
type Append struct{ Changes []wire.Change }

// Settle wants to know when all is staged that was appended. Answered by Stored.
type Settle struct{}

// Drop throws the stage away. Not answered.
type Drop struct{}

// Commit makes a layer of the stage. Only the length and the root of the target are looked at. Answered by Stored.
type Commit struct{ Target catalog.Trie }

// Activate hands a state to the host. Answered by Judged.
type Activate struct{ State State }

// Sync asks a source. Answered, at any time later, by PartCame for each part until the last one, or Failed.
type Sync struct {
	ID      uint64
	Source  int
	Request wire.SyncRequest
}

// Nodes asks a source. Answered by NodesCame or Failed.
type Nodes struct {
	ID      uint64
	Source  int
	Request wire.NodesRequest
}

// Cancel ends a Sync or a Nodes. Nothing needs to come for it any more.
type Cancel struct{ ID uint64 }

// AskTrust asks for later trust documents. Answered, at any time later, by Trusted.
type AskTrust struct{}

// Doubt is a kind of what came and is not believed.
type Doubt string

// The kinds.
const (
	DoubtOld          Doubt = "a head older than the one that was accepted"
	DoubtNode         Doubt = "a head for another node"
	DoubtCluster      Doubt = "a head of another cluster"
	DoubtKey          Doubt = "a head signed with a key that may not sign heads"
	DoubtEpoch        Doubt = "a head of an epoch that the trust documents do not know"
	DoubtMalformed    Doubt = "a head that cannot be read"
	DoubtEquivocation Doubt = "a head that contradicts another one of its version"
	DoubtContent      Doubt = "content that was not signed"
	DoubtStatement    Doubt = "a layer statement that does not count here"
)

// Disbelieve says what is not believed, each time that it comes. It is counted already. Not answered.
type Disbelieve struct {
	Doubt Doubt
	Err   error
}

// Tell says that the report has changed.
type Tell struct{}

// Alarm is for a person to see.
type Alarm struct {
	Err      error
	Evidence [][]byte // the signed heads, or statements, that it is about
}

func (Accept) effect()             {}
func (Prolong) effect()            {}
func (Remember) effect()           {}
func (AcceptStatements) effect()   {}
func (RememberStatements) effect() {}
func (Count) effect()              {}
func (PutList) effect()            {}
func (Begin) effect()              {}
func (Append) effect()             {}
func (Settle) effect()             {}
func (Drop) effect()               {}
func (Commit) effect()             {}
func (Activate) effect()           {}
func (Sync) effect()               {}
func (Nodes) effect()              {}
func (Cancel) effect()             {}
func (AskTrust) effect()           {}
func (Disbelieve) effect()         {}
func (Tell) effect()               {}
func (Alarm) effect()              {}
