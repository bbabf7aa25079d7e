package apiserver

import (
	"errors"
	"net/url"
	"strings"

	"github.com/emicklei/go-restful/v3"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	discovery "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/spec3"

	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"

	ours "tako.dev/tako/internal/apiserver/openapi"
	"tako.dev/tako/internal/apiserver/registry"
)

// others serves the kinds that others define, by CustomResourceDefinitions. It stands behind the server of our kinds.
type others struct {
	server *crdserver.CustomResourceDefinitions
	config *server.Config
}

// newOthers makes it with the same rights, storage and limits as the server in front.
func newOthers(front *server.Config, backend *registry.Backend) (*others, error) {
	// One document lists the kinds of both.
	front.AggregatedDiscoveryGroupManager = discovery.NewResourceManager("apis")
	c := *front
	c.Serializer = crdserver.Codecs
	c.PostStartHooks = map[string]server.PostStartHookConfigEntry{}
	c.RESTOptionsGetter = backend.Coded(crdserver.Codecs.LegacyCodec(apiextensions.SchemeGroupVersion), apiextensions.SchemeGroupVersion)
	c.MergedResourceConfig = crdserver.DefaultAPIResourceConfigSource()
	c.SkipOpenAPIInstallation = true // see tellIn
	namer := openapinamer.NewDefinitionNamer(crdserver.Scheme)
	c.OpenAPIConfig = nil
	c.OpenAPIV3Config = server.DefaultOpenAPIV3Config(ours.GetOpenAPIDefinitions, namer)
	crds := crdserver.Config{
		GenericConfig: &server.RecommendedConfig{Config: c},
		ExtraConfig: crdserver.ExtraConfig{
			CRDRESTOptionsGetter: backend.Coded(unstructured.UnstructuredJSONScheme, runtime.InternalGroupVersioner),
			MasterCount:          1,
			ServiceResolver:      noServices{},
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, front.LoopbackClientConfig, front.TracerProvider),
		},
	}
	s, err := crds.Complete().New(server.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	return &others{server: s, config: &crds.GenericConfig.Config}, nil
}

// noServices answers a webhook that names a Service: there are none here.
type noServices struct{}

// ResolveEndpoint refuses.
func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, errors.New("service " + namespace + "/" + name + " cannot be called: tako has no Services; give the webhook a url")
}

// tellIn has the server in front tell about the kinds that others define, in its OpenAPI and in its list of groups.
func (o *others) tellIn(front *server.GenericAPIServer) error {
	crds := o.server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	if _, err := crds.Informer().AddEventHandler(groupsOf(crds, front)); err != nil {
		return err
	}
	v2, v3 := openapi.NewController(crds), openapiv3.NewController(crds)
	definitions, err := o.openAPI()
	if err != nil {
		return err
	}
	front.DiscoveryGroupManager.AddGroup(group(apiextensions.GroupName, []string{apiextensions.SchemeGroupVersion.Version}))
	return front.AddPostStartHook("tako-others", func(ctx server.PostStartHookContext) error {
		for path, spec := range definitions {
			front.OpenAPIV3VersionedService.UpdateGroupVersion(path, spec)
		}
		go v2.Run(front.StaticOpenAPISpec, front.OpenAPIVersionedService, ctx.Done()) // both end with the server
		go v3.Run(front.OpenAPIV3VersionedService, ctx.Done())
		return nil
	})
}

// openAPI describes CustomResourceDefinitions themselves.
func (o *others) openAPI() (map[string]*spec3.OpenAPI, error) {
	specs := map[string]*spec3.OpenAPI{}
	for _, service := range o.server.GenericAPIServer.Handler.GoRestfulContainer.RegisteredWebServices() {
		path := strings.TrimPrefix(service.RootPath(), "/")
		if !strings.HasPrefix(path, "apis/"+apiextensions.GroupName+"/") {
			continue
		}
		spec, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{service}), o.config.OpenAPIV3Config)
		if err != nil {
			return nil, err
		}
		specs[path] = spec
	}
	return specs, nil
}

// groupsOf keeps the list of groups that old clients read.
func groupsOf(crds crdinformers.CustomResourceDefinitionInformer, front *server.GenericAPIServer) cache.ResourceEventHandler {
	refresh := func(o any) {
		if gone, is := o.(cache.DeletedFinalStateUnknown); is {
			o = gone.Obj
		}
		crd, is := o.(*apiextensions.CustomResourceDefinition)
		if !is {
			return
		}
		var versions []string
		for _, other := range crds.Informer().GetStore().List() {
			other := other.(*apiextensions.CustomResourceDefinition)
			if other.Spec.Group != crd.Spec.Group {
				continue
			}
			for _, v := range other.Spec.Versions {
				if v.Served {
					versions = append(versions, v.Name)
				}
			}
		}
		if len(versions) == 0 {
			front.DiscoveryGroupManager.RemoveGroup(crd.Spec.Group)
			return
		}
		front.DiscoveryGroupManager.AddGroup(group(crd.Spec.Group, versions))
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: refresh, UpdateFunc: func(_, o any) { refresh(o) }, DeleteFunc: refresh}
}

// group is an entry of the list of groups, the preferred version first.
func group(name string, versions []string) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	seen := map[string]bool{}
	for _, v := range versions {
		if !seen[v] {
			seen[v] = true
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
		}
	}
	g.PreferredVersion = g.Versions[0]
	return g
}
