package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
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
	// Status is what was heard from the host, and who may speak for it; it is written by tako alone.
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
	Taints []declare.Taint `json:"taints,omitempty"`
	// Unschedulable keeps new instances off the node; what runs there stays. Default false.
	Unschedulable bool `json:"unschedulable,omitempty"`
	// Drain takes the instances of workloads off the node, within their disruption budgets, and keeps new ones away. How far that has come the
	// condition Drained says. Left out, they stay.
	Drain *NodeDrain `json:"drain,omitempty"`
	// Holds are resources that the node's agent looks at and does not change. At most 100.
	// +listType=atomic
	Holds []NodeHold `json:"holds,omitempty"`
	// ApprovedKey lets a host join under this name that has another key than the one before: it is the status's joinRequest.key
	// of that host. The old key is refused from then on.
	ApprovedKey string `json:"approvedKey,omitempty"`
	// RejectedKey ends the status's joinRequest of the host that has this key. What it asks for later is refused as before, and not shown any
	// more. Left out or changed, it is shown again when it asks.
	RejectedKey string `json:"rejectedKey,omitempty"`
	// AllowDeletions is the root of a state that was withheld because it deletes much, as the status's verdict names it: with it,
	// the host may go there.
	AllowDeletions string `json:"allowDeletions,omitempty"`
}

// NodeTaint is a taint of a node, with since when it is there.
type NodeTaint struct {
	// Key is that of the taint.
	Key string `json:"key"`
	// Value is that of the taint.
	Value string `json:"value,omitempty"`
	// Since is when the server was told of it.
	Since metav1.Time `json:"since"`
}

// NodeDrain says how the instances of workloads leave a node.
type NodeDrain struct {
	// Deadline is when what is still there is ended whatever the disruption budgets say. Left out, they hold for ever.
	Deadline *metav1.Time `json:"deadline,omitempty"`
}

// NodeHold says what is not enforced, why, by whom and until when.
type NodeHold struct {
	// Config is KIND/NAME or KIND/NAMESPACE/NAME of the config whose resources are held. Default all.
	Config string `json:"config,omitempty"`
	// Resource is the claim of the resource that is held, such as path:/etc/motd. Default all.
	Resource string `json:"resource,omitempty"`
	// Reason is for whoever finds it.
	Reason string `json:"reason"`
	// Owner is who holds it.
	Owner string `json:"owner"`
	// Until is when it ends by itself.
	Until metav1.Time `json:"until"`
}

