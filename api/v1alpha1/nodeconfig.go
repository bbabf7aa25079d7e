package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
)

// NodeConfig declares resources that matching nodes of its namespace's environment must have.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type NodeConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the config. The namespace is the environment whose nodes it is for.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is declared; it is written by people and programs, and never by tako.
	Spec declare.NodeConfigSpec `json:"spec"`
	// Status is what became of it; it is written by tako alone, through the status subresource.
	// +optional
	Status NodeConfigStatus `json:"status,omitzero"`
}

// NodeConfigList is a list of NodeConfigs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type NodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the configs.
	Items []NodeConfig `json:"items"`
}

// ClusterNodeConfig declares resources that matching nodes of all environments must have. It differs from a NodeConfig in its
// scope and its range of priorities.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterNodeConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the config. It has no namespace.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is declared; it is written by people and programs, and never by tako.
	Spec declare.NodeConfigSpec `json:"spec"`
	// Status is what became of it; it is written by tako alone, through the status subresource.
	// +optional
	Status NodeConfigStatus `json:"status,omitzero"`
}

// ClusterNodeConfigList is a list of ClusterNodeConfigs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterNodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the configs.
	Items []ClusterNodeConfig `json:"items"`
}

// NodeConfigStatus is what became of a NodeConfig or ClusterNodeConfig.
type NodeConfigStatus struct {
	// ObservedGeneration is the metadata.generation that the rest of the status is about. While it is less than the generation,
	// nobody has looked at the last change yet.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revision is the name of the Revision, or ClusterRevision, that holds the resources of the observed generation. Empty
	// until there is one.
	Revision string `json:"revision,omitempty"`
	// Rollout is how the way of the newest revision over the nodes stands. Left out until somebody has looked.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conflicts are other configs that want something else of the same thing, at the same priority, on the same nodes: at most 16.
	// +listType=atomic
	Conflicts []ConfigConflict `json:"conflicts,omitempty"`
	// Conditions are Ready, Reconciling and Stalled, each with a reason and words for a person.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// RolloutStatus is how the way of a revision over the nodes stands. Each selected node is counted once.
type RolloutStatus struct {
	// Phase is Empty, Complete, Rolling, Waiting, Halted, Paused, Monitoring, RollingBack or RolledBack.
	Phase string `json:"phase"`
	// Target is the name of the revision that is on its way.
	Target string `json:"target,omitempty"`
	// TargetPriority is the priority with which it comes.
	TargetPriority int32 `json:"targetPriority,omitempty"`
	// TargetRoot is the root of the layer that it compiles to: 64 hexadecimal digits. It changes with the revision, and with the values
	// of Secrets and ConfigMaps that the revision takes. Empty while there is none.
	TargetRoot string `json:"targetRoot,omitempty"`
	// Since is when it came to that phase with that target.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Proven is the revision that all nodes had converged on last: the way back.
	Proven string `json:"proven,omitempty"`
	// ProvenPriority is the priority that it had.
	ProvenPriority int32 `json:"provenPriority,omitempty"`
	// ProvenRoot is the root that it had.
	ProvenRoot string `json:"provenRoot,omitempty"`
	// ProvenAt is when they had.
	ProvenAt *metav1.Time `json:"provenAt,omitempty"`
	// Selected counts the nodes.
	Selected int32 `json:"selected"`
	// Progress is how what has come so far is looked at, while that is not over.
	Progress *RolloutProgress `json:"progress,omitempty"`
	// Failure is of the target that has failed last and is not tried again.
	Failure *RolloutFailure `json:"failure,omitempty"`
	// Done have converged on the target, or on what it was rolled back to.
	Done int32 `json:"done,omitempty"`
	// OnTheWay have it, and have not said yet what became of it.
	OnTheWay int32 `json:"onTheWay,omitempty"`
	// Failed have it, and something is wrong.
	Failed int32 `json:"failed,omitempty"`
	// Silent are not reached.
	Silent int32 `json:"silent,omitempty"`
	// Unheard have not been heard yet since the server began.
	Unheard int32 `json:"unheard,omitempty"`
	// Refused keep it out because of a conflict, or of too many configs.
	Refused int32 `json:"refused,omitempty"`
	// Left have something else, or nothing.
	Left int32 `json:"left,omitempty"`
	// Message says why it waits, halted or pauses.
	Message string `json:"message,omitempty"`
	// Culprits are nodes that hold it up: at most 10.
	// +listType=atomic
	Culprits []RolloutCulprit `json:"culprits,omitempty"`
}

// RolloutProgress is how what has come so far is looked at: after each wave, and in the end.
type RolloutProgress struct {
	// WavesID names the waves that are counted in waves. Empty: there are none.
	WavesID string `json:"wavesID,omitempty"`
	// Waves were looked at for as long as they are to be.
	Waves int32 `json:"waves,omitempty"`
	// WorkingSince is when the first node worked with the target: gates count from then on.
	WorkingSince *metav1.Time `json:"workingSince,omitempty"`
	// HeldSince is since when all that has begun works.
	HeldSince *metav1.Time `json:"heldSince,omitempty"`
}

// RolloutFailure is that of a target. It is tried again when something else in the spec changes, or a value that the target takes from elsewhere.
type RolloutFailure struct {
	// Revision is its name.
	Revision string `json:"revision"`
	// Priority is the priority with which it came.
	Priority int32 `json:"priority,omitempty"`
	// Root is the root of the layer that it compiled to.
	Root string `json:"root,omitempty"`
	// Generation is that of the config when it failed.
	Generation int64 `json:"generation"`
	// At is when it did.
	At metav1.Time `json:"at"`
	// Message says why.
	Message string `json:"message"`
	// Goal is the revision that nodes go back to. Empty: they do not.
	Goal string `json:"goal,omitempty"`
}

// RolloutCulprit is a node that holds up a rollout.
type RolloutCulprit struct {
	// Node is its name.
	Node string `json:"node"`
	// Code is the code of the reason, where there is one.
	Code string `json:"code,omitempty"`
	// Message says what is wrong.
	Message string `json:"message,omitempty"`
	// Since is when it came to be so.
	Since *metav1.Time `json:"since,omitempty"`
}

// ConfigConflict is another config that wants something else of the same thing.
type ConfigConflict struct {
	// Config is the other one: KIND/NAME or KIND/NAMESPACE/NAME.
	Config string `json:"config"`
	// Claim is the first thing that both claim, such as path:/etc/motd, and Claims how many there are.
	Claim string `json:"claim,omitempty"`
	// Claims is how many there are.
	Claims int32 `json:"claims,omitempty"`
	// Field is the first field that differs.
	Field string `json:"field,omitempty"`
	// Value is what this config says, and OtherValue what the other one does.
	Value string `json:"value,omitempty"`
	// OtherValue is what the other config says.
	OtherValue string `json:"otherValue,omitempty"`
	// Kept is true where this config stays and the other one is kept out.
	Kept bool `json:"kept,omitempty"`
	// Nodes are the first 10 of the nodes, and NodeCount how many there are.
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
	// NodeCount is how many there are.
	NodeCount int32 `json:"nodeCount"`
	// Message says all that in one sentence.
	Message string `json:"message"`
}

// Declaration returns the config as package declare knows it. It shares memory with the config: change neither.
func (c *NodeConfig) Declaration() *declare.NodeConfig {
	return declaration(KindNodeConfig, &c.ObjectMeta, c.Spec)
}

// Declaration returns the config as package declare knows it. It shares memory with the config: change neither.
func (c *ClusterNodeConfig) Declaration() *declare.NodeConfig {
	return declaration(KindClusterNodeConfig, &c.ObjectMeta, c.Spec)
}

// declaration takes the kind from the Go type, because an object that a server has decoded carries none.
func declaration(kind string, meta *metav1.ObjectMeta, spec declare.NodeConfigSpec) *declare.NodeConfig {
	return &declare.NodeConfig{
		APIVersion: declare.APIVersion,
		Kind:       kind,
		Metadata: declare.Metadata{
			Name: meta.Name, Namespace: meta.Namespace, Labels: meta.Labels, Annotations: meta.Annotations,
		},
		Spec: spec,
	}
}
