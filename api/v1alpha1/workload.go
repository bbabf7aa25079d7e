package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// Workload declares tasks that run somewhere on the nodes of its namespace's environment: which, how many, where, and how they change.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Workload struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the workload. The namespace is the environment on whose nodes it runs. The name is one of DNS, up to 52 signs.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is declared; it is written by people and programs, and never by tako.
	Spec workload.Spec `json:"spec"`
	// Status is what became of it; it is written by tako alone, through the status subresource.
	// +optional
	Status WorkloadStatus `json:"status,omitzero"`
}

// WorkloadList is a list of Workloads.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type WorkloadList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the workloads.
	Items []Workload `json:"items"`
}

// Declaration is the workload as it would stand in a file.
func (w *Workload) Declaration() *workload.Declaration {
	return &workload.Declaration{
		APIVersion: declare.APIVersion, Kind: workload.Kind, Metadata: declare.Metadata{Name: w.Name, Namespace: w.Namespace}, Spec: w.Spec,
	}
}

// WorkloadStatus is what became of a workload. Everything that decisions depend on is here: another leader goes on where the last one stopped.
type WorkloadStatus struct {
	// ObservedGeneration is the metadata.generation that the rest of the status is about. While it is less than the generation, nobody has
	// acted upon the last change yet.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is how it stands: Empty, Complete, Rolling, Waiting, Halted, Paused, Monitoring, RollingBack, RolledBack or Stopping.
	Phase string `json:"phase,omitempty"`
	// Since is when it came to that phase with that target.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Message says why, for people.
	Message string `json:"message,omitempty"`
	// Wanted is how many instances there are to be: what is declared, or what scaling makes of it.
	Wanted int32 `json:"wanted"`
	// Replicas counts the instances that there are, without those that are ending and those that were given up.
	Replicas int32 `json:"replicas"`
	// UpdatedReplicas counts those of them whose hosts say that they have the revision which instances are to have.
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`
	// PendingReplicas counts those that are wanted and have no node.
	PendingReplicas int32 `json:"pendingReplicas,omitempty"`
	// ReadyReplicas counts those of them that are ready.
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// AvailableReplicas counts those of them that have been ready for long enough, on nodes that are heard.
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`
	// UnreachableReplicas counts those of them on nodes that are silent or gone, and UnheardReplicas those on nodes of which the server that leads
	// has not heard yet.
	UnreachableReplicas int32 `json:"unreachableReplicas,omitempty"`
	// UnheardReplicas counts those on nodes of which the server that leads has not heard yet.
	UnheardReplicas int32 `json:"unheardReplicas,omitempty"`
	// TerminatingReplicas counts those that were asked to end and may still run.
	TerminatingReplicas int32 `json:"terminatingReplicas,omitempty"`
	// AbandonedReplicas counts those that were given up because their nodes were not heard.
	AbandonedReplicas int32 `json:"abandonedReplicas,omitempty"`
	// Selector picks the instances by their labels, in text form: what the scale subresource wants.
	Selector string `json:"selector,omitempty"`
	// Rollout is how far the newest revision has come. Left out until somebody has looked.
	Rollout *WorkloadRollout `json:"rollout,omitempty"`
	// Stable is the last revision whose rollout has come to its end: the way back.
	Stable string `json:"stable,omitempty"`
	// StableAt is when it had.
	StableAt *metav1.Time `json:"stableAt,omitempty"`
	// Failed are the revisions whose rollouts have failed, the latest at the end: at most 10.
	// +listType=atomic
	Failed []FailedRevision `json:"failed,omitempty"`
	// Collisions counts revisions whose templates would have had one name.
	Collisions int32 `json:"collisions,omitempty"`
	// Budget grows with each decision that takes instances away on purpose.
	Budget int64 `json:"budget,omitempty"`
	// Taken are instances that were taken away on purpose, and may still look as if they were not: at most 100.
	// +listType=atomic
	Taken []TakenInstance `json:"taken,omitempty"`
	// BackoffFailed is how often an instance has ended badly since all were available, and BackoffUntil before when none is made anew.
	BackoffFailed int32 `json:"backoffFailed,omitempty"`
	// BackoffUntil is before when none is made anew.
	BackoffUntil *metav1.MicroTime `json:"backoffUntil,omitempty"`
	// Data says which nodes have the data of which instances. Only with data volumes, by node.
	// +listType=atomic
	Data []WorkloadHome `json:"data,omitempty"`
	// Picks is a digest of what picks nodes, selector and architectures, for which all instances were looked at: those on nodes that it picks no
	// more are told to leave.
	Picks string `json:"picks,omitempty"`
	// Culprits are the instances that hold it up: at most 10.
	// +listType=atomic
	Culprits []WorkloadCulprit `json:"culprits,omitempty"`
	// Leaving are the instances whose leaving is held up by the disruption budget: at most 10.
	// +listType=atomic
	Leaving []WorkloadCulprit `json:"leaving,omitempty"`
	// Pending says why instances have no node. Left out while all have one.
	Pending *PendingExplanation `json:"pending,omitempty"`
	// Job is how a job stands. Only with mode Job without a schedule.
	Job *JobStatus `json:"job,omitempty"`
	// Schedule is how a scheduled job stands.
	Schedule *ScheduleStatus `json:"schedule,omitempty"`
	// Scale is how the scaling stands. Only where scale is declared.
	Scale *ScaleStatus `json:"scale,omitempty"`
	// Conditions are Ready, Reconciling and Stalled, each with a reason and words for a person.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// WorkloadRollout is how far the rollout of one revision has come. Another one begins with a new one.
type WorkloadRollout struct {
	// Target is the name of the Revision that is declared.
	Target string `json:"target"`
	// Goal is the name of the Revision that instances are to have: the target, or what it was rolled back to.
	Goal string `json:"goal"`
	// Over says that it has come to its end, there or back.
	Over bool `json:"over,omitempty"`
	// Halt is why it stays where it is. Left out where it does not.
	Halt *FailedRevision `json:"halt,omitempty"`
	// Step is of a canary the one that is under way; 0 is the first.
	Step int32 `json:"step,omitempty"`
	// Held is since when the step, or the green half, has been available.
	Held *metav1.MicroTime `json:"held,omitempty"`
	// Passed is when the green half took over.
	Passed *metav1.MicroTime `json:"passed,omitempty"`
	// Ended is since when everything has had the goal and been available.
	Ended *metav1.MicroTime `json:"ended,omitempty"`
	// Clock is since when nothing has gone on; in the future while something is waited for. Left out while it stands still.
	Clock *metav1.MicroTime `json:"clock,omitempty"`
	// Scaled is when the number that is wanted changed last. Left out where it has not in this rollout.
	Scaled *metav1.MicroTime `json:"scaled,omitempty"`
	// BestAvailable is how many instances have had the goal and been available at most.
	BestAvailable int32 `json:"bestAvailable,omitempty"`
	// BestOld is how many instances have had something else at least.
	BestOld int32 `json:"bestOld,omitempty"`
	// Failures is how many instances have failed, each once.
	Failures int32 `json:"failures,omitempty"`
	// Counted are UIDs of those that may still be seen: at most 100.
	// +listType=atomic
	Counted []types.UID `json:"counted,omitempty"`
}

// FailedRevision is a revision whose rollout has failed.
type FailedRevision struct {
	// Revision is its name.
	Revision string `json:"revision"`
	// Code is the code of the reason, such as TK0906.
	Code string `json:"code"`
	// Message says why, for people.
	Message string `json:"message,omitempty"`
	// At is when it had.
	At metav1.Time `json:"at"`
}

// TakenInstance is an instance that was taken away on purpose.
type TakenInstance struct {
	// UID is that of the Instance.
	UID types.UID `json:"uid"`
	// Code is the code of the reason.
	Code string `json:"code"`
}

// WorkloadHome is a node that has data of instances.
type WorkloadHome struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Slots are the numbers of the instances whose data it has.
	// +listType=atomic
	Slots []int32 `json:"slots"`
	// Spare are those of them that nobody is to have until more instances are wanted.
	// +listType=atomic
	Spare []int32 `json:"spare,omitempty"`
}

