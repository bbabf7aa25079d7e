package workload

import "tako.dev/tako/declare"

// Placement says which nodes instances may be on beyond the selector, and which are better.
type Placement struct {
	// Strategy is Spread (the default) or BinPack: whether nodes that have more free are better, or those that have less.
	Strategy Strategy `json:"strategy,omitempty"`
	// Preferred are nodes that are better than others. At most 32.
	// +listType=atomic
	Preferred []PreferredNodes `json:"preferred,omitempty"`
	// Affinity are workloads that instances must, or had better, be near to. At most 16.
	// +listType=atomic
	Affinity []Affinity `json:"affinity,omitempty"`
	// AntiAffinity are workloads that instances must, or had better, be away from, which may be their own. At most 16.
	// +listType=atomic
	AntiAffinity []Affinity `json:"antiAffinity,omitempty"`
	// TopologySpread are how evenly instances are spread over values of node labels, such as zones. At most 8.
	// +listType=map
	// +listMapKey=topologyKey
	TopologySpread []TopologySpread `json:"topologySpread,omitempty"`
	// Tolerations let instances onto nodes with taints. At most 32.
	// +listType=atomic
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// Architectures are those that the programs are made for, such as amd64. Default all.
	// +listType=set
	Architectures []string `json:"architectures,omitempty"`
	// WhenLabelsChange says what becomes of an instance whose node no longer fits by its labels: Stay (the default) or Move, within the
	// disruption budget.
	WhenLabelsChange WhenLabelsChange `json:"whenLabelsChange,omitempty"`
}

// Strategy is whether nodes that have more free are better, or those that have less.
//
// +enum
type Strategy string

// The strategies.
const (
	Spread  Strategy = "Spread"
	BinPack Strategy = "BinPack"
)

// WhenLabelsChange is what becomes of an instance whose node no longer fits by its labels.
//
// +enum
type WhenLabelsChange string

// What becomes of an instance whose node no longer fits by its labels.
const (
	Stay WhenLabelsChange = "Stay"
	Move WhenLabelsChange = "Move"
)

// PreferredNodes are nodes that are better.
type PreferredNodes struct {
	// Selector picks them by labels.
	Selector declare.Selector `json:"selector"`
	// Weight is by how much, 1 to 100. Default 1.
	Weight *int32 `json:"weight,omitempty"`
}

// Affinity is one relation to instances of other workloads. Near is on a node that has the same value of a label.
type Affinity struct {
	// Selector picks the others by the labels of their templates.
	Selector declare.Selector `json:"selector"`
	// Namespaces are where they are. Default the workload's own.
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`
	// TopologyKey is the label of nodes whose values are compared. Default the node itself.
	TopologyKey string `json:"topologyKey,omitempty"`
	// Weight makes it a wish, and says how strong, 1 to 100. Left out, it must hold.
	Weight *int32 `json:"weight,omitempty"`
}

// TopologySpread bounds how unevenly the instances of one revision are spread over the values of a node label.
type TopologySpread struct {
	// TopologyKey is the label. Nodes without it take no instances where whenUnsatisfiable is DoNotSchedule.
	TopologyKey string `json:"topologyKey"`
	// MaxSkew is by how many the fullest value may be ahead of the emptiest that takes any: 1 to 1000, default 1.
	MaxSkew *int32 `json:"maxSkew,omitempty"`
	// MinDomains is how many values there must be: while there are fewer, the emptiest counts as having none. 1 to 1000, default 1.
	MinDomains *int32 `json:"minDomains,omitempty"`
	// WhenUnsatisfiable is DoNotSchedule (the default) or ScheduleAnyway.
	WhenUnsatisfiable WhenUnsatisfiable `json:"whenUnsatisfiable,omitempty"`
}

// WhenUnsatisfiable is what a spread does that cannot be kept.
//
// +enum
type WhenUnsatisfiable string

// What a spread does that cannot be kept.
const (
	DoNotSchedule  WhenUnsatisfiable = "DoNotSchedule"
	ScheduleAnyway WhenUnsatisfiable = "ScheduleAnyway"
)

// Toleration lets instances onto nodes with a taint.
type Toleration struct {
	// Key is the taint's key. Left out, with operator Exists, all taints.
	Key string `json:"key,omitempty"`
	// Operator is Equal (the default) or Exists.
	Operator TolerationOperator `json:"operator,omitempty"`
	// Value is what Equal compares the taint's value with. Default empty.
	Value string `json:"value,omitempty"`
	// Effect is the taint's. Default all.
	Effect declare.TaintEffect `json:"effect,omitempty"`
	// TolerationSeconds is for how long after a NoExecute taint has come an instance stays. Default for ever.
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// TolerationOperator is how a toleration compares.
//
// +enum
type TolerationOperator string

// How a toleration compares.
const (
	TolerationEqual  TolerationOperator = "Equal"
	TolerationExists TolerationOperator = "Exists"
)
