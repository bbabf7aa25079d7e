package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare/workload"
)

// Plan is a question: where would the instances of workloads of one namespace go if these were applied now, together? It is answered by who creates
// one, and nothing of it is stored.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Plan struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the namespace.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what would be applied.
	Spec PlanSpec `json:"spec"`
	// Status is the answer.
	Status PlanStatus `json:"status,omitzero"`
}

// PlanSpec is what would be applied and deleted. There is at least one of either, at most 200 together.
type PlanSpec struct {
	// Workloads are those that would be applied, whole, each once.
	// +listType=atomic
	Workloads []PlannedWorkload `json:"workloads,omitempty"`
	// Delete are the names of workloads that would be deleted.
	// +listType=atomic
	Delete []string `json:"delete,omitempty"`
}

// PlannedWorkload is a workload as it would be.
type PlannedWorkload struct {
	// Name is its name.
	Name string `json:"name"`
	// Annotations are its annotations.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Spec is its spec.
	Spec workload.Spec `json:"spec"`
}

// PlanStatus is what would come of it, if nothing else changes meanwhile and every instance that starts becomes ready.
type PlanStatus struct {
	// Workloads are those of the spec, in its order: what is applied, then what is deleted.
	// +listType=atomic
	Workloads []WorkloadPlan `json:"workloads,omitempty"`
	// Displaced are other workloads of which instances would make room: at most 100, those first that lose the most.
	// +listType=atomic
	Displaced []DisplacedWorkload `json:"displaced,omitempty"`
	// MoreDisplaced is how many more there are.
	MoreDisplaced int32 `json:"moreDisplaced,omitempty"`
	// Message says why the answer is about a part of the way only. Left out where it is about all of it.
	Message string `json:"message,omitempty"`
}

// WorkloadPlan is where the instances of a workload would be.
type WorkloadPlan struct {
	// Name is its name.
	Name string `json:"name"`
	// Wanted is how many instances there would be to be.
	Wanted int32 `json:"wanted"`
	// Placed is how many of them would have a node.
	Placed int32 `json:"placed"`
	// Kept counts the instances that would stay as they are.
	Kept int32 `json:"kept,omitempty"`
	// Changed counts those that would be changed in place, without a restart.
	Changed int32 `json:"changed,omitempty"`
	// Replaced counts those that would end, and have another one come for them.
	Replaced int32 `json:"replaced,omitempty"`
	// Added counts those that would come beside them.
	Added int32 `json:"added,omitempty"`
	// Removed counts those that would end, and have none come for them.
	Removed int32 `json:"removed,omitempty"`
	// Nodes are the nodes of all of these instances, by name: at most 500.
	// +listType=atomic
	Nodes []PlannedNode `json:"nodes,omitempty"`
	// MoreNodes is how many more there are.
	MoreNodes int32 `json:"moreNodes,omitempty"`
	// Domains count the instances that would be there by values of node labels: of the zone, and of those that its placement names. At most 100.
	// +listType=atomic
	Domains []PlannedDomain `json:"domains,omitempty"`
	// Pending says why instances would have no node. Left out where all would have one.
	Pending *PendingExplanation `json:"pending,omitempty"`
	// Phase is that of its status then: Complete, or where it would stay for now.
	Phase string `json:"phase,omitempty"`
	// Message says why it would stay there, for people.
	Message string `json:"message,omitempty"`
}

// PlannedNode is what becomes of a workload on one node.
type PlannedNode struct {
	// Name is its name.
	Name string `json:"name"`
	// Instances is how many would be there.
	Instances int32 `json:"instances"`
	// Added is how many of them are not there now.
	Added int32 `json:"added,omitempty"`
	// Changed is how many of them would be changed in place.
	Changed int32 `json:"changed,omitempty"`
	// Removed is how many that are there now would not be.
	Removed int32 `json:"removed,omitempty"`
}

// PlannedDomain is how many instances would be on nodes with one value of a label.
type PlannedDomain struct {
	// Key is the label.
	Key string `json:"key"`
	// Value is its value.
	Value string `json:"value"`
	// Instances is how many would be there.
	Instances int32 `json:"instances"`
}

// DisplacedWorkload is a workload of lower priority of which instances would make room.
type DisplacedWorkload struct {
	// Name is its name.
	Name string `json:"name"`
	// Displaced is how many would be told to go.
	Displaced int32 `json:"displaced"`
	// Pending is how many of the workload would have no node then.
	Pending int32 `json:"pending,omitempty"`
	// Nodes are where they go from: at most 10, by name.
	// +listType=atomic
	Nodes []string `json:"nodes"`
}
