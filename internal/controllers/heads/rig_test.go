package heads

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/fleet/events"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/trust"
)

// within is how long the tests wait for what should be there in a moment: long, for a machine that is busy with other things.
const within = 60 * time.Second

// store is a store of objects, in an etcd of its own.
type store struct {
	*registry.Local
	client  *kubernetes.Client
	member  *etcd.Member
	watcher *deaf
	line    *line    // nil: the watches of etcd go straight
	ends    []func() // the last first
}

// deaf is etcd's watches, which do not tell of some keys.
type deaf struct {
	clientv3.Watcher
	mu   sync.Mutex
	lost map[string]bool // last parts of keys
}

// Watch leaves out what is lost. What is told of a revision then looks as if nothing had changed in it.
func (d *deaf) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	from, to := d.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() { // until etcd's client ends the watch, at the latest when it is closed
		defer close(to)
		for r := range from {
			r.Events = slices.DeleteFunc(r.Events, func(e *clientv3.Event) bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return d.lost[path.Base(string(e.Kv.Key))]
			})
			select {
			case to <- r:
			case <-ctx.Done():
			}
		}
	}()
	return to
}

// line is what lies between the server and its etcd, for watches: everything else goes by calls within the process.
type line struct {
	listener net.Listener
	to       string
	all      sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newLine(at, to string) (*line, error) {
	listener, err := net.Listen("unix", at)
	if err != nil {
		return nil, err
	}
	l := &line{listener: listener, to: to}
	l.all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			l.carry(near)
		}
	})
	return l, nil
}

func (l *line) carry(near net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	far, err := net.Dial("unix", l.to)
	if l.cut || err != nil {
		_ = near.Close()
		return
	}
	l.conns = append(l.conns, near, far)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		l.all.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = way[0].Close(), way[1].Close()
		})
	}
}

// set cuts the line, or mends it.
func (l *line) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut = cut; cut {
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.conns = nil
	}
}

func (l *line) close() {
	_ = l.listener.Close()
	l.set(true)
	l.all.Wait()
}

// shared is the store that most tests use.
var shared *store

func TestMain(m *testing.M) {
	code, err := withStore(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withStore(m *testing.M) (int, error) {
	// As the server does: what is asked for at a revision comes from etcd.
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.ListFromCacheSnapshot): false}); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "tako-heads-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if shared, err = openStore(dir); err != nil {
		return 1, err
	}
	defer shared.close()
	return m.Run(), nil
}

func openStore(dir string) (*store, error) { return openStoreOver(dir, "") }

// openStoreOver opens a store whose watches go over a line that can be cut, with its socket at a path; an empty one is none.
func openStoreOver(dir, socket string) (*store, error) {
	s := &store{}
	if err := s.open(dir, socket); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *store) open(dir, socket string) error {
	ctx := context.Background()
	var err error
	if s.member, err = etcd.Start(ctx, etcd.Options{Dir: dir}); err != nil {
		return err
	}
	s.ends = append(s.ends, s.member.Close)
	endpoints := s.member.Endpoints()
	if socket != "" {
		if s.line, err = newLine(socket, strings.TrimPrefix(endpoints[0], "unix://")); err != nil {
			return err
		}
		s.ends = append(s.ends, s.line.close)
		endpoints = []string{"unix://" + socket}
	}
	if s.client, err = etcd.Connect(ctx, etcd.Connection{Endpoints: endpoints}); err != nil {
		return err
	}
	s.ends = append(s.ends, func() { _ = s.client.Close() })
	s.member.Attach(s.client)
	s.watcher = &deaf{Watcher: s.client.Watcher, lost: map[string]bool{}}
	s.client.Watcher = s.watcher
	kinds := registry.Kinds()
	scheme := registry.NewScheme(kinds)
	backend := registry.NewBackend(scheme, s.client, nil)
	s.ends = append(s.ends, backend.Close)
	bounds, err := events.New(events.Options{})
	if err != nil {
		return err
	}
	objects, err := registry.New(scheme, kinds, backend, nil, bounds)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		kept := objects.Store(k.Resource())
		s.ends = append(s.ends, kept.Destroy)
		late := time.Now().Add(within)
		for kept.ReadinessCheck() != nil {
			if time.Now().After(late) {
				return errors.New("the storage does not get ready")
			}
			<-time.After(time.Millisecond)
		}
	}
	s.Local = registry.NewLocal(objects, admission.NewChainHandler())
	return nil
}

