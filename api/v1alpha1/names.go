package v1alpha1

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// The kinds.
const (
	KindNodeConfig        = declare.KindNodeConfig
	KindClusterNodeConfig = declare.KindClusterNodeConfig
	KindRevision          = "Revision"
	KindClusterRevision   = "ClusterRevision"
	KindNode              = "Node"
	KindAssignment        = "Assignment"
	KindToken             = "Token"
	KindSource            = "Source"
	KindServer            = "Server"
	KindWorkload          = workload.Kind
	KindInstance          = "Instance"
	KindPlan              = "Plan"
)

// The resources: the kinds as they stand in the path of a request.
const (
	ResourceNodeConfigs        = "nodeconfigs"
	ResourceClusterNodeConfigs = "clusternodeconfigs"
	ResourceRevisions          = "revisions"
	ResourceClusterRevisions   = "clusterrevisions"
	ResourceNodes              = "nodes"
	ResourceAssignments        = "assignments"
	ResourceTokens             = "tokens"
	ResourceSources            = "sources"
	ResourceServers            = "servers"
	ResourceWorkloads          = "workloads"
	ResourceInstances          = "instances"
	ResourcePlans              = "plans"
)

// The types of conditions, with the meaning that kstatus gives them. All are True, False or Unknown.
const (
	// ConditionReady is True when the object is as declared, with the generation that the condition names.
	ConditionReady = "Ready"
	// ConditionReconciling is True while work on the object's generation goes on. It is absent otherwise.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while work cannot go on until somebody changes something. It is absent otherwise.
	ConditionStalled = "Stalled"
	// ConditionRevised says of a config whether the revision of a generation is made. What follows from it for the nodes is in Ready.
	ConditionRevised = "Revised"
	// ConditionDrained is True on a node that is to be drained when nothing of any instance runs there any more. It is absent on others.
	ConditionDrained = "Drained"
	// ConditionConflict is True on a config that another config keeps out of nodes, or that keeps another one out. It is absent
	// otherwise.
	ConditionConflict = "Conflict"
)

// The subresources of a Node that are questions to its host. They are read with GET; who may read one has the right to get it.
const (
	NodeHistory  = "history"  // what happened there
	NodeLogs     = "logs"     // of the agent, and of units that it manages
	NodeEvidence = "evidence" // how one resource stands, and why
	NodeUsage    = "usage"    // what the agent itself takes
	NodeGraph    = "graph"    // the order of its resources, and the reason of each
)

// NodeExport is the subresource of a Node with what its host is sent: it is read with GET, by those who bring it there by hand. It holds all
// that the host is to have, with values of Secrets in the form that this host alone can open.
const NodeExport = "export"

// LabelConfigUID is the label of a Revision that holds the UID of the config it is a copy of. It is the UID because a config's
// name may be longer than a label's value.
const LabelConfigUID = "tako.dev/config-uid"

// LabelWorkload is the label of an Instance, and of the Revision of a Workload, that holds the name of the workload.
const LabelWorkload = "tako.dev/workload"

// AnnotationNumber is the annotation of the Revision of a Workload that holds its number: 1, 2, 3 and so on. The higher one is newer; a
// revision that is declared again gets the highest.
const AnnotationNumber = "tako.dev/revision"

// LabelEnvironment is the label with which the environment of a node stands beside its own where it is said why the node takes no instance.
const LabelEnvironment = "tako.dev/environment"

// AnnotationApproved is the annotation of a Workload by which people let a rollout go on that waits for them: REVISION/STEP of a canary, of a green
// half REVISION/0.
const AnnotationApproved = "tako.dev/approved"
