package rollout

import (
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// Target is what a config has, or is to have, on a node. The priority goes the way of a revision: it decides who wins on a host. So does
// the root: a value that the revision takes from elsewhere, and that changes under it, goes from node to node as the revision did.
type Target struct {
	Revision string // name; empty: nothing
	Priority int
	Root     string // of the layer that the revision compiles to
}

// View is one config with the nodes that it selects.
type View struct {
	Config string // ID, as catalog.ConfigName says
	Spec   declare.Rollout
	Target Target // the newest
	// PausedBy says who has set spec.rollout.pause, where that is known.
	PausedBy string
	Nodes    []Node // in any order; names are different
	// Quiet is when all nodes had the time to be heard by this leader: nothing moves before.
	Quiet time.Time
	Was   Status // what the last decision said; zero: there was none
	// Generation is that of all that is declared, as of the target: what has failed is tried again when it is another one.
	Generation int64
	Gates      map[string]pace.Reading // what was measured last, by the names of spec.rollout.gates
	// Gone: what is proven cannot be given to anybody any more, because values that it took from elsewhere have changed.
	Gone bool
}

// Node is a selected node.
type Node struct {
	Name     string
	Labels   map[string]string
	Presence Presence
	Assigned Target    // zero: nothing
	Since    time.Time // when that was assigned; zero: not known, long ago
	Report   Report    // the last one that was heard, whatever it is about
	// Refused is what package assign keeps out on this node. It is passed over as long as it is that.
	Refused []Target
	// Awaited: other configs go on here as soon as this one does, so it comes first, whatever its wave.
	Awaited bool
}

// Presence is what package node says about a node, as far as it matters here.
type Presence uint8

// The presences.
const (
	Unheard Presence = iota // not yet, by this leader
	Heard
	Silent // not reached, or not to be believed
)

// Report is what a node says about one config.
type Report struct {
	// Of is what it is about. A report on a head that is older than the assignment is about nothing, even where that head had the same:
	// a node may have had something else in between.
	Of      Target
	Verdict Verdict
	Code    reason.Code // of what went wrong
	Message string      // for people; no secret can be in it
	Since   time.Time   // of the verdict
}

// Verdict is what became of a target on a node.
type Verdict uint8

// The verdicts.
const (
	Pending Verdict = iota // not known yet: fetched, or being applied
	Converged
	Failed
	Rejected    // it cannot be applied, and is not fetched again
	Withheld    // kept back by the blast guard
	Quarantined // it crashed the agent
)

var verdictNames = [...]string{"pending", "converged", "failed", "rejected", "withheld", "quarantined"}

// String is the verdict's name.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown verdict"
}

// Phase says how a rollout stands.
type Phase = pace.Phase

// The phases, and what they mean of nodes.
const (
	Empty    = pace.Empty    // the config selects no node, or has no revision yet
	Complete = pace.Complete // all selected nodes have converged on the target, or had when it was proven
	Rolling  = pace.Rolling  // nodes are on the way, or next
	Waiting  = pace.Waiting  // for nodes to be heard, or for a conflict to be resolved
	Halted   = pace.Halted   // by nodes
	Paused   = pace.Paused   // by people

	Monitoring  = pace.Monitoring  // all selected nodes have converged on the target, and failures and gates still count
	RollingBack = pace.RollingBack // the target has failed, and nodes go back to what is proven
	RolledBack  = pace.RolledBack  // they have
)

// Status is how the rollout stands. Counts, Why and Culprits are for people; the rest is to be stored when it changes.
type Status struct {
	Phase    Phase
	Target   Target
	Goal     Target    // what nodes are to have: the target, or what is proven, where the target has failed and is rolled back
	Since    time.Time // of the phase, with that target
	Proven   Target    // zero: nothing yet. Its revision must be kept
	ProvenAt time.Time
	Waves    string    // names the waves that are counted in Passed
	Passed   int       // waves that were looked at for as long as they are to be, of a target that is not proven
	First    time.Time // when the first node worked with such a target; zero: none has
	Held     time.Time // since when all that has begun works, and is looked at; zero: it does not yet
	Failed   Failure   // zero: nothing has
	Counts   Counts
	Why      string    // of Waiting, Halted and Paused
	Culprits []Culprit // whom it is halted by or waits for: at most CulpritsMax, in the order of the rollout
}

// Failure is that of a target.
type Failure struct {
	Of         Target
	Generation int64 // of the view
	At         time.Time
	Why        string // for people
}

// Counts are selected nodes, each counted once behind Selected.
type Counts struct {
	Selected int
	Done     int // have converged on the target
	OnTheWay int // have the target, or something else, and have not said yet what became of it
	Failed   int // have the target, and something is wrong with it
	Silent   int
	Unheard  int
	Refused  int // the target is kept out there
	Left     int // have something else, or nothing
}

// CulpritsMax bounds the nodes that are told.
const CulpritsMax = pace.CulpritsMax

// Culprit is a node that holds up a rollout.
type Culprit struct {
	Node  string
	Code  reason.Code // zero: none
	Why   string
	Since time.Time // zero: not known
}

// Move gives a node something else than it has.
type Move struct {
	Node   string
	Target Target
}

// Decision is what to do.
type Decision struct {
	Moves  []Move // in the order of the rollout
	Status Status
	WakeAt time.Time // when to decide again though nothing has changed; zero: not by itself
}
