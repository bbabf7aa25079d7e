package scale

import (
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// View is one workload with what is measured of it.
type View struct {
	Spec *workload.Scale
	// Declared is spec.replicas of the workload: where it begins.
	Declared int
	// Workload is the workload's UID, by which its instances are told from those of another one of the same labels or the same name.
	Workload  string
	Instances []Instance // in any order
	// Answers are those to the queries of targets, by their names.
	Answers map[string]Answer
	Rollout Rollout
	// Stable is the revision that is known to work; of weight while the rollout is broken.
	Stable string
	Was    Status // what the last decision said; zero: there was none
	// Zone finds a time zone by its name.
	Zone func(name string) (*time.Location, error)
}

// Instance is a placed copy.
type Instance struct {
	Workload string // UID of whose it is
	Revision string
	// Ready is since when it is ready; zero: it is not.
	Ready       time.Time
	Terminating bool
	// CPU and Memory are what its tasks request, in thousandths of processors and in bytes.
	CPU, Memory int64
	Sample      Sample // zero: none
}

// Sample is what an instance has used over a while.
type Sample struct {
	At     time.Time     // when the while was over
	Over   time.Duration // how long it was
	CPU    int64         // on average, in thousandths of processors
	Memory int64         // at its end, in bytes
}

// Answer is what a query was answered.
type Answer struct {
	At    time.Time
	Value float64
	// Missing is why there is none, for people; empty: there is one, or nobody has asked yet.
	Missing string
}

// Rollout is how the rollout of the workload stands.
type Rollout uint8

// How a rollout may stand.
const (
	Settled Rollout = iota
	Rolling
	Broken // it has failed or was halted, and instances of a revision that does not work may be there
)

// Status is what must be remembered.
type Status struct {
	// Decided is when a number was decided for the first time; zero: never.
	Decided time.Time `json:"decided,omitzero"`
	// Replicas is the number decided, and Declared what was declared then.
	Replicas int `json:"replicas"`
	Declared int `json:"declared"`
	// Up and Down are the numbers asked for since the current one is too low, or too high, without a break.
	Up   Phase `json:"up,omitzero"`
	Down Phase `json:"down,omitzero"`
	// Grown and Shrunk are by how much it has changed, oldest first.
	Grown  []Step `json:"grown,omitempty"`
	Shrunk []Step `json:"shrunk,omitempty"`
}

// Phase is a while in which all numbers asked for were on one side of the current one.
type Phase struct {
	Since time.Time `json:"since,omitzero"`
	// Asked are those that may still decide, oldest first. The last one is of the last decision.
	Asked []Asked `json:"asked,omitempty"`
}

// Asked is a number that was asked for.
type Asked struct {
	At       time.Time `json:"at"` // the last time
	Replicas int       `json:"replicas"`
}

// Step is one change of the number.
type Step struct {
	At time.Time `json:"at"`
	By int       `json:"by"`
}

// Decision is how many there are to be.
type Decision struct {
	Replicas int
	Why      string // for people
	// Code is why it may not be the number that the load needs: NoSamples or ScaleBounded; 0: nothing speaks against it.
	Code   reason.Code
	Status Status // to be stored when it differs
	WakeAt time.Time
}
