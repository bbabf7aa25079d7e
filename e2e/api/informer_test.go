//go:build e2e

package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tako.dev/tako/e2e/host"
)

// followTime bounds the wait for what an informer tells. It asks a server that was away several times again after 30 s, and up to
// twice that with jitter (client-go, tools/cache.NewReflector).
const followTime = 90 * time.Second

// tally counts what an informer tells, and keeps what it must therefore be.
type tally struct {
	mu                      sync.Mutex // guards all below
	added, updated, deleted int
	state                   map[string]string
	faults                  []string
}

func newTally() *tally { return &tally{state: map[string]string{}} }

// counts are numbers of calls.
type counts struct{ added, updated, deleted int }

func (t *tally) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { t.set(nil, o.(*core.ConfigMap)) },
		UpdateFunc: func(old, o any) {
			// After a list an informer repeats what has not changed; that is no update.
			if old.(*core.ConfigMap).ResourceVersion != o.(*core.ConfigMap).ResourceVersion {
				t.set(old.(*core.ConfigMap), o.(*core.ConfigMap))
			}
		},
		DeleteFunc: func(o any) {
			if unknown, is := o.(cache.DeletedFinalStateUnknown); is {
				o = unknown.Obj
			}
			t.remove(o.(*core.ConfigMap))
		},
	}
}

func (t *tally) set(old, o *core.ConfigMap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, exists := t.state[o.Name]
	switch {
	case old == nil && exists:
		t.faults = append(t.faults, o.Name+" was added twice")
	case old != nil && before != old.Data[valueKey]:
		t.faults = append(t.faults, fmt.Sprintf("%s was %q, and was updated from %q", o.Name, before, old.Data[valueKey]))
	}
	if t.state[o.Name] = o.Data[valueKey]; old == nil {
		t.added++
	} else {
		t.updated++
	}
}

func (t *tally) remove(o *core.ConfigMap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, exists := t.state[o.Name]; !exists {
		t.faults = append(t.faults, o.Name+" was deleted, and was not there")
	}
	delete(t.state, o.Name)
	t.deleted++
}

func (t *tally) fault(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = append(t.faults, what)
}

func (t *tally) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.state)
}

// await waits for a state, and checks that no more and no fewer calls led to it.
func (t *tally) await(tb testing.TB, who string, state map[string]string, want counts) {
	tb.Helper()
	host.Eventually(tb, followTime, who+" has the state", func() (string, bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return fmt.Sprint(t.state), maps.Equal(t.state, state)
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if got := (counts{t.added, t.updated, t.deleted}); got != want {
		tb.Errorf("%s: %+v, want %+v", who, got, want)
	}
	for _, f := range t.faults {
		tb.Errorf("%s: %s", who, f)
	}
}

// listing is a source for informers that does not let them stream the first state.
type listing struct{ cache.ListerWatcher }

// IsWatchListSemanticsUnSupported is what client-go asks for.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// inform follows the ConfigMaps of the load's namespace until the context ends.
func inform(ctx context.Context, t *testing.T, c kubernetes.Interface, watchList bool) *tally {
	t.Helper()
	var from cache.ListerWatcher = cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "configmaps", loadNamespace, fields.Everything())
	if !watchList {
		from = listing{from}
	}
	out := newTally()
	i := cache.NewSharedIndexInformer(from, &core.ConfigMap{}, 0, nil)
	if _, err := i.AddEventHandler(out.handler()); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { i.RunWithContext(ctx) })
	t.Cleanup(all.Wait)
	return out
}

// watchers are all ways to follow objects, each of which must tell the same.
type watchers struct {
	tallies map[string]*tally
	// reconciled is the last state that the controller was called for.
	reconciled *tally
}

func (w *watchers) await(t *testing.T, state map[string]string, want counts) {
	t.Helper()
	for who, tally := range w.tallies {
		tally.await(t, who, state, want)
	}
	host.Eventually(t, followTime, "the controller has seen the state", func() (string, bool) {
		w.reconciled.mu.Lock()
		defer w.reconciled.mu.Unlock()
		return fmt.Sprint(w.reconciled.state), maps.Equal(w.reconciled.state, state)
	})
}

// manage runs a manager that leads before it works, with a controller that notes what it finds.
func manage(ctx context.Context, t *testing.T, config *rest.Config, name string, tally, reconciled *tally) (leads <-chan struct{}, stop func()) {
	t.Helper()
	// The server may be away for this long without another leader: it is back within seconds.
	lease, renew, retry := time.Minute, 50*time.Second, 200*time.Millisecond
	again := true // the name of a controller is used by two managers
	m, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection: true, LeaderElectionID: "e2e", LeaderElectionNamespace: loadNamespace, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(m).Named(name).For(&core.ConfigMap{}).Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		if r.Namespace != loadNamespace {
			return reconcile.Result{}, nil
		}
		var o core.ConfigMap
		err := m.GetClient().Get(ctx, r.NamespacedName, &o)
		reconciled.mu.Lock()
		defer reconciled.mu.Unlock()
		delete(reconciled.state, r.Name)
		if err == nil {
			reconciled.state[r.Name] = o.Data[valueKey]
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}))
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.GetCache().GetInformer(ctx, &core.ConfigMap{})
	if err == nil {
		_, err = i.AddEventHandler(cache.FilteringResourceEventHandler{FilterFunc: inLoad, Handler: tally.handler()})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Errorf("manager %s: %v", name, err)
		}
	})
	return m.Elected(), func() {
		cancel()
		all.Wait()
	}
}