// WorkloadCulprit is an instance that holds something up.
type WorkloadCulprit struct {
	// Instance is its name.
	Instance string `json:"instance,omitempty"`
	// Node is the name of its node.
	Node string `json:"node,omitempty"`
	// Code is the code of the reason.
	Code string `json:"code"`
	// Message says why, for people.
	Message string `json:"message,omitempty"`
	// Since is since when. Left out where that is not known.
	Since *metav1.Time `json:"since,omitempty"`
}

// PendingExplanation says why instances have no node: of all nodes, how many each reason has kept away.
type PendingExplanation struct {
	// Since is since when some have none.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Instances is how many have none.
	Instances int32 `json:"instances"`
	// Placed is how many of those that were asked for with them have one.
	Placed int32 `json:"placed,omitempty"`
	// Nodes is how many nodes were looked at.
	Nodes int32 `json:"nodes"`
	// Reasons are why nodes take none, in the order in which they are asked: how many are left after each.
	// +listType=atomic
	Reasons []PendingReason `json:"reasons,omitempty"`
	// Nearest are the nodes that were nearest to taking one, with what would make it fit: at most 3.
	// +listType=atomic
	Nearest []NearMiss `json:"nearest,omitempty"`
	// Message says it in one line.
	Message string `json:"message,omitempty"`
}

