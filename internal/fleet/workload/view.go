package workload

import (
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// View is one workload with its revisions, its instances and their nodes.
type View struct {
	Name       string
	UID        string
	Generation int64 // of the spec
	Spec       declared.Spec
	Deleting   bool
	// Wanted is how many instances there are to be: spec.replicas, or what scaling makes of it; of a job, how many are to run at once.
	// With mode PerNode it is the number of eligible nodes, and not read.
	Wanted int
	// Hash is that of spec.template, made with Status.Collisions.
	Hash      string
	Revisions []Revision
	Instances []Instance      // in any order, also those of an earlier workload of this name; names are different
	Nodes     map[string]Node // those of the instances and of Was.Homes, and with mode PerNode the eligible ones; where data is, one that is not among them is not there any more
	Eligible  []string        // nodes that the selector and the placement allow; with mode PerNode
	Approval  Approval
	Gates     map[string]pace.Reading // what was measured last, by the names of spec.rollout.gates
	// Brake says why nothing that is lost is replaced now in the whole fleet. Empty: it may be.
	Brake string
	// Quiet is when all nodes had the time to be heard by this leader: nothing is taken away on purpose, and nothing is lost, before.
	Quiet time.Time
	Was   Status // what the last decision said; zero: there was none
}

// Revision is an immutable copy of a template.
type Revision struct {
	Name   string
	Number int // 1, 2, 3 ...: the higher one is newer
	Hash   string
	Same   bool // its template is the one of the spec, compared as a whole
	// Runs is one text for revisions between which a change restarts nothing. Empty: not known, and each restarts.
	Runs string
	// Stick is the bond of its data to the node; empty: it has none.
	Stick declared.Stick
}

// Approval is what people have approved of.
type Approval struct {
	Revision string // empty: nothing
	Step     int    // the last step of a canary that it is about; of a green half, 0
}

// Node is what matters of a node here.
type Node struct {
	Presence node.Presence
	Gone     time.Time // since when, where it is Gone; kept over changes of the leader, so that it may be by the clock of an earlier one
	// Missed is since when this leader has itself seen that it is Gone, or that it is Silent and was not heard, by its own clock: a fence is counted
	// from that.
	Missed time.Time
	// Lost: people say that it is gone for good, or its Node was deleted. What ran there does not any more.
	Lost bool
	// Closed: it is cordoned or drained, so that nothing is placed there.
	Closed bool
}

// Phase is how far an instance has come.
type Phase uint8

// The phases, in the order in which an instance goes through them. From Terminating on it never goes back.
const (
	Pending     Phase = iota // has no node yet
	Placed                   // bound, and its agent has not begun
	Starting                 // begun, and not started yet
	Running                  // started; whether it is ready, ReadySince says
	Terminating              // asked to stop; its processes may still run
	Failed                   // over for good, badly; nothing runs
	Done                     // over for good, well; nothing runs
)

var phaseNames = [...]string{"pending", "placed", "starting", "running", "terminating", "failed", "done"}

// String is the phase's name.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown phase"
}

// Ended reports whether nothing of it runs any more.
func (p Phase) Ended() bool { return p >= Failed }

// Instance is one placed copy, as it is stored and was heard of last.
type Instance struct {
	Name       string
	UID        string
	Owner      string // UID of the workload that it was made for
	Slot       int
	Revision   string // name
	Taken      string // hash of the revision that its agent has taken in, as it has said; empty: it has not said
	Node       string // empty while it is pending
	Bound      string // the node that it goes to, while it is pending, because its data is there; empty: any
	Phase      Phase
	Attempt    int       // how often its agent has started it
	ReadySince time.Time // zero: it is not ready. By the clock of the server that heard so
	Failure    *Failure  // what is wrong with it; nil: nothing that its agent gave up on
	Leave      *Leave    // who wants it away; nil: nobody
	Replaces   string    // UID of the abandoned instance that it stands in for; empty: none
	Abandoned  bool      // its node was not heard for so long that it does not count any more
	Losses     int       // how often it was abandoned
}

// Failure is why an instance does not work: it ended for good, or its agent starts it again and again.
type Failure struct {
	Code    reason.Code
	Message string // for people, such as the last answer of a probe; no secret can be in it
	Since   time.Time
	Passing bool // it may pass by itself, as of what is not ready yet: it is told, and does not count
	OfNode  bool // it says nothing about the revision: the node had no room, or was taken away
}

// Leave is somebody's wish that an instance goes: a drain of its node, a preemption, a move.
type Leave struct {
	Why   reason.Code // NodeDrained, Preempted or PlacementChanged
	Since time.Time
	Force time.Time // when it goes whatever the budget says; zero: never
}

// Decision is what to do. Status is to be stored first, in place of the one that was decided on (compared, so that of two leaders that
// decide on one status one is refused); then the rest, each write with the generation that it was decided on, and Drop before Create, which
// may take the slots. All of it may be done twice, and what was not done is decided again.
type Decision struct {
	Generation int64
	Status     Status
	// Make is a new revision; while there is one to be made nothing else is decided but what does not depend on it.
	Make *Revision
	// Renumber gives a revision that is the target again the highest number.
	Renumber *Revision
	Create   []Create
	Update   []Update
	Stop     []Stop
	Abandon  []Mark
	Reclaim  []Mark   // abandoned ones that count again
	Drop     []Mark   // instances whose objects can go: nothing of them runs
	Forget   []string // revisions beyond the history
	WakeAt   time.Time
}

// Create makes an instance. Its name follows from the workload's and the slot, so that what is done twice makes one.
type Create struct {
	Slot     int
	Revision string
	Node     string // with mode PerNode, or where the data of the slot is; otherwise the scheduler finds one
	Must     bool   // there or nowhere
	Replaces string // UID of the abandoned instance that it stands in for
}

// Update gives an instance another revision in place: its processes go on, and its agent acts on what has changed.
type Update struct {
	Mark
	Revision string
}

// Stop asks an instance to end.
type Stop struct {
	Mark
	Why reason.Code
}

// Mark names one incarnation of an instance.
type Mark struct{ Name, UID string }
