package workload

import "tako.dev/tako/declare"

// Rollout is how a new revision comes to the instances, and what becomes of it when it does not work.
type Rollout struct {
	// Strategy is Rolling (the default), Canary or BlueGreen.
	Strategy RolloutStrategy `json:"strategy,omitempty"`
	// MaxSurge is how many instances there may be beyond the replicas: a number, or a percentage up to 100 %, rounded up. Default 25 %.
	// Nothing with mode PerNode.
	MaxSurge declare.IntOrPercent `json:"maxSurge,omitempty"`
	// MaxUnavailable is how many replicas may be missing: a number, or a percentage, rounded down. Default 25 %. Not nothing where
	// maxSurge is; where rounding makes nothing of both, it is one.
	MaxUnavailable declare.IntOrPercent `json:"maxUnavailable,omitempty"`
	// MinReady is for how long an instance must have been ready without a break to count as available: "10s", up to 24h. Default 0s.
	MinReady string `json:"minReady,omitempty"`
	// ProgressDeadline is for how long nothing may go on before the rollout has failed: "10m", 1 second to 7 days, and more than minReady.
	// Default 10m. What people pause does not count.
	ProgressDeadline string `json:"progressDeadline,omitempty"`
	// Steps are those of a canary, in order: 1 to 20, none with fewer instances than the one before. Only with strategy Canary.
	// +listType=atomic
	Steps []CanaryStep `json:"steps,omitempty"`
	// Promotion is Automatic (the default) or Manual: who says that a canary, or the green half, takes over when its instances are available.
	Promotion Promotion `json:"promotion,omitempty"`
	// KeepOld is for how long after the promotion of a green half the blue one stays: "5m", up to 7 days. Default 0s. Only with strategy
	// BlueGreen.
	KeepOld string `json:"keepOld,omitempty"`
	// MaxFailures is with how many failed instances of the new revision the rollout has failed: a number, or a percentage of the replicas,
	// rounded up. Default 1.
	MaxFailures declare.IntOrPercent `json:"maxFailures,omitempty"`
	// Monitor is for how long after the last step failures still count: "5m", up to 24h. Default 0s.
	Monitor string `json:"monitor,omitempty"`
	// Gates are measures that must be within bounds before more instances get the new revision: at most 8.
	// +listType=map
	// +listMapKey=name
	Gates []declare.Gate `json:"gates,omitempty"`
	// OnFailure is RollBack (the default) or Halt: back to the last revision that was stable, or stay for people to look at.
	OnFailure declare.OnFailure `json:"onFailure,omitempty"`
	// Pause stops the rollout where it is. Default false.
	Pause bool `json:"pause,omitempty"`
}

// RolloutStrategy is how a new revision comes.
//
// +enum
type RolloutStrategy string

// How a new revision comes.
const (
	// Rolling replaces instances a few at a time.
	Rolling RolloutStrategy = "Rolling"
	// Canary goes on in steps, of which each is looked at.
	Canary RolloutStrategy = "Canary"
	// BlueGreen starts as many as there are beside them, and then takes the old ones away.
	BlueGreen RolloutStrategy = "BlueGreen"
)

// CanaryStep is one step of a canary: how many have the new revision, and for how long that is looked at.
type CanaryStep struct {
	// Replicas is how many instances have the new revision: a number from 1, or a percentage of the replicas, rounded up.
	Replicas declare.IntOrPercent `json:"replicas"`
	// Pause is for how long they must have been available: "10m", up to 7 days. Default 0s.
	Pause string `json:"pause,omitempty"`
	// Promotion is who says that it goes on afterwards. Default what the rollout says.
	Promotion Promotion `json:"promotion,omitempty"`
}

// Promotion is who says that it goes on.
//
// +enum
type Promotion string

// Who says that it goes on.
const (
	AutomaticPromotion Promotion = "Automatic"
	ManualPromotion    Promotion = "Manual"
)
