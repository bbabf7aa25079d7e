package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Assignment is what one node is to have now: which revision of which config, and what is for this node alone. It has the name
// of its node, is written by tako alone and goes with its node. What the node's host gets signed follows from it: the version of
// a signed state is the resource version of the Assignment.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Assignment struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the node.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what the node is to have.
	Spec AssignmentSpec `json:"spec"`
}

// AssignmentList is a list of Assignments.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type AssignmentList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the assignments.
	Items []Assignment `json:"items"`
}

// AssignmentSpec is what one node is to have.
type AssignmentSpec struct {
	// NodeUID is the UID of the node, which tells it from an earlier one of the same name.
	NodeUID types.UID `json:"nodeUID"`
	// Environment is that of the node when this was decided.
	Environment string `json:"environment,omitempty"`
	// Layers are the revisions, the highest priority first: those of configs, at most 256, and those of workloads of which the node has instances, at
	// most 256.
	// +listType=atomic
	Layers []AssignedLayer `json:"layers,omitempty"`
	// Own is what is for this node alone. Left out when there is nothing.
	Own *OwnLayer `json:"own,omitempty"`
	// Entries is how many resources the layers have together, and Bytes how many bytes their bodies.
	Entries int64 `json:"entries,omitempty"`
	// Bytes is the size of all bodies.
	Bytes int64 `json:"bytes,omitempty"`
	// AllowDeletions is how many percent of what the host has may go at once with this. Default: what the host itself allows.
	AllowDeletions int32 `json:"allowDeletions,omitempty"`
	// FetchWindowSeconds is over how many seconds the hosts that get this spread fetching it. Left out where each does at once.
	FetchWindowSeconds int32 `json:"fetchWindowSeconds,omitempty"`
	// Absorbed are the orders of operators that what is declared has caught up with. A host takes none of those again, whoever brings it one.
	// +listType=atomic
	Absorbed []AbsorbedOrder `json:"absorbed,omitempty"`
	// Try is set while a revision in here is tried: the host goes back by itself unless that is confirmed.
	Try *AssignedTry `json:"try,omitempty"`
}

// AssignedLayer is one revision of one config, or of a workload, on a node.
type AssignedLayer struct {
	// Priority is the config's when that was decided.
	Priority int32 `json:"priority"`
	// Config is KIND/NAME or KIND/NAMESPACE/NAME; of a workload's revision it is Revision/NAMESPACE/NAME.
	Config string `json:"config"`
	// Revision is the name of the Revision or ClusterRevision.
	Revision string `json:"revision"`
	// Root is the root of the layer that the revision compiles to: 64 hexadecimal digits. It changes with the revision, and with
	// the Secrets and ConfigMaps that it names.
	Root string `json:"root"`
	// Since is when this revision was assigned.
	Since metav1.Time `json:"since"`
}

// AbsorbedOrder is the highest order about one config that was absorbed.
type AbsorbedOrder struct {
	// Config is KIND/NAME or KIND/NAMESPACE/NAME, of one of the layers.
	Config string `json:"config"`
	// Epoch is that of the order: its number says nothing of those of another one.
	Epoch int64 `json:"epoch"`
	// Number is that of the order. Those below it are absorbed too.
	Number int64 `json:"number"`
}

// OwnLayer is what is for one node alone.
type OwnLayer struct {
	// Root is the root of the layer: 64 hexadecimal digits.
	Root string `json:"root"`
	// Labels are those of the node, for conditions and expansions on the host.
	Labels map[string]string `json:"labels,omitempty"`
	// Keys open the secrets in the node's layers. Each is sealed to the node's own key.
	// +listType=atomic
	Keys []WrappedKey `json:"keys,omitempty"`
	// Holds are what the agent does not enforce now.
	// +listType=atomic
	Holds []NodeHold `json:"holds,omitempty"`
	// Peers are the nodes whose hosts that of this node asks while it reaches no server, in this order. They are of its environment and
	// zone, and drawn anew when a quarter of them has changed.
	// +listType=atomic
	Peers []NodePeer `json:"peers,omitempty"`
	// Instances are the instances of workloads that the node's host runs, by their UIDs. The templates of their revisions are among the layers.
	// +listType=atomic
	Instances []AssignedInstance `json:"instances,omitempty"`
}

// AssignedInstance is an Instance as its node's host gets it.
type AssignedInstance struct {
	// UID is that of the Instance.
	UID types.UID `json:"uid"`
	// Namespace is that of the Instance.
	Namespace string `json:"namespace"`
	// Name is that of the Instance.
	Name string `json:"name"`
	// Workload is the name of the workload.
	Workload string `json:"workload"`
	// Revision is the name of the Revision whose template it runs.
	Revision string `json:"revision"`
	// Slot is its number in the workload.
	Slot int32 `json:"slot,omitempty"`
	// Job says that its workload is one that ends.
	Job bool `json:"job,omitempty"`
	// LeaseSeconds is for how long the host may run it without hearing its servers. Left out where however long.
	LeaseSeconds int32 `json:"leaseSeconds,omitempty"`
	// Stop asks the host to end it.
	Stop bool `json:"stop,omitempty"`
}

// NodePeer is where the host of a node answers others.
type NodePeer struct {
	// Name is that of the node.
	Name string `json:"name"`
	// UID is that of the node. Whoever answers has to have its certificate.
	UID types.UID `json:"uid"`
	// Address is where it answers, HOST:PORT.
	Address string `json:"address"`
}

// WrappedKey is the key to one value of one Secret, sealed to one node.
type WrappedKey struct {
	// ID names the key: 32 hexadecimal digits. It follows from the secret's value.
	ID string `json:"id"`
	// Secret is NAMESPACE/NAME/KEY of the value, for people.
	Secret string `json:"secret"`
	// Sealed is the key, sealed to the node.
	Sealed []byte `json:"sealed"`
}

// AssignedTry is a state to go back to.
type AssignedTry struct {
	// Seconds is how long the host waits for the confirmation, by its own clock since it booted.
	Seconds int32 `json:"seconds"`
	// Config is what is tried.
	Config string `json:"config"`
	// Fallback is the root of the catalog to go back to: 64 hexadecimal digits.
	Fallback string `json:"fallback"`
	// Layers are what stood in the place of the layers above: they make up the fallback.
	// +listType=atomic
	Layers []AssignedLayer `json:"layers,omitempty"`
	// OwnRoot is the root of the own layer of the fallback; empty where it had none.
	OwnRoot string `json:"ownRoot,omitempty"`
}