// NodeStatus is what was heard from a host.
type NodeStatus struct {
	// ObservedGeneration is the metadata.generation that the rest of the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Facts are what the host observes of itself, by the names that expressions use, without "facts.": os.family is "debian".
	// Numbers stand in decimal digits, the texts of a list with a space between them. A fact that the host does not know is left out. At
	// most 256, with 64 KiB for them, the disks and the interfaces together. What the host's administrator has written down as own facts
	// stays there. Facts select nothing.
	Facts map[string]string `json:"facts,omitempty"`
	// Disks are what the host knows of each disk that facts name, by name: at most 64.
	// +listType=atomic
	Disks []NodeDisk `json:"disks,omitempty"`
	// Interfaces are what the host knows of each network interface that other hosts can reach, by name: at most 64, with at most 64 addresses
	// in all.
	// +listType=atomic
	Interfaces []NodeInterface `json:"interfaces,omitempty"`
	// Capacity is what the host has in all, by resource: cpu in processors, memory in bytes.
	Capacity map[CapacityName]resource.Quantity `json:"capacity,omitempty"`
	// Offers is what the host has for instances of workloads. Left out of hosts that run none.
	Offers *NodeOffers `json:"offers,omitempty"`
	// Taints are those of the spec that instances leave (effect NoExecute), with since when: tolerationSeconds count from there.
	// +listType=atomic
	Taints []NodeTaint `json:"taints,omitempty"`
	// AppliedHead is the signed state that the host enforces. Left out until it has reported one.
	AppliedHead *AppliedHead `json:"appliedHead,omitempty"`
	// AssignedHead is the newest signed state for the host. While it differs from appliedHead, the host is behind, and since says for how
	// long: since when it was last at its newest one, however many came meanwhile.
	AssignedHead *AppliedHead `json:"assignedHead,omitempty"`
	// Verdict is what the host has said of the newest state that it was given. Left out until it has.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Problems are resources that are not as declared, the worst first: at most 10. The host itself knows all.
	// +listType=atomic
	Problems []ResourceProblem `json:"problems,omitempty"`
	// Statements are orders of operators that the host enforces in place of what is declared, and those that it has refused: at most 64.
	// +listType=atomic
	Statements []LayerStatement `json:"statements,omitempty"`
	// Held counts resources that are held.
	Held int32 `json:"held,omitempty"`
	// Disbelieved counts what the host was sent and did not believe. Left out while it is nothing.
	Disbelieved *Disbelieved `json:"disbelieved,omitempty"`
	// Agent is the program that was heard last.
	Agent *NodeAgent `json:"agent,omitempty"`
	// Identity is who may speak for the node: left out until a host has joined as it.
	Identity *NodeIdentity `json:"identity,omitempty"`
	// JoinRequest waits for a person to decide, by spec.approvedKey or spec.rejectedKey: a host with another key wants to have the name of
	// this node.
	JoinRequest *JoinRequest `json:"joinRequest,omitempty"`
	// Promises counts what the node must have by what became of it.
	// +optional
	Promises PromiseCounts `json:"promises,omitzero"`
	// Delivered is how many values of data the host has, which nothing is done about.
	Delivered int64 `json:"delivered,omitempty"`
	// LastHeard is when the host was last heard from. Left out until it was.
	LastHeard *metav1.Time `json:"lastHeard,omitempty"`
	// Server is the address that the host has called last, of a server or of a relay, as the host knows it: HOST:PORT. Left out of agents that
	// do not tell.
	Server string `json:"server,omitempty"`
	// Through is the name of the relay that stands at that address, as its certificate says. Left out when it is a server's.
	Through string `json:"through,omitempty"`
	// FromPeer is what the host has got from the host of another node while it reached no server, since its agent started. Left out where that was
	// nothing.
	FromPeer *NodeNews `json:"fromPeer,omitempty"`
	// Conditions are Ready, Reconciling and Stalled, each with a reason and words for a person.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// NodeNews is that the host of another node has had something new for this one: a signed state, or an order.
type NodeNews struct {
	// Node is the name of the other one.
	Node string `json:"node"`
	// At is when that was last.
	At metav1.Time `json:"at"`
}

// LayerStatement is an order of an operator: what a config declares on a host, signed without a server.
type LayerStatement struct {
	// Config is KIND/NAME or KIND/NAMESPACE/NAME of the config.
	Config string `json:"config"`
	// Number is that of the order: the highest counts.
	Number int64 `json:"number"`
	// Root is that of its resources: sha256: and 64 hexadecimal digits.
	Root string `json:"root"`
	// Code is why the host has refused it. Left out where it is in force.
	Code string `json:"code,omitempty"`
	// Message says more of that.
	Message string `json:"message,omitempty"`
}

// NodeDisk is a disk of a host, real or of the virtual machine's maker: not what is made of others, such as LVM, RAID and loop devices.
type NodeDisk struct {
	// Name is what it is called there: sda.
	Name string `json:"name"`
	// Size is how much is on it.
	Size resource.Quantity `json:"size"`
	// Model is as the disk says it. Left out where it says nothing.
	Model string `json:"model,omitempty"`
	// Rotational says that it turns. Default false.
	Rotational bool `json:"rotational,omitempty"`
}

// NodeInterface is a network interface of a host that is up and that other hosts can reach.
type NodeInterface struct {
	// Name is what it is called there: eth0.
	Name string `json:"name"`
	// MAC is its hardware address: 52:54:00:12:34:56. Left out where it has none.
	MAC string `json:"mac,omitempty"`
	// Addresses are its addresses that other hosts can use, without the length of their prefix.
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
}

// VerdictType is what a host makes of a signed state.
//
// +enum
type VerdictType string

// The verdicts.
const (
	// VerdictPending: it is being fetched or applied.
	VerdictPending VerdictType = "Pending"
	// VerdictApplied: all of it is as declared.
	VerdictApplied VerdictType = "Applied"
	// VerdictPartial: all of it is enforced, and some of it is not as declared.
	VerdictPartial VerdictType = "Partial"
	// VerdictRejected: it cannot be enforced, and the one before is.
	VerdictRejected VerdictType = "Rejected"
	// VerdictWithheld: it deletes much, and waits for consent.
	VerdictWithheld VerdictType = "Withheld"
	// VerdictQuarantined: it has crashed the agent, and the one before is enforced.
	VerdictQuarantined VerdictType = "Quarantined"
)

// Verdict is what a host makes of a signed state.
type Verdict struct {
	// Type is Pending, Applied, Partial, Rejected, Withheld or Quarantined.
	Type VerdictType `json:"type"`
	// Version is the version of the state that it is about.
	Version int64 `json:"version"`
	// Root is the root of that state: sha256: and 64 hexadecimal digits.
	Root string `json:"root,omitempty"`
	// Code is the code of the reason, such as TK0431, where there is one.
	Code string `json:"code,omitempty"`
	// Message says why, for people.
	Message string `json:"message,omitempty"`
	// Since is when the host came to it.
	Since metav1.Time `json:"since"`
}

// ResourceProblem is one resource on one host that is not as declared.
type ResourceProblem struct {
	// Resource is TYPE/NAME.
	Resource string `json:"resource"`
	// Claim is what it claims, such as path:/etc/motd.
	Claim string `json:"claim"`
	// Config is who declares it: KIND/NAME or KIND/NAMESPACE/NAME.
	Config string `json:"config"`
	// Outcome is failed, blocked, deferred, contended or unknown.
	Outcome string `json:"outcome"`
	// Code is the code of the reason.
	Code string `json:"code,omitempty"`
	// Message says why, for people.
	Message string `json:"message,omitempty"`
	// Since is when it came to be so.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// RetryAt is when the agent tries again.
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
}

// Disbelieved counts, since the agent was installed, what it was sent and did not believe: it has done nothing with it.
type Disbelieved struct {
	// Forged counts signed states with a wrong signature, or for somebody else.
	Forged int64 `json:"forged,omitempty"`
	// Old counts signed states that are older than what the host had.
	Old int64 `json:"old,omitempty"`
	// Equivocation counts signed states that say something else under the same version.
	Equivocation int64 `json:"equivocation,omitempty"`
	// Content counts parts of a state that are not what was asked for.
	Content int64 `json:"content,omitempty"`
}

// NodeAgent is the agent of a host.
type NodeAgent struct {
	// Version is the version of tako-agent.
	Version string `json:"version,omitempty"`
	// Session is random, and another one for each start.
	Session string `json:"session"`
	// Starts is how often it has started on this host.
	Starts int64 `json:"starts"`
	// Usage is what it takes of the host, as it was with its last report. Left out of agents that do not tell.
	Usage *AgentUsage `json:"usage,omitempty"`
}

// AgentUsage is what an agent takes of its host, and what the commands take that it runs.
type AgentUsage struct {
	// CPU is the processor time that the agent has taken since it started.
	CPU metav1.Duration `json:"cpu"`
	// Memory is what of the host's memory the agent holds.
	Memory resource.Quantity `json:"memory"`
	// AnonymousMemory is the part of it that is no file's: what is free when the agent ends.
	AnonymousMemory resource.Quantity `json:"anonymousMemory"`
	// CommandsCPU is the processor time of the commands that have ended since the agent started, with all that they ran.
	CommandsCPU metav1.Duration `json:"commandsCPU"`
	// CommandsMemory is the most memory that one process of them has held.
	CommandsMemory resource.Quantity `json:"commandsMemory"`
}

// NodeIdentity is who may speak for a node.
type NodeIdentity struct {
	// Key is the digest of the public key in the host's certificates: sha256: and 64 hexadecimal digits.
	Key string `json:"key"`
	// SealingKey is the public key that secrets for the host are sealed to.
	SealingKey []byte `json:"sealingKey"`
	// Joined is when the host joined.
	Joined metav1.Time `json:"joined"`
	// Token is the name of the Token that it joined with; empty when a person has approved it.
	Token string `json:"token,omitempty"`
}

// JoinRequest is a host that wants to join under a name that another one has.
type JoinRequest struct {
	// Key is the digest of its public key: sha256: and 64 hexadecimal digits.
	Key string `json:"key"`
	// From is the address that it came from.
	From string `json:"from"`
	// At is when it asked last.
	At metav1.Time `json:"at"`
}

// CapacityName names something that a node has a countable amount of.
type CapacityName string

// What a node has.
const (
	CapacityCPU    CapacityName = "cpu"    // processors
	CapacityMemory CapacityName = "memory" // bytes
	CapacityDisk   CapacityName = "disk"   // bytes, where instances write
)

// NodeOffers is what a host has for instances of workloads.
type NodeOffers struct {
	// Allocatable is how much all instances together may ask for, by resource: cpu in processors, memory and disk in bytes.
	Allocatable map[CapacityName]resource.Quantity `json:"allocatable"`
	// Address is where instances are reached.
	Address string `json:"address,omitempty"`
	// Architecture is that of its processors: amd64, arm64.
	Architecture string `json:"architecture,omitempty"`
	// Runtimes are those that it has: Systemd, Process, OCI; and OCI/Own where instances can have networks of their own.
	// +listType=atomic
	Runtimes []string `json:"runtimes,omitempty"`
	// Devices counts pieces of hardware by their kinds.
	Devices map[string]int32 `json:"devices,omitempty"`
	// Directories are those of the host that instances may mount.
	// +listType=atomic
	Directories []string `json:"directories,omitempty"`
	// Images are those that instances can be started from without fetching one: digests of archives, and paths; the ones that were used last, at
	// most 32.
	// +listType=atomic
	Images []string `json:"images,omitempty"`
}

// AppliedHead names a signed state of one node.
type AppliedHead struct {
	// Epoch is the fleet's epoch at the time of signing. It grows when the fleet is restored from a backup.
	Epoch int64 `json:"epoch"`
	// Version grows with every change within an epoch.
	Version int64 `json:"version"`
	// Root is the digest of everything that the node must have: sha256: and 64 hexadecimal digits.
	Root string `json:"root"`
	// Since is when it came to be so. Left out where nobody knows.
	Since *metav1.Time `json:"since,omitempty"`
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
