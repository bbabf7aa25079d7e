package registry

import (
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/events"
)

// Registry is the storage of all kinds.
type Registry struct {
	scheme  *Scheme
	kinds   []*Kind
	stores  map[schema.GroupResource]*Store
	minter  Minter
	events  *events.Bounds
	virtual map[schema.GroupVersion]map[string]rest.Storage
	live    live
}

// New makes the storage of all kinds. minter makes the secrets of tokens, and bounds says what Events there may be.
func New(scheme *Scheme, kinds []*Kind, options generic.RESTOptionsGetter, minter Minter, bounds *events.Bounds) (*Registry, error) {
	r := &Registry{scheme: scheme, kinds: kinds, stores: map[schema.GroupResource]*Store{}, minter: minter, events: bounds, virtual: map[schema.GroupVersion]map[string]rest.Storage{}}
	for _, k := range kinds {
		s, err := newStore(k, scheme, options)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", k.Resource(), err)
		}
		r.stores[k.Resource()] = s
	}
	return r, nil
}

// Store is the storage of one kind; nil when it is not served.
func (r *Registry) Store(resource schema.GroupResource) *Store { return r.stores[resource] }

// AddVirtual serves something that is not stored, such as the answer to a question.
func (r *Registry) AddVirtual(version schema.GroupVersion, resource string, storage rest.Storage) {
	if r.virtual[version] == nil {
		r.virtual[version] = map[string]rest.Storage{}
	}
	r.virtual[version][resource] = storage
}

// Install serves everything. The core group has the path of its own that clients expect.
func (r *Registry) Install(s *server.GenericAPIServer) error {
	resources := map[schema.GroupVersion]map[string]rest.Storage{}
	for version, virtual := range r.virtual {
		resources[version] = virtual
	}
	for _, k := range r.kinds {
		version := k.GVK.GroupVersion()
		if resources[version] == nil {
			resources[version] = map[string]rest.Storage{}
		}
		r.serve(k, resources[version])
	}
	var named []*server.APIGroupInfo
	for version, storage := range resources {
		info := server.NewDefaultAPIGroupInfo(version.Group, r.scheme.Scheme, runtime.NewParameterCodec(r.scheme.Scheme), r.scheme.Codecs)
		if version == v1alpha1.SchemeGroupVersion {
			info.NegotiatedSerializer = withoutProtobuf{r.scheme.Codecs}
		}
		info.VersionedResourcesStorageMap = map[string]map[string]rest.Storage{version.Version: storage}
		if version == core.SchemeGroupVersion {
			if err := s.InstallLegacyAPIGroup(server.DefaultLegacyAPIPrefix, &info); err != nil {
				return err
			}
			continue
		}
		named = append(named, &info)
	}
	return s.InstallAPIGroups(named...)
}

// serve adds what is served of a kind.
func (r *Registry) serve(k *Kind, to map[string]rest.Storage) {
	s := r.stores[k.Resource()]
	name := k.Names.Plural
	how := s.UpdateStrategy.(strategy)
	switch k.GVK.GroupKind() {
	case core.SchemeGroupVersion.WithKind("Namespace").GroupKind():
		to[name] = newNamespaceStore(s)
		to[name+"/finalize"] = newSubresource(s, finalizeStrategy{statusStrategy{how}})
	case v1alpha1.Kind(v1alpha1.KindToken):
		to[name] = tokenStore{Store: s, minter: r.minter}
	case core.SchemeGroupVersion.WithKind("Event").GroupKind():
		to[name] = eventStore{Store: s, bounds: r.events}
	case v1alpha1.Kind(v1alpha1.KindNode):
		to[name] = nodeStore{Store: s, live: &r.live}
		for question := range questions() {
			to[name+"/"+question] = &answers{nodes: s, what: question, live: &r.live}
		}
		to[name+"/"+v1alpha1.NodeExport] = &exports{nodes: s, live: &r.live}
	case v1alpha1.Kind(v1alpha1.KindAssignment):
		to[name] = derivedStore{s, errAssignment}
	case v1alpha1.Kind(v1alpha1.KindInstance):
		to[name] = instanceStore{derivedStore{s, errInstance}, &r.live}
	case v1alpha1.Kind(v1alpha1.KindWorkload):
		to[name] = s
		to[name+"/scale"] = &scales{s}
	default:
		to[name] = s
	}
	// After what the kind changes in its storage: a subresource has a copy of that.
	if k.HasStatus && !k.SealedStatus {
		to[name+"/status"] = newSubresource(s, statusStrategy{how})
	}
}

// withoutProtobuf is for kinds whose types have no protobuf form. A client that would rather have that gets JSON.
type withoutProtobuf struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes lists the others.
func (w withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(w.NegotiatedSerializer.SupportedMediaTypes()), func(i runtime.SerializerInfo) bool { return i.MediaType == runtime.ContentTypeProtobuf })
}
