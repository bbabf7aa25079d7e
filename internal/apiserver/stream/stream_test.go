package stream

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"tako.dev/tako/internal/apiserver/etcd/etcdtest"
)

const (
	// waitMax bounds the wait for an answer, which takes milliseconds.
	waitMax = time.Minute
	// askEvery is how often a cache asks how far etcd is.
	askEvery = 100 * time.Millisecond
	root     = "/test"
)

type noCompactor struct{ etcd3.Compactor }

func (noCompactor) CompactRevision() int64 { return 0 }

// kind is the storage of a kind below a cache.
func kind(t *testing.T, db *kubernetes.Client, name string) storage.Interface {
	t.Helper()
	codec, versioner := unstructured.UnstructuredJSONScheme, storage.APIObjectVersioner{}
	create, list := func() runtime.Object { return &unstructured.Unstructured{} }, func() runtime.Object { return &unstructured.UnstructuredList{} }
	raw, err := etcd3.New(db, noCompactor{}, codec, create, list, root, "/"+name, schema.GroupResource{Resource: name}, identity.NewEncryptCheckTransformer(),
		storagebackend.NewDefaultConfig(root, codec).LeaseManagerConfig, etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	return Each(raw)
}

// follow lists, which finds nothing, and watches from there.
func follow(ctx context.Context, t *testing.T, s storage.Interface, name string) (watch.Interface, string) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	if err := s.GetList(ctx, "/"+name+"/", storage.ListOptions{Predicate: storage.Everything, Recursive: true}, list); err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(ctx, "/"+name+"/", storage.ListOptions{
		ResourceVersion: list.GetResourceVersion(), Predicate: storage.Everything, Recursive: true, ProgressNotify: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w, list.GetResourceVersion()
}

// TestFreshWhileQuiet: two kinds are followed, something else was written in between, and nothing after it. The one that was followed first
// hears how far etcd is.
func TestFreshWhileQuiet(t *testing.T) {
	ctx, db := t.Context(), etcdtest.Connect(t)
	early, late := kind(t, db, "early"), kind(t, db, "late")
	w, _ := follow(ctx, t, early, "early")
	if _, err := db.KV.Put(ctx, "/elsewhere", ""); err != nil {
		t.Fatal(err)
	}
	_, newest := follow(ctx, t, late, "late")

	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for ended := time.After(waitMax); ; {
		select {
		case <-ask.C:
			if err := early.RequestWatchProgress(ctx); err != nil {
				t.Fatal(err)
			}
		case e, open := <-w.ResultChan():
			if !open || e.Type != watch.Bookmark {
				t.Fatalf("the watch tells %+v", e)
			}
			if e.Object.(metav1.Object).GetResourceVersion() == newest {
				return
			}
		case <-ended:
			t.Fatalf("nothing says that etcd is at revision %s", newest)
		}
	}
}

// TestNobodyToHear: how far etcd is interests nobody before a watch is open, and after it was stopped: no stream is opened to be asked.
func TestNobodyToHear(t *testing.T) {
	ctx, asked := t.Context(), &counted{}
	s := Each(asked)
	ask := func(want int) {
		t.Helper()
		if err := s.RequestWatchProgress(ctx); err != nil || asked.times != want {
			t.Fatalf("asked %d times, and not %d: %v", asked.times, want, err)
		}
	}
	ask(0)
	first, err := s.Watch(ctx, "/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask(1)
	second, err := s.Watch(ctx, "/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first.Stop()
	ask(2) // the second is open
	second.Stop()
	ask(2)
}

// counted is a storage that counts how often it is asked how far etcd is.
type counted struct {
	storage.Interface
	times int
}

func (*counted) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (c *counted) RequestWatchProgress(context.Context) error {
	c.times++
	return nil
}
