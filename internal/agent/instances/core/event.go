package core

import (
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/scheduler/fit"
)

// Now is the time of a step.
type Now struct {
	Boot string     // the boot that moments are of
	At   run.Moment // of the boot clock
	Wall time.Time  // for people: nothing is decided by it
	// Heard is when the newest report was made of which it is known that the server which leads has heard it; zero: of none since the agent was
	// started.
	Heard run.Moment
}

func (n Now) life() life.Now { return life.Now{Boot: n.Boot, At: n.At} }

// Event is something that has happened; nil is time alone.
type Event interface{ isEvent() }

// Node is what the host is and has. Architecture, labels and taints are the scheduler's: who sent an instance here has looked at them.
type Node struct {
	Fit      fit.Node
	Runtimes []workload.Runtime // that it has, by name
}

// Restored are the records that were kept. It comes before everything but Node, once.
type Restored struct{ Records []Record }

// Desired are all instances that the host is to have.
type Desired struct{ Instances []Wanted }

// Wanted is one of them.
type Wanted struct {
	catalog.Instance
	// Template is what it runs; nil where that cannot be read now, and Unread says why.
	Template *workload.Template
	Unread   *reason.Error
}

// Found is every attempt that a runtime has.
type Found struct {
	Runtime  workload.Runtime
	Attempts []run.Status
}

// Changed is an attempt as its runtime tells of it.
type Changed struct {
	Runtime workload.Runtime
	Status  run.Status
}

// NotStarted says that an attempt was not started, and does not run: the answer to the Start of that number.
type NotStarted struct {
	ID     run.ID
	Number uint32
	Err    *reason.Error
}

// Awaited says what the Start of that number waits for. It goes on by itself.
type Awaited struct {
	ID     run.ID
	Number uint32
	Err    *reason.Error
}

// Bound is the answer to Bind: the numbers of all ports by their names, or why there are none.
type Bound struct {
	UID   string
	Ports map[string]int32
	Err   *reason.Error
}

// Answered is the answer to Ask.
type Answered struct {
	ID     run.ID
	Probe  life.ProbeKind
	Number uint32
	Yes    bool
	Words  string // for people, at most AnswerMax bytes
}

// AnswerMax bounds the words of an answer, in bytes: a few lines.
const AnswerMax = 512

func (Node) isEvent()       {}
func (Restored) isEvent()   {}
func (Desired) isEvent()    {}
func (Found) isEvent()      {}
func (Changed) isEvent()    {}
func (NotStarted) isEvent() {}
func (Awaited) isEvent()    {}
func (Bound) isEvent()      {}
func (Answered) isEvent()   {}

// Effect is one thing to be done.
type Effect interface{ isEffect() }

// Save makes a record durable, before what comes after it is carried out.
type Save struct {
	UID  string
	Data []byte // encoded
}

// Drop forgets an instance: its directories but those of data, its attempts, and last its record.
type Drop struct {
	UID      string
	Runtime  workload.Runtime
	Attempts []run.ID
}

// Bind finds numbers for ports, and comes back with Bound.
type Bind struct {
	UID   string
	Ports []Need
	Held  map[fit.Port]string // which are not to be chosen
}

// Need is a port that an instance needs.
type Need struct {
	Name     string
	Protocol workload.Protocol
	Number   int32 // 0: any
}

// Start starts an attempt, and comes back with Changed or NotStarted.
type Start struct {
	Runtime  workload.Runtime
	ID       run.ID
	Number   uint32 // of the starts of the task, in this run of the agent
	Template *workload.Template
	Record   *Record    // as it is when the effect is carried out
	Until    run.Moment // until when it may run, though nothing more is done about it; 0: for ever
}

// Extend says anew until when an attempt may run.
type Extend struct {
	Runtime workload.Runtime
	ID      run.ID
	Until   run.Moment // 0: for ever
}

// Signal asks an attempt to end.
type Signal struct {
	Runtime workload.Runtime
	ID      run.ID
	Signal  run.Signal
}

// Kill ends everything of an attempt.
type Kill struct {
	Runtime workload.Runtime
	ID      run.ID
}

// Remove forgets an attempt that has ended.
type Remove struct {
	Runtime workload.Runtime
	ID      run.ID
}

// Ask puts a question to an attempt, and comes back with Answered.
type Ask struct {
	Start   // with the number of the question
	Probe   life.ProbeKind
	Timeout time.Duration
}

// Renew says that half of a lease is over: a word of a server is needed.
type Renew struct{}

// Note is for the history: what has become of a task.
type Note struct {
	Instance string // NAMESPACE/NAME
	Task     string // empty: of the instance as a whole
	Code     reason.Code
	Words    string
}

func (Save) isEffect()   {}
func (Drop) isEffect()   {}
func (Bind) isEffect()   {}
func (Start) isEffect()  {}
func (Extend) isEffect() {}
func (Signal) isEffect() {}
func (Kill) isEffect()   {}
func (Remove) isEffect() {}
func (Ask) isEffect()    {}
func (Renew) isEffect()  {}
func (Note) isEffect()   {}
