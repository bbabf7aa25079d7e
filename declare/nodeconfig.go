package declare

// APIVersion is the group and version that this package reads.
const APIVersion = "tako.dev/v1alpha1"

// Kinds of declarations that carry host resources.
const (
	KindNodeConfig        = "NodeConfig"        // priority 0-999, nodes of its namespace's environment
	KindClusterNodeConfig = "ClusterNodeConfig" // priority 1000-1999, all nodes
)

// Limits of a declaration. Sources: model.md, transfer.md (Bounds).
const (
	ResourcesMax     = 100_000 // acting resources on one node
	BodyBytesMax     = 1 << 20 // one resource, encoded
	ClaimBytesMax    = 4 << 10 // one claim
	DocumentBytesMax = 64 << 20
	PathBytesMax     = 4096   // PATH_MAX, limits.h
	NameBytesMax     = 253    // RFC 1123 subdomain, as Kubernetes names
	LabelsMax        = 256    // labels of a config, or in matchLabels of a selector: ours, far above what anybody can keep in mind
	ExpressionsMax   = 256    // conditions of a selector: ours, the same
	ValuesMax        = 1000   // values of a condition: ours; who lists more hosts gives them a label
	WavesMax         = 256    // ours: a rollout goes through them one after the other
	ReferencesMax    = 10_000 // names in require, and in notify, of one resource: ours, a tenth of all resources
	ArgumentsMax     = 1000   // of a check command: ours, far below what execve(2) takes
)

// NodeConfig declares resources that the matching hosts must have. ClusterNodeConfig has the same form; Kind tells them
// apart.
type NodeConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   Metadata       `json:"metadata"`
	Spec       NodeConfigSpec `json:"spec"`
}

// Metadata names a declaration. Alone, without a server, namespace is kept for display and has no effect.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NodeConfigSpec is the body of a NodeConfig.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type NodeConfigSpec struct {
	// Selector picks nodes by their labels; empty picks all of the config's scope. Alone it has no effect.
	// +optional
	Selector Selector `json:"selector,omitzero"`
	// Priority decides between configs that claim one thing: the higher wins whole. Default 100 (ClusterNodeConfig: 1100).
	Priority *int `json:"priority,omitempty"`
	// Rollout paces the way of a new revision over the nodes. Alone it has no effect.
	// +optional
	Rollout Rollout `json:"rollout,omitzero"`
	// Drift says what becomes of resources that others have changed, where they do not say it themselves: revert (the default) or observe.
	Drift Drift `json:"drift,omitempty"`
	// Windows are when things may be done that WindowFor names, where a resource has no windows of its own. Without any, always.
	// +listType=atomic
	Windows []Window `json:"windows,omitempty"`
	// WindowFor says what waits for the windows: restarts (the default) or changes.
	WindowFor WindowFor `json:"windowFor,omitempty"`
	// Bundle names a list of entries that `tako bundle push` has put on the servers: a node has them beside the resources. Only with a server.
	Bundle *BundleReference `json:"bundle,omitempty"`
	// Resources are what a node must have; names are unique in the config.
	// +listType=map
	// +listMapKey=name
	// +patchStrategy=merge
	// +patchMergeKey=name
	Resources []Resource `json:"resources" patchStrategy:"merge" patchMergeKey:"name"`
}

// Selector picks nodes by labels; both parts must hold.
//
// +structType=atomic
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Selector struct {
	// MatchLabels are labels that a node must have, with these values. Default none.
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are conditions that must all hold. Default none.
	// +listType=atomic
	MatchExpressions []SelectorRequirement `json:"matchExpressions,omitempty"`
}

// SelectorRequirement is one condition on one label key.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type SelectorRequirement struct {
	// Key is the label's key.
	Key string `json:"key"`
	// Operator is In, NotIn, Exists or DoesNotExist.
	Operator SelectorOperator `json:"operator"`
	// Values are what In and NotIn compare the label's value with, at least one; the other operators take none.
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// SelectorOperator is In, NotIn, Exists or DoesNotExist, with the meaning that Kubernetes gives them.
//
// +enum
type SelectorOperator string

// The selector operators.
const (
	OpIn           SelectorOperator = "In"
	OpNotIn        SelectorOperator = "NotIn"
	OpExists       SelectorOperator = "Exists"
	OpDoesNotExist SelectorOperator = "DoesNotExist"
)

// IntOrPercent is a whole number ("3") or a percentage ("10%"). In YAML it may stand as a number.
type IntOrPercent string
