package workload

import "tako.dev/tako/declare"

// Gate is a number that must be within bounds before more instances get a new revision. It is looked at from when a step of a canary, the green half, or
// all that was to come is available, until the step's pause, or monitor, is over, and once after that. A number out of bounds fails the rollout. While there is no
// number, nothing goes on. What has worked before needs no gate, and neither does the first revision of all.
type Gate struct {
	// Name is unique in the list.
	Name string `json:"name"`
	// Prometheus is what is measured.
	Prometheus PrometheusQuery `json:"prometheus"`
	// Min is the least that is good, counted in thousandths: "0.995". Min, max or both are set.
	Min *declare.Quantity `json:"min,omitempty"`
	// Max is the most that is good, counted in thousandths: "0.05", "250".
	Max *declare.Quantity `json:"max,omitempty"`
}
