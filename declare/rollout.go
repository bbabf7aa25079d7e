package declare

import (
	"cmp"
	"time"
)

// Rollout paces a new revision over nodes.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Rollout struct {
	// MaxUnavailable is how many nodes may be on the way at once: a number or a percentage ("10%"). Default "10%", at least 1.
	MaxUnavailable IntOrPercent `json:"maxUnavailable,omitempty"`
	// Pause stops the rollout where it is.
	Pause bool `json:"pause,omitempty"`
	// HaltOnFailed is how many failed nodes halt the rollout. Default 1.
	HaltOnFailed *int `json:"haltOnFailed,omitempty"`
	// Waves are nodes that go first, in order; the rest follows.
	// +listType=atomic
	Waves []Wave `json:"waves,omitempty"`
	// Gates are measures that must be within bounds for it to go on: at most 8.
	// +listType=map
	// +listMapKey=name
	Gates []Gate `json:"gates,omitempty"`
	// Monitor is for how long after the last node failures and gates still count: "30m", up to 24h. Default 0s.
	Monitor string `json:"monitor,omitempty"`
	// FetchWindow is over which time the hosts that get a change spread fetching it: "30s", "10m", up to 1h. Default 0s: each fetches at once.
	FetchWindow string `json:"fetchWindow,omitempty"`
	// OnFailure is Halt (the default) or RollBack: nothing goes on until people say so, or every node goes back to what was proven last. What a gate has
	// stopped is not tried again before something else is declared; neither is what was rolled back.
	OnFailure OnFailure `json:"onFailure,omitempty"`
	// Try makes every host that gets a new revision go back to the one before after that time, unless the field has gone by then:
	// "20s", "10m", one second to a day. Left out, a new revision stays.
	Try string `json:"try,omitempty"`
}

// Wave is some of the nodes, which go before those of later waves. Without a selector it is any of them.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Wave struct {
	Selector `json:",inline"`
	// Nodes is how many of those that the selector matches go in this wave or in one before: a number from 1, or a percentage ("10%"), rounded up.
	// Those that have the new revision already count first, then those that are there. Default all.
	Nodes IntOrPercent `json:"nodes,omitempty"`
	// Pause is for how long the new revision must have worked on the nodes of the wave before others get it: "10m", up to 7 days. Default 0s.
	Pause string `json:"pause,omitempty"`
}

// OnFailure is what becomes of a rollout that has failed.
//
// +enum
type OnFailure string

// What becomes of a rollout that has failed.
const (
	RollBack OnFailure = "RollBack"
	Halt     OnFailure = "Halt"
)

// MaxUnavailableOrDefault returns how many nodes may be on the way at once, "10%" when nothing is declared.
func (r *Rollout) MaxUnavailableOrDefault() IntOrPercent {
	if r.MaxUnavailable == "" {
		return maxUnavailableDefault
	}
	return r.MaxUnavailable
}

// HaltOnFailedOrDefault returns how many failed nodes halt the rollout, 1 when nothing is declared.
func (r *Rollout) HaltOnFailedOrDefault() int {
	if r.HaltOnFailed == nil {
		return haltOnFailedDefault
	}
	return *r.HaltOnFailed
}

// TryOrZero returns how long a new revision is tried; 0 when it is not, and it stays.
func (r *Rollout) TryOrZero() time.Duration { return durationOrZero(r.Try) }

// MonitorOrZero returns for how long after the last node failures still count; 0 when nothing is declared.
func (r *Rollout) MonitorOrZero() time.Duration { return durationOrZero(r.Monitor) }

// FetchWindowOrZero returns over which time hosts spread fetching a change; 0 when nothing is declared, and each fetches at once.
func (r *Rollout) FetchWindowOrZero() time.Duration { return durationOrZero(r.FetchWindow) }

// OnFailureOrDefault returns what becomes of a rollout that has failed: Halt when nothing is declared.
func (r *Rollout) OnFailureOrDefault() OnFailure { return cmp.Or(r.OnFailure, Halt) }

// NodesOrDefault returns of how many of those that the selector matches the wave is, with the waves before: "100%" when nothing is declared.
func (w *Wave) NodesOrDefault() IntOrPercent { return cmp.Or(w.Nodes, "100%") }

// PauseOrZero returns for how long it must have worked; 0 when nothing is declared.
func (w *Wave) PauseOrZero() time.Duration { return durationOrZero(w.Pause) }

// durationOrZero reads what Validate has taken.
func durationOrZero(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}
