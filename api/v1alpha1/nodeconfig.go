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
	// Conditions are Ready, Reconciling and Stalled, each with a reason and words for a person.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
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