// PendingReason is one reason why nodes take no instance.
type PendingReason struct {
	// Reason is such as memory, taint or spread.
	Reason string `json:"reason"`
	// Nodes is how many nodes it has kept away.
	Nodes int32 `json:"nodes"`
	// Left is how many nodes are left after it and those before it.
	Left int32 `json:"left"`
	// Example is the name of one of them.
	Example string `json:"example,omitempty"`
	// Message says it of the example: "needs 512Mi memory, 128Mi is free".
	Message string `json:"message,omitempty"`
}

// NearMiss is a node that was near to taking an instance.
type NearMiss struct {
	// Node is its name.
	Node string `json:"node"`
	// Cures are what would make it fit: "+512Mi memory".
	// +listType=atomic
	Cures []string `json:"cures"`
}

// JobStatus is how a job stands.
type JobStatus struct {
	// Succeeded counts instances that have ended with exit code 0, and Failed those that have not.
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed counts instances that have failed.
	Failed int32 `json:"failed,omitempty"`
	// Counted are UIDs of instances that are counted, and are still there: at most 500.
	// +listType=atomic
	Counted []types.UID `json:"counted,omitempty"`
	// FailedInARow is how many have failed since one has succeeded.
	FailedInARow int32 `json:"failedInARow,omitempty"`
	// LastFailure is when the last of them did.
	LastFailure *metav1.MicroTime `json:"lastFailure,omitempty"`
	// Result is what became of it: Complete, FailedTooOften, DeadlineExceeded or Replaced. Left out while it goes on.
	Result string `json:"result,omitempty"`
	// Over is when nothing of it ran any more after that.
	Over *metav1.MicroTime `json:"over,omitempty"`
}

// ScheduleStatus is how a scheduled job stands.
type ScheduleStatus struct {
	// Last is the scheduled time that was dealt with last, or when the schedule was declared.
	Last *metav1.Time `json:"last,omitempty"`
	// Cron and TimeZone are the schedule that it is of.
	Cron string `json:"cron,omitempty"`
	// TimeZone is that of the schedule that it is of.
	TimeZone string `json:"timeZone,omitempty"`
	// Suspended says that it was when that was decided.
	Suspended bool `json:"suspended,omitempty"`
	// Next is when the next run begins. Left out where there is none.
	Next *metav1.Time `json:"next,omitempty"`
	// Active are the names of the runs that are not over: at most 100.
	// +listType=atomic
	Active []string `json:"active,omitempty"`
}

// ScaleStatus is how the scaling of a workload stands.
type ScaleStatus struct {
	// Decided is when a number was decided for the first time.
	Decided *metav1.MicroTime `json:"decided,omitempty"`
	// Replicas is the number decided.
	Replicas int32 `json:"replicas"`
	// Declared is what was declared then.
	Declared int32 `json:"declared"`
	// Up are the numbers asked for since the current one is too low without a break, Down since it is too high.
	// +optional
	Up ScalePhase `json:"up,omitzero"`
	// Down are those asked for since it is too high.
	// +optional
	Down ScalePhase `json:"down,omitzero"`
	// Grown are the changes upwards that still count, the oldest first.
	// +listType=atomic
	Grown []ScaleStep `json:"grown,omitempty"`
	// Shrunk are those downwards.
	// +listType=atomic
	Shrunk []ScaleStep `json:"shrunk,omitempty"`
	// Message says why it is that number, for people, as it was found at most a minute before the status was written.
	Message string `json:"message,omitempty"`
	// Code is why that may not be the number that the load needs: TK0780 where something is not measured, TK0781 where the bounds allow no more. Left out
	// where nothing speaks against it.
	Code string `json:"code,omitempty"`
}

// ScalePhase is a while in which all numbers asked for were on one side of the current one.
type ScalePhase struct {
	// Since is when it began.
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Asked are the numbers that may still decide, the oldest first.
	// +listType=atomic
	Asked []ScaleAsked `json:"asked,omitempty"`
}

// ScaleAsked is a number that was asked for.
type ScaleAsked struct {
	// At is when it was for the last time.
	At metav1.MicroTime `json:"at"`
	// Replicas is the number.
	Replicas int32 `json:"replicas"`
}

// ScaleStep is one change of the number.
type ScaleStep struct {
	// At is when.
	At metav1.MicroTime `json:"at"`
	// By is by how much.
	By int32 `json:"by"`
}
