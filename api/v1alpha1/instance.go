package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Instance is one placed copy of what a Workload runs. It is written by tako alone, bound to its node when it is made, and goes with its
// workload. It is controlled by the Workload whose UID its owner reference has, and named WORKLOAD-SLOT.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Instance struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the instance. Its namespace is that of its workload, whose name is in its label tako.dev/workload.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what it is a copy of, and where.
	Spec InstanceSpec `json:"spec"`
	// Status is what was heard of it.
	// +optional
	Status InstanceStatus `json:"status,omitzero"`
}

// InstanceList is a list of Instances.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type InstanceList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the instances.
	Items []Instance `json:"items"`
}

// InstanceSpec is what an instance is a copy of, and where. Only stop, the lease, and the revision where a change restarts nothing, change
// after it was made.
type InstanceSpec struct {
	// Workload is the name of the workload.
	Workload string `json:"workload"`
	// Revision is the name of the Revision whose template it runs.
	Revision string `json:"revision"`
	// Slot is its number in the workload, from 0. Of those that live no two have one.
	Slot int32 `json:"slot"`
	// Node is the name of the node.
	Node string `json:"node"`
	// NodeUID is the UID of the node, which tells it from an earlier one of the same name.
	NodeUID types.UID `json:"nodeUID"`
	// Job says that its workload is one that ends: a task of it that has ended is not started again, unless its template says so.
	Job bool `json:"job,omitempty"`
	// LeaseSeconds is for how long after it has heard its servers last the host may run it: then it ends it by its own clock. Left out where however
	// long. It changes with what the workload says of unreachable nodes.
	LeaseSeconds int32 `json:"leaseSeconds,omitempty"`
	// Replaces is the UID of an instance that was given up because its node was not heard, and for which this one stands in.
	Replaces types.UID `json:"replaces,omitempty"`
	// Stop asks it to end. Left out while it is to run.
	Stop *InstanceStop `json:"stop,omitempty"`
}

// InstanceStop says why an instance is to end.
type InstanceStop struct {
	// Code is the code of the reason, such as TK0902.
	Code string `json:"code"`
	// Since is when that was decided.
	Since metav1.Time `json:"since"`
}

// InstancePhase is how far an instance has come.
//
// +enum
type InstancePhase string

// The phases, in the order in which an instance goes through them.
const (
	InstancePlaced      InstancePhase = "Placed"      // its host has not begun
	InstanceStarting    InstancePhase = "Starting"    // begun, and not started yet
	InstanceRunning     InstancePhase = "Running"     // started
	InstanceTerminating InstancePhase = "Terminating" // asked to end; its processes may still run
	InstanceFailed      InstancePhase = "Failed"      // over for good, badly; nothing runs
	InstanceDone        InstancePhase = "Done"        // over for good, well; nothing runs
)

// InstanceStatus is what was heard of an instance. Of the phases Failed and Done are stored, and so is what is given up, and who wants it away;
// the rest is what the server that leads has heard, and stands nowhere else.
type InstanceStatus struct {
	// Phase is Placed, Starting, Running, Terminating, Failed or Done.
	Phase InstancePhase `json:"phase,omitempty"`
	// Ready says that it can be used, since readySince.
	Ready bool `json:"ready,omitempty"`
	// ReadySince is since when it is ready, by the clock of the server that leads.
	ReadySince *metav1.Time `json:"readySince,omitempty"`
	// Revision is the one that its host has taken in, and goes by. Left out where that is not known: spec.revision is the one that it is to have.
	Revision string `json:"revision,omitempty"`
	// Attempt is how often its host has started it.
	Attempt int64 `json:"attempt,omitempty"`
	// Restarts is how often its tasks were started again after an end of their own.
	Restarts int32 `json:"restarts,omitempty"`
	// Ports are the numbers of its ports by their names.
	Ports map[string]int32 `json:"ports,omitempty"`
	// Failure is why it does not work. Left out where nothing is known of that.
	Failure *InstanceFailure `json:"failure,omitempty"`
	// Ended is when it was over.
	Ended *metav1.Time `json:"ended,omitempty"`
	// Abandoned is when it was given up because its node was not heard. Left out while it counts.
	Abandoned *metav1.Time `json:"abandoned,omitempty"`
	// Losses is how often it was given up.
	Losses int32 `json:"losses,omitempty"`
	// Leave is who wants it away from its node. Left out where nobody does.
	Leave *InstanceLeave `json:"leave,omitempty"`
	// Requests are what its tasks request together, by resource: cpu in processors, memory and disk in bytes.
	Requests map[CapacityName]resource.Quantity `json:"requests,omitempty"`
	// Usage is what it takes, as its host has said last. Left out where that is not known.
	Usage *InstanceUsage `json:"usage,omitempty"`
}

// InstanceUsage is what an instance takes of its host.
type InstanceUsage struct {
	// At is when it was looked at.
	At metav1.Time `json:"at"`
	// CPU is how many processors it has used on average since it was looked at before. Left out where it was not.
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory is what it holds, in bytes.
	Memory resource.Quantity `json:"memory"`
}

// InstanceFailure is why an instance does not work.
type InstanceFailure struct {
	// Code is the code of the reason.
	Code string `json:"code"`
	// Message says why, for people, such as the last answer of a probe.
	Message string `json:"message,omitempty"`
	// Since is since when.
	Since metav1.Time `json:"since"`
	// OfNode says that it says nothing of the revision: the node had no room, or was taken away.
	OfNode bool `json:"ofNode,omitempty"`
}

// InstanceLeave is somebody's wish that an instance goes.
type InstanceLeave struct {
	// Code is the code of the reason: its node is drained, it was preempted, or its placement has changed.
	Code string `json:"code"`
	// Since is since when.
	Since metav1.Time `json:"since"`
	// Force is when it goes whatever the disruption budget says. Left out where never.
	Force *metav1.Time `json:"force,omitempty"`
	// For is the workload that it makes room for, NAMESPACE/NAME. Only where it was preempted: the wish ends when that has all that it wants.
	For string `json:"for,omitempty"`
}
