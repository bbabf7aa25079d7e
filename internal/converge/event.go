package converge

import (
	"time"

	"tako.dev/tako/internal/reason"
)

// Depth is how hard a check looks. The engine only takes the larger of two; what they mean is the driver's.
type Depth uint8

// The depths that the engine itself asks for.
const (
	Shallow Depth = iota
	Deep
)

// Event is what happened: Touched, Examine, Done, Tick, Unheld or Release.
type Event interface{ isEvent() }

// Touched says that something outside may have changed these vertices: look, shallowly, as soon as their order allows.
type Touched struct{ IDs []ID }

// Examine asks for a check without suspicion: a person's command or the audit.
type Examine struct {
	IDs   []ID // nil means all
	Depth Depth
}

// Done reports an operation; Results[i] belongs to Op.IDs[i].
type Done struct {
	Token   Token
	Results []Result
}

// Tick says that time has passed.
type Tick struct{}

// Unheld says that nobody holds these vertices any more: what was deferred because somebody did is tried now.
type Unheld struct{ IDs []ID }

// Release lets vertices go on that wait for their window. Windows do not count for them until nothing is due any more.
type Release struct {
	IDs []ID // nil means all, and what follows from them
}

func (Touched) isEvent() {}
func (Examine) isEvent() {}
func (Done) isEvent()    {}
func (Tick) isEvent()    {}
func (Unheld) isEvent()  {}
func (Release) isEvent() {}

// Result is what an operation found or did for one vertex.
type Result struct {
	Err        *reason.Error // nil is success
	InSync     bool          // check: it is as desired
	Recognised bool          // check: it is what we left, nothing was looked at further
	Changed    bool          // apply, refresh: something changed, also when Err is set
	Owed       bool          // refresh with Op.Shut: nobody else has done it, so it is still to be done
}

// Verb is what an operation does.
type Verb uint8

// The verbs.
const (
	Check   Verb = iota // observe and plan
	Apply               // carry out the plan of the last Check of these vertices
	Refresh             // act on the pending notifications up to Op.Upto
)

func (v Verb) String() string { return [...]string{"check", "apply", "refresh"}[v] }

// Token names an operation in flight.
type Token uint64

// Op is an operation to start. Every Op is answered by one Done with its Token.
type Op struct {
	Token Token
	Verb  Verb
	Lane  string
	IDs   []ID
	Depth Depth    // for Check
	Upto  []uint64 // for Refresh: the last notification that each vertex's refresh covers
	Shut  []bool   // for Refresh: it is outside of the vertex's window. Only find out whether somebody else has done it
}

// RecordKind says what a Record asks the driver to remember.
type RecordKind uint8

// The record kinds.
const (
	NotificationAdded   RecordKind = iota // Target must be refreshed because of Source; must be durable before Start
	NotificationCleared                   // the notification Seq of Target is done with or void
	BudgetSpent                           // Target's attempts and hold-off, so that a restart does not forget them
	BudgetCleared                         // Target has none any more
)

// Record is something to remember over a restart.
type Record struct {
	Kind   RecordKind
	Target Key
	Source Key    // NotificationAdded
	Cause  Digest // NotificationAdded: what is desired of Source
	Seq    uint64 // NotificationAdded, NotificationCleared
	Budget Budget // BudgetSpent
}

// Budget is what a vertex has used up of its tries.
type Budget struct {
	Digest   Digest        // of the desire that it was spent on; another desire starts afresh
	Attempts int           // failed attempts in a row
	Holds    int           // hold-offs in a row, because somebody else keeps changing it back
	Wait     time.Duration // until the next attempt, when it was recorded
	Failure  *reason.Error // what the last attempt came to; nil where there are only hold-offs
	Since    time.Time     // since when it has failed so
}

// Cause is why a vertex was looked at.
type Cause uint8

// The causes, weakest first: a vertex that is dirty for two of them keeps the stronger.
const (
	CauseExamined Cause = iota // a person or the audit asked; no event had told
	CauseOrder                 // something that it comes after has changed
	CauseRetry                 // its back-off or hold-off ended
	CauseTouched               // an event
	CauseDesired               // it is new or its desire has changed
)

// Status is what is known of a vertex.
type Status struct {
	Outcome   reason.Outcome
	Detail    reason.Detail
	Err       *reason.Error // why it is not converged; nil where the outcome says it all
	BlockedBy ID            // with Blocked: the required vertex that is not converged; otherwise None
	Since     time.Time     // when it got this outcome
	Attempts  int           // failed attempts in a row
	RetryAt   time.Time     // when it is tried again; zero where it is not waiting
}

// Report says that a vertex's status was written: its outcome changed, or it was repaired or failed once more.
type Report struct {
	ID    ID
	Cause Cause
	Status
}

// Effects is what a Step asks for.
type Effects struct {
	Persist []Record // durable before any of Start begins, when one of them is NotificationAdded
	Start   []Op
	Reports []Report
	Wake    time.Duration // send Tick after this time at the latest; 0 means that only events matter
	Opens   time.Time     // send Tick when clocks show this, or are set; zero where nothing waits for a window that opens again
}