func (s *store) close() {
	for _, end := range slices.Backward(s.ends) {
		end()
	}
}

// revision is that of the store.
func (s *store) revision(ctx context.Context) (uint64, error) {
	got, err := s.client.Client.Get(ctx, "nothing")
	if err != nil {
		return 0, err
	}
	return uint64(got.Header.Revision), nil
}

// rig is heads over the store. Each has a cluster of its own.
type rig struct {
	testing.TB
	*Heads
	store  *store
	keys   *trust.Keys
	root   *trust.SigningKey
	layers *layers.Layers
	chain  atomic.Pointer[trust.Chain]
	losing losing

	mu        sync.Mutex
	suspected []Suspicion
	away      error  // the store does not say its revision
	behind    uint64 // how many revisions less the store says that it has
}

// losing is a store whose watches do not tell of some objects.
type losing struct {
	*registry.Local
	mu   sync.Mutex
	lost map[string]bool // names
}

func (l *losing) loses(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[name]
}

func (l *losing) ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher {
	lw := cache.ToListerWatcherWithContext(l.Local.ListerWatcher(kind, metadataOnly))
	return &cache.ListWatch{ListWithContextFunc: lw.ListWithContext, WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		w, err := lw.WatchWithContext(ctx, options)
		if err != nil {
			return nil, err
		}
		return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			m, ok := e.Object.(metav1.Object)
			return e, !ok || !l.loses(m.GetName())
		}), nil
	}}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOf(t)
}

func rigOf(t testing.TB) *rig {
	t.Helper()
	return rigOn(t, shared)
}

func rigOn(t testing.TB, on *store) *rig {
	t.Helper()
	r := &rig{TB: t, store: on, keys: newKeys(t), root: trust.NewSigningKey(), losing: losing{Local: on.Local, lost: map[string]bool{}}}
	chain, err := trust.NewChain(trust.Genesis{Cluster: r.keys.Cluster(), CA: r.keys.CA(), Root: r.root, Heads: r.keys.Heads().Public()}, time.Now(), time.Time{})
	r.must(err)
	r.chain.Store(chain)
	r.layers, err = layers.New(r.store, r.keys, nil)
	r.must(err)
	r.Heads, err = New(Options{
		Objects: &r.losing, Layers: r.layers, Keys: r.keys, Compare: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Chain: func(context.Context) (*trust.Chain, error) { return r.chain.Load(), nil },
		Revision: func(ctx context.Context) (uint64, error) {
			r.mu.Lock()
			away, behind := r.away, r.behind
			r.mu.Unlock()
			if away != nil {
				return 0, away
			}
			n, err := r.store.revision(ctx)
			return n - behind, err
		},
		Suspected: func(s Suspicion) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.suspected = append(r.suspected, s)
		},
	})
	r.must(err)
	r.lag = time.Second
	return r
}

// share makes it another server of the same cluster.
func (r *rig) share(with *rig) {
	r.Helper()
	r.keys, r.options.Keys, r.root = with.keys, with.keys, with.root
	r.chain.Store(with.chain.Load())
	var err error
	r.layers, err = layers.New(r.store, r.keys, nil)
	r.must(err)
	r.options.Layers = r.layers
}

// run runs the heads until the test ends.
func (r *rig) run() *rig {
	r.Helper()
	r.Cleanup(r.start())
	return r
}

