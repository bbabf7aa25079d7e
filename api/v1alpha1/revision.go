package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// Revision is an immutable copy of a NodeConfig's resources or of a Workload's template, named by its owner and a digest. It is made by tako, goes
// with its config, and has no status: a rollout has two revisions of one config in the fleet at once.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Revision struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the revision. Its namespace is that of its config.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what was declared. It never changes.
	Spec RevisionSpec `json:"spec"`
}

// RevisionList is a list of Revisions.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RevisionList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the revisions.
	Items []Revision `json:"items"`
}

// ClusterRevision is the Revision of a ClusterNodeConfig: it has no namespace, as its owner has none.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterRevision struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the revision. It has no namespace.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what was declared. It never changes.
	Spec RevisionSpec `json:"spec"`
}

// ClusterRevisionList is a list of ClusterRevisions.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the revisions.
	Items []ClusterRevision `json:"items"`
}

// RevisionSpec is what a revision is a copy of.
type RevisionSpec struct {
	// Source is the config that the resources come from. Left out when there is none, as in a revision that was written by hand.
	Source *RevisionSource `json:"source,omitempty"`
	// Resources are the config's resources as they were declared, without defaults.
	// +listType=map
	// +listMapKey=name
	// +patchStrategy=merge
	// +patchMergeKey=name
	// +optional
	Resources []declare.Resource `json:"resources,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// Bundle is the config's bundle, whose entries the revision has beside the resources.
	Bundle *declare.BundleReference `json:"bundle,omitempty"`
	// Template is that of a Workload, which has no resources.
	Template *workload.Template `json:"template,omitempty"`
}

// RevisionSource names the config of a revision.
type RevisionSource struct {
	// Kind is NodeConfig or Workload for a Revision and ClusterNodeConfig for a ClusterRevision.
	Kind string `json:"kind"`
	// Name is the config's metadata.name; its namespace is the revision's.
	Name string `json:"name"`
	// UID is the config's metadata.uid, which tells it from an earlier config of the same name.
	UID types.UID `json:"uid"`
}
