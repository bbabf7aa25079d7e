package registry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"tako.dev/tako/internal/apiserver/intern"
	"tako.dev/tako/internal/apiserver/missed"
	"tako.dev/tako/internal/apiserver/resume"
	"tako.dev/tako/internal/apiserver/stream"
)

const (
	// Prefix is where everything of tako's is in etcd.
	Prefix = "/tako"
	// compactEvery is how long a watch may have been away and still go on; Kubernetes' own value.
	compactEvery = 5 * time.Minute
	// collectors delete the members of a collection in parallel.
	collectors = 4
)

// Backend is where objects are stored: one client of etcd for all kinds.
type Backend struct {
	scheme    *Scheme
	client    *kubernetes.Client
	compactor interface {
		etcd3.Compactor
		Stop()
	}
	transformers map[schema.GroupResource]value.Transformer
	caches       missed.Caches
	strings      *intern.Strings // of all kinds: an Assignment names the instances of its node
}

// NewBackend makes the backend. transformers encrypt what is secret; the rest is stored as it is.
func NewBackend(scheme *Scheme, client *kubernetes.Client, transformers map[schema.GroupResource]value.Transformer) *Backend {
	// The client's operations are counted and timed where the library expects it.
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	client.Kubernetes = puts{client.Kubernetes}
	return &Backend{
		scheme: scheme, client: client, transformers: transformers, strings: intern.New(),
		compactor: etcd3.NewCompactor(client.Client, compactEvery, clock.RealClock{}, nil),
	}
}

// Close ends the compaction of old versions.
func (b *Backend) Close() { b.compactor.Stop() }

// Compare compares what the server knows with what is in etcd, again and again until ctx is done.
func (b *Backend) Compare(ctx context.Context, o missed.Options) error {
	o.Etcd, o.Root = b.client.Client, Prefix
	return b.caches.Run(ctx, o)
}

// GetRESTOptions says how objects of one of our kinds are stored.
func (b *Backend) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	if example == nil {
		return b.options(resource, nil, nil), nil
	}
	kinds, _, err := b.scheme.Once.ObjectKinds(example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	version := kinds[0].GroupVersion()
	return b.options(resource, b.scheme.storageCodec(version), version), nil
}

// Coded stores what has another codec than ours: the kinds that others define.
func (b *Backend) Coded(codec runtime.Codec, version runtime.GroupVersioner) generic.RESTOptionsGetter {
	return coded{backend: b, codec: codec, version: version}
}

type coded struct {
	backend *Backend
	codec   runtime.Codec
	version runtime.GroupVersioner
}

// GetRESTOptions says how objects are stored.
func (c coded) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return c.backend.options(resource, c.codec, c.version), nil
}

func (b *Backend) options(resource schema.GroupResource, codec runtime.Codec, version runtime.GroupVersioner) generic.RESTOptions {
	prefix := "/" + resource.Group + "/" + resource.Resource
	if resource.Group == "" {
		prefix = "/core/" + resource.Resource
	}
	options := generic.RESTOptions{
		ResourcePrefix: prefix, EnableGarbageCollection: true, DeleteCollectionWorkers: collectors, Decorator: b.decorate,
	}
	if codec != nil {
		config := storagebackend.NewDefaultConfig(Prefix, codec)
		config.EncodeVersioner = version
		config.Transformer = b.transformers[resource]
		options.StorageConfig = config.ForResource(resource)
	}
	return options
}

// decorate puts a watch cache before etcd.
func (b *Backend) decorate(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	// What is stored encrypted is to be in memory no longer than the object is.
	transformer, codec, below := config.Transformer, config.Codec, func(s storage.Interface) storage.Interface { return s }
	if transformer == nil {
		transformer, codec, below = identity.NewEncryptCheckTransformer(), intern.Codec(codec, b.strings), intern.Below
	}
	versioner := storage.APIObjectVersioner{}
	raw, err := etcd3.New(b.client, b.compactor, codec, newFunc, newListFunc, config.Prefix, prefix, config.GroupResource, transformer,
		config.LeaseManagerConfig, etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("store %s: %w", config.GroupResource, err)
	}
	watched := missed.New(missed.Kind{Resource: config.GroupResource, KV: b.client.KV, Root: config.Prefix, Prefix: prefix, KeyOf: keyFunc, NewList: newListFunc})
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: watched.Below(below(stream.Each(raw))), Versioner: versioner, GroupResource: config.GroupResource, EventsHistoryWindow: config.EventsHistoryWindow, ResourcePrefix: prefix,
		KeyFunc: keyFunc, NewFunc: newFunc, NewListFunc: newListFunc, GetAttrsFunc: attrs, IndexerFuncs: triggers, Indexers: indexers, Codec: config.Codec,
	})
	if err != nil {
		raw.Close()
		return nil, nil, fmt.Errorf("cache %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(c, raw)
	stored := changes{watched.Over(resume.New(delegator, raw)), watched}
	b.caches.Add(watched)
	return stored, sync.OnceFunc(func() {
		b.caches.Remove(watched)
		delegator.Stop()
		c.Stop()
		raw.Close()
	}), nil
}
