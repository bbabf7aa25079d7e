package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a host as the fleet knows it. Its labels are decided by people, never by the host; what the host observes of itself
// is status.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Node struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the node. Its labels are what selectors see. Its UID is the identity in the host's certificate.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what people have decided about the host.
	// +optional
	Spec NodeSpec `json:"spec,omitzero"`
	// Status is what was heard from the host; it is written by tako alone, through the status subresource.
	// +optional
	Status NodeStatus `json:"status,omitzero"`
}

// NodeList is a list of Nodes.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type NodeList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the nodes.
	Items []Node `json:"items"`
}

// NodeSpec is what people have decided about a host.
type NodeSpec struct {
	// Environment is the name of the namespace whose NodeConfigs are for this node. Changing it moves the host to another
	// environment: other configs, other secrets. Empty puts it into none, and only ClusterNodeConfigs are for it.
	Environment string `json:"environment,omitempty"`
	// Taints keep off what does not tolerate them. At most one for each key and effect.
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	Taints []Taint `json:"taints,omitempty"`
	// Unschedulable keeps new instances off the node; what runs there stays. Default false.
	Unschedulable bool `json:"unschedulable,omitempty"`
}

// Taint keeps off a node what does not tolerate it.
type Taint struct {
	// Key has the form of a label's key.
	Key string `json:"key"`
	// Value has the form of a label's value. Default empty.
	Value string `json:"value,omitempty"`
	// Effect is NoSchedule, PreferNoSchedule or NoExecute.
	Effect TaintEffect `json:"effect"`
}

// TaintEffect is what a taint does, with the meaning that Kubernetes gives it.
//
// +enum
type TaintEffect string

// The effects of taints.
const (
	// TaintNoSchedule lets no new instance onto the node.
	TaintNoSchedule TaintEffect = "NoSchedule"
	// TaintPreferNoSchedule lets no new instance onto the node where another one will do.
	TaintPreferNoSchedule TaintEffect = "PreferNoSchedule"
	// TaintNoExecute lets no new instance onto the node, and those that are there leave.
	TaintNoExecute TaintEffect = "NoExecute"
)

// NodeStatus is what was heard from a host.
type NodeStatus struct {
	// ObservedGeneration is the metadata.generation that the rest of the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Facts are what the host observes of itself, by the names that expressions use, without "facts.": os.family is "debian".
	// Numbers stand in decimal digits. A fact that the host does not know is left out.
	Facts map[string]string `json:"facts,omitempty"`
	// Capacity is what the host has in all, by resource: cpu in processors, memory in bytes.
	Capacity map[CapacityName]resource.Quantity `json:"capacity,omitempty"`
	// AppliedHead is the signed state that the host enforces. Left out until it has reported one.
	AppliedHead *AppliedHead `json:"appliedHead,omitempty"`
	// Promises counts what the node must have by what became of it.
	// +optional
	Promises PromiseCounts `json:"promises,omitzero"`
	// LastHeard is when the host was last heard from. Left out until it was.
	LastHeard *metav1.Time `json:"lastHeard,omitempty"`
	// Conditions are Ready, Reconciling and Stalled, each with a reason and words for a person.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// CapacityName names something that a node has a countable amount of.
type CapacityName string

// What a node has.
const (
	CapacityCPU    CapacityName = "cpu"    // processors
	CapacityMemory CapacityName = "memory" // bytes
)

// AppliedHead names a signed state of one node.
type AppliedHead struct {
	// Epoch is the fleet's epoch at the time of signing. It grows when the fleet is restored from a backup.
	Epoch int64 `json:"epoch"`
	// Version grows with every change within an epoch.
	Version int64 `json:"version"`
	// Root is the digest of everything that the node must have: sha256: and 64 hexadecimal digits.
	Root string `json:"root"`
}

// PromiseCounts counts the resources of one node by their outcome. Each resource is counted once.
type PromiseCounts struct {
	// Kept are as declared, and were so when they were looked at.
	Kept int32 `json:"kept,omitempty"`
	// Repaired are as declared because the agent made them so.
	Repaired int32 `json:"repaired,omitempty"`
	// Failed are not as declared, and the agent could not make them so.
	Failed int32 `json:"failed,omitempty"`
	// Blocked wait for another resource that is not as declared.
	Blocked int32 `json:"blocked,omitempty"`
	// Deferred wait for a lock, a time window or a rate limit.
	Deferred int32 `json:"deferred,omitempty"`
	// Contended are changed back by somebody else again and again.
	Contended int32 `json:"contended,omitempty"`
	// NotApplicable have a condition that is false on this host.
	NotApplicable int32 `json:"notApplicable,omitempty"`
	// Unknown have not been looked at yet, or the host has fallen silent.
	Unknown int32 `json:"unknown,omitempty"`
}
