package workload

import "tako.dev/tako/declare"

// Spec is what is declared of a workload: what runs, on which nodes, how many, and how it changes.
type Spec struct {
	// Mode is Replicated (the default), PerNode or Job. It cannot be changed.
	Mode Mode `json:"mode,omitempty"`
	// Replicas is how many instances there are: 0 to 100,000, default 1. Only with mode Replicated; while scale is declared, it is where that
	// begins.
	Replicas *int32 `json:"replicas,omitempty"`
	// Job is how a job counts. Only with mode Job, where everything of it has a default.
	Job *Job `json:"job,omitempty"`
	// Schedule starts a job again and again. Left out, a job runs once.
	Schedule *Schedule `json:"schedule,omitempty"`
	// Selector picks the nodes that instances may be on by labels. Default all nodes of the namespace's environment. A change of it moves the
	// instances whose nodes it picks no more.
	Selector declare.Selector `json:"selector,omitzero"`
	// Priority says who goes first where there is no room for all, 0 to 1000: the higher one, and it may displace lower ones within their
	// disruption budgets. Default 0.
	Priority int32 `json:"priority,omitempty"`
	// Placement says which of those nodes are wanted, and which are better.
	Placement Placement `json:"placement,omitzero"`
	// Template is what each instance runs. A change of it makes a new revision. Nothing outside it restarts an instance.
	Template Template `json:"template"`
	// Rollout paces a new revision over the instances. Not with mode Job, whose next run has what is declared then.
	Rollout Rollout `json:"rollout,omitzero"`
	// DisruptionBudget bounds how many instances are taken away on purpose at once: by drains, preemption and moves, and by rollouts too
	// where it is declared. Default one at a time, and never the last one that is available.
	DisruptionBudget *DisruptionBudget `json:"disruptionBudget,omitempty"`
	// Scale changes the number of replicas with what is measured. Only with mode Replicated.
	Scale *Scale `json:"scale,omitempty"`
	// OnUnreachable says what becomes of instances on a node that nobody hears. Default Replace after 5 minutes.
	OnUnreachable *OnUnreachable `json:"onUnreachable,omitempty"`
	// RevisionHistoryLimit is how many old revisions are kept for going back: 1 to 100, default 10.
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// Mode is how the number of instances follows.
//
// +enum
type Mode string

// The modes.
const (
	// Replicated keeps a number of instances, wherever there is room.
	Replicated Mode = "Replicated"
	// PerNode keeps one instance on each node that the selector and the placement allow.
	PerNode Mode = "PerNode"
	// RunToCompletion runs instances until enough of them have ended well.
	RunToCompletion Mode = "Job"
)

// Job is how a job counts its instances.
type Job struct {
	// Completions is how many instances must end with exit code 0: 1 to 100,000, default 1.
	Completions *int32 `json:"completions,omitempty"`
	// Parallelism is how many run at once: 1 to 100,000, default 1.
	Parallelism *int32 `json:"parallelism,omitempty"`
	// BackoffLimit is how many times instances may fail, restarts on their nodes included, before the job has: 0 to 1000, default 6.
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// ActiveDeadline ends a job that takes longer: "90m", 1 second to 366 days. Default none.
	ActiveDeadline string `json:"activeDeadline,omitempty"`
	// Gang places the instances that run at once together or not at all: at most 1,000. Default false.
	Gang bool `json:"gang,omitempty"`
	// KeepFinished is for how long what has ended is kept to be looked at: "1h", up to 366 days. Default 24h.
	KeepFinished string `json:"keepFinished,omitempty"`
}

// Schedule says when a job starts again.
type Schedule struct {
	// Cron is when: minute, hour, day of the month, month, day of the week as in crontab(5), or @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string `json:"cron"`
	// TimeZone is UTC, or a name of the tz database such as Europe/Berlin. Default UTC. A time that the clock leaves out is made up for right
	// after the gap; one that it shows twice counts once.
	TimeZone string `json:"timeZone,omitempty"`
	// Concurrency says what happens while the run before is not over: Forbid (the default) leaves the new one out, Allow starts it beside,
	// Replace ends the old one, and starts the new one when that has ended.
	Concurrency Concurrency `json:"concurrency,omitempty"`
	// MissedRun says what becomes of runs that nobody could start at their time, two minutes late at most: RunOnce (the default) starts one
	// for all of them, Skip none.
	MissedRun MissedRun `json:"missedRun,omitempty"`
	// StartingDeadline is for how long after its time a run may start at all: "10m", 1 second to 7 days. Default until the next one.
	StartingDeadline string `json:"startingDeadline,omitempty"`
	// Suspend starts nothing, and what was due meanwhile is not made up for. Default false.
	Suspend bool `json:"suspend,omitempty"`
}

// Concurrency is what happens when a run is due and the one before is not over.
//
// +enum
type Concurrency string

// What happens when a run is due and the one before is not over.
const (
	Forbid  Concurrency = "Forbid"
	Allow   Concurrency = "Allow"
	Replace Concurrency = "Replace"
)

// MissedRun is what becomes of runs that could not start in time.
//
// +enum
type MissedRun string

// What becomes of runs that could not start in time.
const (
	RunOnce MissedRun = "RunOnce"
	Skip    MissedRun = "Skip"
)

// DisruptionBudget is what drains, preemption and moves share. Exactly one of the fields is set.
type DisruptionBudget struct {
	// MaxUnavailable is how many may be unavailable: a number or a percentage, rounded down.
	MaxUnavailable declare.IntOrPercent `json:"maxUnavailable,omitempty"`
	// MinAvailable is how many must be available: a number or a percentage, rounded up.
	MinAvailable declare.IntOrPercent `json:"minAvailable,omitempty"`
	// UnhealthyHoldUp makes instances that are not ready count as what must not be taken away too. Default false: what does not work may go.
	UnhealthyHoldUp bool `json:"unhealthyHoldUp,omitempty"`
	// SurgeFirst starts the replacement before an instance is taken away where that would leave fewer than allowed. Default true.
	SurgeFirst *bool `json:"surgeFirst,omitempty"`
}

// OnUnreachable is the answer to the loss of a node.
type OnUnreachable struct {
	// Action is Replace (the default), Keep or Fence.
	Action UnreachableAction `json:"action,omitempty"`
	// After is for how long nobody must have heard of the node: "5m", 15 seconds to 7 days. Default 5m. Not with Keep. With Replace it is
	// twice as long each time that an instance was replaced and its node came back, up to an hour.
	After string `json:"after,omitempty"`
	// Reconnect says which copy stays when the node comes back: Original (the default where both have one revision), Replacement, or
	// LongestReady. A newer revision stays whatever is said here. Only with Replace.
	Reconnect Reconnect `json:"reconnect,omitempty"`
}

// UnreachableAction is what becomes of instances on a node that nobody hears.
//
// +enum
type UnreachableAction string

// What becomes of instances on a node that nobody hears.
const (
	// ReplaceUnreachable starts another copy elsewhere. Two may run while the node is away.
	ReplaceUnreachable UnreachableAction = "Replace"
	// KeepUnreachable waits for the node.
	KeepUnreachable UnreachableAction = "Keep"
	// FenceUnreachable starts another copy elsewhere when the first one has ended for certain: the node's agent, which hears nobody either,
	// ends it by its own clock before that. There are never two.
	FenceUnreachable UnreachableAction = "Fence"
)

// Reconnect is which of two copies stays.
//
// +enum
type Reconnect string

// Which of two copies stays.
const (
	KeepOriginal     Reconnect = "Original"
	KeepReplacement  Reconnect = "Replacement"
	KeepLongestReady Reconnect = "LongestReady"
)
