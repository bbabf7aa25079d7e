package layers_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/trust"
)

const within = time.Minute

// objects are a store in memory, with versions and watches as the real one has.
type objects struct {
	mu       sync.Mutex
	version  int
	stored   map[string]object // by kind, namespace and name
	watches  map[string][]*watch.RaceFreeFakeWatcher
	reads    map[string]int // by kind
	deaf     bool           // nobody is told of changes
	failWith error
}

type object interface {
	runtime.Object
	metav1.Object
}

func newObjects() *objects {
	return &objects{stored: map[string]object{}, watches: map[string][]*watch.RaceFreeFakeWatcher{}, reads: map[string]int{}}
}

func kindOf(o runtime.Object) string {
	switch o.(type) {
	case *core.Secret:
		return "Secret"
	case *core.ConfigMap:
		return "ConfigMap"
	case *v1alpha1.Revision:
		return "Revision"
	case *v1alpha1.ClusterRevision:
		return "ClusterRevision"
	}
	panic(fmt.Sprintf("%T", o))
}

// put stores an object, and returns it.
func (s *objects) put(o object) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	key := kindOf(o) + "/" + o.GetNamespace() + "/" + o.GetName()
	o = o.DeepCopyObject().(object)
	event := watch.Modified
	if was, there := s.stored[key]; there {
		o.SetUID(was.GetUID())
	} else {
		event = watch.Added
		if o.GetUID() == "" {
			o.SetUID(types.UID(fmt.Sprint("uid-", s.version)))
		}
	}
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.stored[key] = o
	s.tell(event, o)
	return o
}

func (s *objects) remove(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	key := kindOf(o) + "/" + o.GetNamespace() + "/" + o.GetName()
	gone := s.stored[key].DeepCopyObject().(object)
	delete(s.stored, key)
	gone.SetResourceVersion(strconv.Itoa(s.version))
	s.tell(watch.Deleted, gone)
}

func (s *objects) tell(event watch.EventType, o object) {
	if s.deaf {
		return
	}
	for _, w := range s.watches[kindOf(o)] {
		w.Action(event, metadata(o))
	}
}

func metadata(o object) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}}
}

func (s *objects) Get(_ context.Context, key types.NamespacedName, into runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := kindOf(into)
	s.reads[kind]++
	if s.failWith != nil {
		return s.failWith
	}
	o, there := s.stored[kind+"/"+key.Namespace+"/"+key.Name]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	switch into := into.(type) {
	case *core.Secret:
		*into = *o.DeepCopyObject().(*core.Secret)
	case *core.ConfigMap:
		*into = *o.DeepCopyObject().(*core.ConfigMap)
	case *v1alpha1.Revision:
		*into = *o.DeepCopyObject().(*v1alpha1.Revision)
	case *v1alpha1.ClusterRevision:
		*into = *o.DeepCopyObject().(*v1alpha1.ClusterRevision)
	}
	return nil
}

// listOnly says that a watch does not begin with what there is.
type listOnly struct{ cache.ListWatch }

func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

func (s *objects) ListerWatcher(kind schema.GroupVersionKind, _ bool) cache.ListerWatcher {
	return &listOnly{cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
			for _, o := range s.stored {
				if kindOf(o) == kind.Kind {
					list.Items = append(list.Items, *metadata(o))
				}
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			w := watch.NewRaceFreeFake()
			s.watches[kind.Kind] = append(s.watches[kind.Kind], w)
			return w, nil
		},
	}}
}

// breakWatches ends all watches, so that everything is listed again.
func (s *objects) breakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, all := range s.watches {
		for _, w := range all {
			w.Error(&apierrors.NewResourceExpired("compacted").ErrStatus)
		}
		delete(s.watches, kind)
	}
}

func (s *objects) watched(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches[kind]) > 0
}

func (s *objects) readsOf(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[kind]
}

// rig is layers over a store.
type rig struct {
	*testing.T
	*layers.Layers
	objects *objects
	keys    *trust.Keys
}

func newRig(t *testing.T) *rig {
	t.Helper()
	keys, err := trust.NewKeys(trust.NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return rigOver(t, newObjects(), keys)
}

func rigOver(t *testing.T, o *objects, keys *trust.Keys) *rig {
	t.Helper()
	l, err := layers.New(o, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, l, o, keys}
}

// run runs the layers until the test ends.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Layers.Run(ctx) }()
	r.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.Error(err)
			}
		case <-time.After(within):
			r.Error("the layers do not end")
		}
	})
	r.eventually("both kinds are watched", func() bool { return r.objects.watched("Secret") && r.objects.watched("ConfigMap") })
}

func (r *rig) eventually(what string, look func() bool) {
	r.Helper()
	late, again := time.After(within), time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !look() {
		select {
		case <-late:
			r.Fatal(what + ": not")
		case <-again.C:
		}
	}
}

// revise stores a revision of a NodeConfig in namespace prod, and returns its name.
func (r *rig) revise(owner string, resources ...declare.Resource) string {
	r.Helper()
	name := nameOf(r.T, owner, resources)
	r.objects.put(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Spec: v1alpha1.RevisionSpec{Resources: resources}})
	return name
}

func nameOf(t *testing.T, owner string, resources []declare.Resource) string {
	t.Helper()
	digest, err := catalog.RevisionDigest(resources)
	if err != nil {
		t.Fatal(err)
	}
	return catalog.RevisionName(owner, digest)
}

func (r *rig) of(config, revision string) *layers.Layer {
	r.Helper()
	l, err := r.Of(r.Context(), config, revision)
	if err != nil {
		r.Fatal(err)
	}
	return l
}

func file(name, content string) declare.Resource {
	return declare.Resource{Name: name, File: &declare.File{Path: "/etc/" + name, Content: content}}
}

func fromSecret(name, secret, key string) declare.Resource {
	return declare.Resource{Name: name, File: &declare.File{Path: "/etc/" + name, ContentFrom: &declare.ContentSource{Secret: &declare.KeySelector{Name: secret, Key: key}}}}
}

func fromConfigMap(name, object, key string) declare.Resource {
	return declare.Resource{Name: name, File: &declare.File{Path: "/etc/" + name, ContentFrom: &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: object, Key: key}}}}
}

func secret(name string, data map[string]string) *core.Secret {
	s := &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

func configMap(name string, data map[string]string) *core.ConfigMap {
	return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Data: data}
}
