package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName and Version name this package's API; together they are declare.APIVersion.
const (
	GroupName = "tako.dev"
	Version   = "v1alpha1"
)

// SchemeGroupVersion is the group and version of the kinds in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: Version}

// Kind qualifies a kind, such as KindNode, with the group.
func Kind(kind string) schema.GroupKind { return SchemeGroupVersion.WithKind(kind).GroupKind() }

// Resource qualifies a resource, such as ResourceNodes, with the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

// Types returns one new object of every kind and list of this package; of a Plan there is no list. A server that registers the types under its internal
// version too takes them from here.
func Types() []runtime.Object {
	return []runtime.Object{
		&NodeConfig{}, &NodeConfigList{},
		&ClusterNodeConfig{}, &ClusterNodeConfigList{},
		&Revision{}, &RevisionList{},
		&ClusterRevision{}, &ClusterRevisionList{},
		&Node{}, &NodeList{},
		&Assignment{}, &AssignmentList{},
		&Token{}, &TokenList{},
		&Source{}, &SourceList{},
		&Server{}, &ServerList{},
		&Workload{}, &WorkloadList{},
		&Instance{}, &InstanceList{},
		&Plan{},
	}
}

// AddToScheme registers the kinds of this package, and with them the options of requests for them, in a scheme. The error is
// always nil: the signature is that of a runtime.SchemeBuilder's function.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, Types()...)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
