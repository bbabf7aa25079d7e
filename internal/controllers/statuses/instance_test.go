package statuses

import (
	"reflect"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestPhases: a phase is the same one whoever says it, and what nobody knows yet says nothing.
func TestPhases(t *testing.T) {
	for is, by := range map[fleet.Phase]struct {
		name v1alpha1.InstancePhase
		said wire.InstancePhase
	}{
		fleet.Placed:      {v1alpha1.InstancePlaced, wire.InstancePlaced},
		fleet.Starting:    {v1alpha1.InstanceStarting, wire.InstanceStarting},
		fleet.Running:     {v1alpha1.InstanceRunning, wire.InstanceRunning},
		fleet.Terminating: {v1alpha1.InstanceTerminating, wire.InstanceTerminating},
		fleet.Failed:      {v1alpha1.InstanceFailed, wire.InstanceFailed},
		fleet.Done:        {v1alpha1.InstanceDone, wire.InstanceDone},
	} {
		if PhaseOf(by.name) != is || PhaseName(is) != by.name || PhaseSaid(by.said) != is {
			t.Errorf("%v: %v, %s, %v", is, PhaseOf(by.name), PhaseName(is), PhaseSaid(by.said))
		}
	}
	if PhaseOf("") != fleet.Pending || PhaseOf("Later") != fleet.Pending || PhaseName(fleet.Pending) != v1alpha1.InstancePlaced || PhaseSaid(99) != fleet.Placed {
		t.Error("what is not known says something")
	}
}

// TestFailure: what an instance has failed with is the same when it was stored.
func TestFailure(t *testing.T) {
	for _, f := range []*fleet.Failure{nil, {Code: reason.ProbeFailed, Message: "503", Since: time.Unix(1_900_000_000, 0), OfNode: true}} {
		if is := FailureOf(EncodeFailure(f)); !reflect.DeepEqual(is, f) {
			t.Errorf("%+v, want %+v", is, f)
		}
	}
}

// TestPassing: a probe that fails, and a task that was started again once or twice, may be well in a moment.
func TestPassing(t *testing.T) {
	for want, all := range map[bool][]wire.Instance{
		true: {
			{Code: reason.ProbeFailed, Phase: wire.InstanceRunning, Restarts: 100},
			{Code: reason.TaskEnded, Phase: wire.InstanceStarting, Restarts: crashesMin - 1},
		},
		false: {
			{Code: reason.TaskEnded, Phase: wire.InstanceStarting, Restarts: crashesMin},
			{Code: reason.TaskEnded, Phase: wire.InstanceFailed},
			{Code: reason.InstanceRefused, Phase: wire.InstanceFailed},
			{},
		},
	} {
		for _, r := range all {
			if Passing(&r) != want {
				t.Errorf("%+v: it may pass: %v", r, !want)
			}
		}
	}
}
