package statuses

import (
	"tako.dev/tako/api/v1alpha1"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// said is a phase in the words of the API and of hosts.
type said struct {
	is   fleet.Phase
	name v1alpha1.InstancePhase
	host wire.InstancePhase
}

func phases() [6]said {
	return [...]said{
		{fleet.Placed, v1alpha1.InstancePlaced, wire.InstancePlaced},
		{fleet.Starting, v1alpha1.InstanceStarting, wire.InstanceStarting},
		{fleet.Running, v1alpha1.InstanceRunning, wire.InstanceRunning},
		{fleet.Terminating, v1alpha1.InstanceTerminating, wire.InstanceTerminating},
		{fleet.Failed, v1alpha1.InstanceFailed, wire.InstanceFailed},
		{fleet.Done, v1alpha1.InstanceDone, wire.InstanceDone},
	}
}

// PhaseOf is how far an instance is, by what the API has of it. A phase that a later version knows says nothing.
func PhaseOf(p v1alpha1.InstancePhase) fleet.Phase {
	for _, s := range phases() {
		if s.name == p {
			return s.is
		}
	}
	return fleet.Pending
}

// PhaseName is a phase as the API has it; of what is pending there is no object.
func PhaseName(p fleet.Phase) v1alpha1.InstancePhase {
	for _, s := range phases() {
		if s.is == p {
			return s.name
		}
	}
	return v1alpha1.InstancePlaced
}

// PhaseSaid is a phase as hosts say it. One that a later version knows says nothing.
func PhaseSaid(p wire.InstancePhase) fleet.Phase {
	for _, s := range phases() {
		if s.host == p {
			return s.is
		}
	}
	return fleet.Placed
}

// FailureOf is what an instance has failed with, as the API has it.
func FailureOf(f *v1alpha1.InstanceFailure) *fleet.Failure {
	if f == nil {
		return nil
	}
	return &fleet.Failure{Code: CodeOf(f.Code), Message: f.Message, Since: f.Since.Time, OfNode: f.OfNode}
}

// EncodeFailure is the same in words of the API.
func EncodeFailure(f *fleet.Failure) *v1alpha1.InstanceFailure {
	if f == nil {
		return nil
	}
	return &v1alpha1.InstanceFailure{Code: CodeText(f.Code), Message: f.Message, Since: Seconds(f.Since), OfNode: f.OfNode}
}

// crashesMin is how often tasks of an instance were started again until its host has given up hope for it: three times is no accident, and takes
// seven seconds with the pauses that nobody has changed. What something else is not there for yet has come back by then.
const crashesMin = 3

// Passing reports whether what is wrong with an instance may pass by itself. That it does not is for the progress deadline to find out.
func Passing(r *wire.Instance) bool {
	switch r.Code {
	case reason.ProbeFailed:
		return true
	case reason.TaskEnded:
		return r.Phase < wire.InstanceTerminating && r.Restarts < crashesMin
	}
	return false
}
