package workload

import (
	"time"

	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// Stopping is the phase that only rollouts of workloads have: the workload is being deleted.
const Stopping pace.Phase = "Stopping"

// Status is how the workload stands. All of it is to be stored; no decision needs a memory beside it.
type Status struct {
	ObservedGeneration int64
	Phase              pace.Phase
	Since              time.Time // of the phase, with that target
	Why                string    // for people
	Wanted             int
	Collisions         int // of hashes of templates: the next hash is made with this number
	Rollout            Rollout
	Stable             pace.Proven[string] // the last revision whose rollout has come to its end
	Failed             []FailedRevision    // the last ones, the latest at the end: at most failedMax
	Budget             int64               // generation of what may be taken away: each decision that takes something raises it
	Taken              []Taken             // what was taken away, and may still look as if it was not
	Backoff            Backoff
	Homes              []Home // where data is, by slot
	Counts             Counts
	Culprits           []Culprit // whom it is held up by: at most pace.CulpritsMax
	Leaving            []Culprit // whose leaving is held up by the disruption budget: at most pace.CulpritsMax
}

// Rollout is how far the rollout of one target has come. Another target begins with a new one.
type Rollout struct {
	Target   string          // revision that the spec declares
	Goal     string          // revision that instances are to have: the target, or what it was rolled back to
	Over     bool            // it has come to its end, there or back
	Halt     *FailedRevision // why it stays where it is; nil: it does not
	Step     int             // of a canary, the one that is under way; 0 is the first
	Held     time.Time       // since when the step, or the green half, has been available; zero: it is not
	Passed   time.Time       // when green took over; zero: not yet
	Ended    time.Time       // since when everything has had the goal and been available; zero: not so
	Clock    time.Time       // since when nothing has gone on; in the future while something is waited for; zero: it stands still
	Best     Progress        // how far it had come at best
	Scaled   time.Time       // when the number that is wanted changed last; zero: not in this rollout
	Failures int             // how many instances have failed, each once
	Counted  []string        // UIDs of those that may still be seen
}

// Backoff keeps what ends badly at once from being created again and again.
type Backoff struct {
	Failed int       // how often something had ended badly, since all were available
	Until  time.Time // nothing is created before
}

// Taken is an instance that was taken away on purpose.
type Taken struct {
	UID string
	Why reason.Code
}

// FailedRevision is a revision whose rollout has failed.
type FailedRevision struct {
	Revision string
	Code     reason.Code
	Why      string
	At       time.Time
}

// Progress is how far a rollout had come at best. What comes and goes again does not count twice.
type Progress struct {
	Available int // instances whose hosts say that they have the goal, and that are available, at most
	Old       int // instances that have something else, at least
}

// Counts are instances. Those of other workloads, and those that have ended, are not counted.
type Counts struct {
	Live        int // not terminating, not abandoned
	Updated     int // of them, have the goal, as their hosts say
	Pending     int // of them, have no node
	Ready       int // of them
	Available   int // of them: ready for long enough, and heard
	Unreachable int // of them, on nodes that are silent or gone
	Unheard     int // of them, on nodes that were not heard by this leader yet
	Terminating int
	Abandoned   int
}

// Culprit is an instance that holds something up.
type Culprit struct {
	Instance string
	Node     string
	Code     reason.Code
	Why      string
	Since    time.Time // zero: not known
}