// start runs the heads until stop is called.
func (r *rig) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- r.Heads.Run(ctx) }()
	go func() { ended <- r.layers.Run(ctx) }()
	return func() {
		cancel()
		for range 2 {
			select {
			case err := <-ended:
				if err != nil {
					r.Error(err)
				}
			case <-time.After(within):
				r.Error("it does not end")
			}
		}
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// bump makes what was signed before void.
func (r *rig) bump() {
	r.Helper()
	r.edit(trust.BumpEpoch())
}

// edit makes the next trust document, and has it read.
func (r *rig) edit(edits ...trust.Edit) {
	r.Helper()
	r.sign(edits...)
	r.must(r.readTrust(r.Context()))
}

// sign makes the next trust document, which nobody has read yet.
func (r *rig) sign(edits ...trust.Edit) {
	r.Helper()
	chain := r.chain.Load()
	next, err := chain.Next(time.Now(), edits...)
	r.must(err)
	next, err = next.Sign(r.root)
	r.must(err)
	chain, err = chain.Extend([]trust.Signed{next})
	r.must(err)
	r.chain.Store(chain)
}

// join makes a Node with a name of its own, and returns who speaks for it.
func (r *rig) join() server.Identity {
	r.Helper()
	n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	r.must(r.store.Create(r.Context(), n))
	r.Cleanup(func() {
		_ = r.store.Delete(context.Background(), &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, nil)
	})
	return server.Identity{Name: n.Name, UID: string(n.UID)}
}

// assign stores the Assignment of a node and returns its version.
func (r *rig) assign(who server.Identity, change func(*v1alpha1.AssignmentSpec)) uint64 {
	r.Helper()
	o := &v1alpha1.Assignment{}
	err := r.store.Get(r.Context(), keyOf(who), o)
	if err != nil {
		*o = v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: who.Name}}
		o.Spec.NodeUID = uidOf(who)
		change(&o.Spec)
		r.must(r.store.Create(r.Context(), o))
	} else {
		change(&o.Spec)
		r.must(r.store.Update(r.Context(), o))
	}
	return number(o.ResourceVersion)
}

// head waits for a head that is as wanted, woken by what it was told to wait for and by nothing else, and verifies it.
func (r *rig) head(who server.Identity, want func(*catalog.Head) bool) catalog.Head {
	r.Helper()
	late := time.After(within)
	var last catalog.Head
	for {
		b, changed, err := r.Head(who)
		r.must(err)
		if len(b) > 0 {
			last = r.verify(who, b)
			if want(&last) {
				return last
			}
		}
		select {
		case <-changed:
		case <-late:
			r.Fatalf("the head is %+v", last)
		}
	}
}

// told waits until there may be another head.
func (r *rig) told(changed <-chan struct{}) {
	r.Helper()
	select {
	case <-changed:
	case <-time.After(within):
		r.Fatal("nobody is told that there may be another head")
	}
}

func (r *rig) verify(who server.Identity, b []byte) catalog.Head {
	r.Helper()
	s, _, err := catalog.DecodeHead(b)
	r.must(err)
	h, err := s.Verify(r.HeadKeys(time.Now()), catalog.Node{Cluster: r.keys.Cluster(), Name: who.Name, UID: who.UID})
	r.must(err)
	return h
}

func atVersion(version uint64) func(*catalog.Head) bool {
	return func(h *catalog.Head) bool { return h.Version == version }
}

// eventually waits until look returns "", and fails with what it returned last.
func (r *rig) eventually(what string, look func() string) {
	r.Helper()
	late, again := time.After(within), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for {
		state := look()
		if state == "" {
			return
		}
		select {
		case <-late:
			r.Fatalf("%s: %s", what, state)
		case <-again.C:
		}
	}
}

func (r *rig) suspicions() []Suspicion {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.suspected)
}

func (r *rig) disturb(away error, behind uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away, r.behind = away, behind
}

// namespace makes a namespace of a new name.
func (r *rig) namespace() string {
	r.Helper()
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	r.must(r.store.Create(r.Context(), ns))
	return ns.Name
}
