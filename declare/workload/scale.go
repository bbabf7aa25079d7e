package workload

import "tako.dev/tako/declare"

// Scale is how the number of replicas follows a load. The number is kept in the status: the declared one stays what it is, and
// counts again when a person changes it. 0 declared where min is more is off.
type Scale struct {
	// Min is the fewest there are: 0 to 100,000, default 1. With 0, something is measured by prometheus: nothing else tells that one is wanted.
	Min *int32 `json:"min,omitempty"`
	// Max is the most: 1 to 100,000.
	Max int32 `json:"max"`
	// Targets are what is measured, and what it is wanted to be: 1 to 8; none only where bounds are scheduled. The one that asks for most
	// decides.
	// +listType=map
	// +listMapKey=name
	Targets []ScaleTarget `json:"targets,omitempty"`
	// Tolerance is by how many percent a measure may be off its target without anything happening: 0 to 100, default 10.
	Tolerance *int32 `json:"tolerance,omitempty"`
	// Up bounds how fast the number grows.
	Up ScaleBound `json:"up,omitzero"`
	// Down bounds how fast it shrinks.
	Down ScaleBound `json:"down,omitzero"`
	// Scheduled are other bounds at certain times. At most 32; the last one that holds counts.
	// +listType=map
	// +listMapKey=name
	Scheduled []ScheduledBounds `json:"scheduled,omitempty"`
}

// ScaleTarget is one thing that is measured. Exactly one of cpu, memory and prometheus is set.
type ScaleTarget struct {
	// Name is unique in the list.
	Name string `json:"name"`
	// CPU is how many percent of their request of processors instances use on average: 1 to 1000. A task must request some.
	CPU *int32 `json:"cpu,omitempty"`
	// Memory is how many percent of their request of memory instances use on average: 1 to 1000. A task must request some.
	Memory *int32 `json:"memory,omitempty"`
	// Prometheus is the answer to a query.
	Prometheus *PrometheusTarget `json:"prometheus,omitempty"`
}

// PrometheusTarget is the answer to a query.
type PrometheusTarget struct {
	declare.PrometheusQuery `json:",inline"`
	// PerInstance is what each instance should have of that number: "100", "0.5".
	PerInstance declare.Quantity `json:"perInstance"`
}

// ScaleBound bounds how fast the number changes in one direction.
type ScaleBound struct {
	// Stabilization is for how long the most cautious answer counts: "5m", up to 1h. Default 0s up, 5m down.
	Stabilization string `json:"stabilization,omitempty"`
	// MaxChange is how many instances may come or go in a period: a number from 1, or a percentage of those that there were when it began,
	// rounded up; down at most 100 %. Default 100 %, at least 4, up; 100 % down.
	MaxChange declare.IntOrPercent `json:"maxChange,omitempty"`
	// Period is what maxChange counts in: "1m", 1 s to 1 h. Default 15s.
	Period string `json:"period,omitempty"`
}

// ScheduledBounds are other bounds at certain times.
type ScheduledBounds struct {
	// Name is unique in the list.
	Name string `json:"name"`
	// Window is when, as in windows of a NodeConfig: a time that the clock leaves out does not come. Without a time zone it is UTC.
	Window declare.Window `json:"window"`
	// Min is the fewest there are then. Default that of the scale.
	Min *int32 `json:"min,omitempty"`
	// Max is the most there are then. Default that of the scale.
	Max *int32 `json:"max,omitempty"`
}