func inLoad(o any) bool {
	if unknown, is := o.(cache.DeletedFinalStateUnknown); is {
		o = unknown.Obj
	}
	return o.(*core.ConfigMap).Namespace == loadNamespace
}

// TestInformers follows objects with ordinary informers, with informers that stream the first state, and with a
// controller-runtime manager that leads. All see each change once, also when the server restarts, and where they were away
// while etcd forgot what happened they see the difference.
func TestInformers(t *testing.T) {
	s := newServer(t)
	direct := newLoad(t, s.client(t)) // for its namespace and its way to write; no writers are started
	g := newGate(t, s.listen)
	config := rest.CopyConfig(s.config(t))
	config.Host = "https://" + g.address()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &watchers{reconciled: newTally(), tallies: map[string]*tally{
		"the informer": inform(ctx, t, c, false), "the informer that streams": inform(ctx, t, c, true), "the manager": newTally(),
	}}
	elected, stopFirst := manage(ctx, t, config, "first", w.tallies["the manager"], w.reconciled)
	t.Cleanup(stopFirst)
	await(t, "the first manager leads", elected)
	second := &watchers{reconciled: newTally(), tallies: map[string]*tally{"the second manager": newTally()}}
	next, stopSecond := manage(ctx, t, config, "second", second.tallies["the second manager"], second.reconciled)
	t.Cleanup(stopSecond)

	var b book
	b.make(t, direct, 30)
	b.expect = counts{30, 0, 0}
	b.await(t, w) // whoever lists later sees fewer changes
	second.tallies["the second manager"].await(t, "the second manager", b.state, b.expect)
	b.change(t, direct, 0, 10)
	b.remove(t, direct, 20, 25)
	b.expect = counts{30, 10, 5}
	b.await(t, w)
	s.kill(t)
	s.start(t)
	b.change(t, direct, 5, 15)
	b.remove(t, direct, 15, 18)
	b.make(t, direct, 5)
	b.expect = counts{35, 20, 8}
	b.await(t, w)

	g.shut()
	b.change(t, direct, 0, 5)
	b.change(t, direct, 0, 5) // twice, of which an absent watcher sees the result
	b.remove(t, direct, 18, 20)
	b.make(t, direct, 2)
	compact(t, s)
	s.kill(t)
	s.start(t)
	g.open()
	b.expect = counts{37, 25, 10}
	b.await(t, w)

	// The one that waited has seen everything, has done nothing until now, and now does what is to be done.
	second.tallies["the second manager"].await(t, "the second manager", b.state, b.expect)
	if second.reconciled.size() > 0 {
		t.Error("the second manager worked while the first led")
	}
	stopFirst()
	await(t, "the second manager leads", next)
	b.await(t, second)
}

// await waits until a channel is closed.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	late := time.NewTimer(settleTime)
	defer late.Stop()
	select {
	case <-c:
	case <-late.C:
		t.Fatalf("wait for: %s: not so after %v", what, settleTime)
	}
}

// book writes objects, and knows what is there.
type book struct {
	state  map[string]string
	names  []string
	expect counts
	values int
}

func (b *book) await(t *testing.T, w *watchers) {
	t.Helper()
	w.await(t, b.state, b.expect)
}

func (b *book) next() string {
	b.values++
	return itoa(b.values)
}

func (b *book) make(t *testing.T, l *load, n int) {
	t.Helper()
	if b.state == nil {
		b.state = map[string]string{}
	}
	for range n {
		name, value := "o"+itoa(len(b.names)), b.next()
		o := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{valueKey: value}}
		if _, err := l.objects.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.names, b.state[name] = append(b.names, name), value
	}
}

func (b *book) change(t *testing.T, l *load, from, to int) {
	t.Helper()
	for _, name := range b.names[from:to] {
		value := b.next()
		patch := fmt.Sprintf(`{"data":{%q:%q}}`, valueKey, value)
		if _, err := l.objects.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		b.state[name] = value
	}
}

func (b *book) remove(t *testing.T, l *load, from, to int) {
	t.Helper()
	for _, name := range b.names[from:to] {
		if err := l.objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		delete(b.state, name)
	}
}

// compact makes etcd forget everything but the present.
func compact(t *testing.T, s *server) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(s.dir, "etcd", "client.sock")}, DialTimeout: settleTime})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.Get(t.Context(), "/", clientv3.WithCountOnly())
	if err == nil {
		_, err = c.Compact(t.Context(), got.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// gate is a way to the server that can be shut.
type gate struct {
	listener net.Listener
	to       string
	all      sync.WaitGroup

	mu     sync.Mutex // guards all below
	closed bool
	conns  map[net.Conn]bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, to: to, conns: map[net.Conn]bool{}}
	g.all.Go(g.serve)
	t.Cleanup(func() {
		l.Close()
		g.shut()
		g.all.Wait()
	})
	return g
}

func (g *gate) address() string { return g.listener.Addr().String() }

func (g *gate) serve() {
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.all.Go(func() { g.pass(in) })
	}
}

// pass copies both ways until one ends.
func (g *gate) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer out.Close()
	if !g.enter(in, out) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, err := io.Copy(way[0], way[1])
			// What one side has ended, the other cannot go on with.
			_ = errors.Join(err, way[0].Close(), way[1].Close())
		})
	}
	both.Wait()
}

func (g *gate) enter(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		g.conns[c] = true
	}
	return !g.closed
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for c := range g.conns {
		c.Close()
	}
	clear(g.conns)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}
