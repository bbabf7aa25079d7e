package registry

import (
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"tako.dev/tako/api/v1alpha1"
)

// Scheme knows the Go types of all kinds, and the codecs over them.
type Scheme struct {
	*runtime.Scheme
	Codecs serializer.CodecFactory
	// Once has each type in its own version only. It is what names the types in OpenAPI.
	Once *runtime.Scheme
}

// group is the Go types of one version of one group.
type group struct {
	version schema.GroupVersion
	types   []runtime.Object
}

func groups() []group {
	return []group{
		{v1alpha1.SchemeGroupVersion, v1alpha1.Types()},
		{core.SchemeGroupVersion, []runtime.Object{
			&core.Namespace{}, &core.NamespaceList{}, &core.ConfigMap{}, &core.ConfigMapList{},
			&core.Secret{}, &core.SecretList{}, &core.Event{}, &core.EventList{},
		}},
		{coordination.SchemeGroupVersion, []runtime.Object{&coordination.Lease{}, &coordination.LeaseList{}}},
		{rbac.SchemeGroupVersion, []runtime.Object{
			&rbac.Role{}, &rbac.RoleList{}, &rbac.RoleBinding{}, &rbac.RoleBindingList{},
			&rbac.ClusterRole{}, &rbac.ClusterRoleList{}, &rbac.ClusterRoleBinding{}, &rbac.ClusterRoleBindingList{},
		}},
		{autoscaling.SchemeGroupVersion, []runtime.Object{&autoscaling.Scale{}}},
		{authentication.SchemeGroupVersion, []runtime.Object{&authentication.SelfSubjectReview{}}},
		{authorization.SchemeGroupVersion, []runtime.Object{
			&authorization.SelfSubjectAccessReview{}, &authorization.SelfSubjectRulesReview{},
			&authorization.SubjectAccessReview{}, &authorization.LocalSubjectAccessReview{},
		}},
	}
}

// NewScheme registers all kinds.
func NewScheme(kinds []*Kind) *Scheme {
	s := &Scheme{Scheme: runtime.NewScheme(), Once: runtime.NewScheme()}
	for _, g := range groups() {
		for _, scheme := range []*runtime.Scheme{s.Scheme, s.Once} {
			scheme.AddKnownTypes(g.version, g.types...)
			metav1.AddToGroupVersion(scheme, g.version)
		}
		// The same types once more as what the library converts to and from: then it converts nothing.
		s.AddKnownTypes(schema.GroupVersion{Group: g.version.Group, Version: runtime.APIVersionInternal}, g.types...)
		utilruntime.Must(s.SetVersionPriority(g.version))
	}
	utilruntime.Must(metainternal.AddToScheme(s.Scheme))
	metav1.AddToGroupVersion(s.Scheme, schema.GroupVersion{Version: "v1"})
	unversioned := schema.GroupVersion{Version: "v1"}
	s.AddUnversionedTypes(unversioned, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for _, k := range kinds {
		utilruntime.Must(s.AddFieldLabelConversionFunc(k.GVK, k.selectable))
	}
	s.Codecs = serializer.NewCodecFactory(s.Scheme)
	return s
}

// storageCodec writes JSON of the kind's version.
func (s *Scheme) storageCodec(g schema.GroupVersion) runtime.Codec {
	text := json.NewSerializerWithOptions(storedMeta{}, s, s, json.SerializerOptions{})
	return s.Codecs.CodecForVersions(text, text, g, schema.GroupVersion{Group: g.Group, Version: runtime.APIVersionInternal})
}
