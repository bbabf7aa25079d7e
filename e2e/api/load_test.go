//go:build e2e

package api_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"tako.dev/tako/e2e/host"
)

const (
	// loadNamespace is where the load writes, and nobody else.
	loadNamespace = "load"
	// writers write at the same time, each its own object.
	writers = 8
	// requestTime bounds one request. It is longer than the server needs to come back, and than an election of etcd.
	requestTime = 20 * time.Second
	// retryPause is between two tries of a client whose server is away.
	retryPause = 10 * time.Millisecond
	// valueKey is the key of a written object's data that tells this write from all others.
	valueKey = "value"
	// writesUntilDelete is how often an object is written before it is deleted and made again.
	writesUntilDelete = 6
)

// change is one write, as its writer or a watcher knows it.
type change struct {
	event   watch.EventType
	name    string
	value   string
	version uint64 // 0 when it is not told, as by the answer to a deletion
	after   uint64 // of an acknowledged deletion: the version that was deleted
}

// wrote is what identifies a write: values are never used twice, but for the deletion of what was written with one.
func (c change) wrote() string { return fmt.Sprintf("%s %s=%s", c.event, c.name, c.value) }

// load writes ConfigMaps, and knows which writes were acknowledged.
type load struct {
	objects corev1.ConfigMapInterface
	stop    chan struct{}
	all     sync.WaitGroup

	mu    sync.Mutex // guards all below
	tried map[string]bool
	acked []change
	count int
}

// newLoad makes the namespace. The writers are started by start.
func newLoad(t *testing.T, c kubernetes.Interface) *load {
	t.Helper()
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: loadNamespace}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	l := &load{objects: c.CoreV1().ConfigMaps(loadNamespace), stop: make(chan struct{}), tried: map[string]bool{}}
	t.Cleanup(l.all.Wait) // the test's context has ended by then
	return l
}

// start starts the writers, each with an object of its own.
func (l *load) start(ctx context.Context) {
	for i := range writers {
		l.all.Go(func() { l.write(ctx, "w"+itoa(i)) })
	}
}

// write creates, updates and deletes one object, over and over.
func (l *load) write(ctx context.Context, name string) {
	var have *core.ConfigMap // nil when there is none
	for n := 0; !l.stopped(ctx); n++ {
		var err error
		if have, err = l.once(ctx, name, have, n%writesUntilDelete == writesUntilDelete-1); err != nil {
			have = l.look(ctx, name)
		}
	}
}

func (l *load) stopped(ctx context.Context) bool {
	select {
	case <-l.stop:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// once does one write, and notes it as tried before and as acknowledged after.
func (l *load) once(ctx context.Context, name string, have *core.ConfigMap, remove bool) (*core.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if have != nil && remove {
		c := l.try(change{event: watch.Deleted, name: name, value: have.Data[valueKey], after: version(have)})
		is := metav1.Preconditions{ResourceVersion: &have.ResourceVersion}
		if err := l.objects.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &is}); err != nil {
			return nil, err
		}
		l.ack(c)
		return nil, nil
	}
	next := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{valueKey: l.value()}}
	c := change{event: watch.Added, name: name, value: next.Data[valueKey]}
	var err error
	if have == nil {
		c = l.try(c)
		next, err = l.objects.Create(ctx, next, metav1.CreateOptions{})
	} else {
		c.event = watch.Modified
		c = l.try(c)
		next.ResourceVersion = have.ResourceVersion
		next, err = l.objects.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, err
	}
	c.version = version(next)
	l.ack(c)
	return next, nil
}

// look finds out what is there after a write that nobody answered.
func (l *load) look(ctx context.Context, name string) *core.ConfigMap {
	for {
		have, err := l.objects.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			return have
		case apierrors.IsNotFound(err):
			return nil
		}
		select {
		case <-time.After(retryPause):
		case <-l.stop:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *load) value() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	return itoa(l.count)
}

func (l *load) try(c change) change {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried[c.wrote()] = true
	return c
}

func (l *load) ack(c change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = append(l.acked, c)
}

func (l *load) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// awaitMore waits until so many more writes were acknowledged.
func (l *load) awaitMore(t *testing.T, more int) {
	t.Helper()
	want := l.acknowledged() + more
	host.Eventually(t, settleTime, itoa(more)+" more writes are acknowledged", func() (string, bool) {
		n := l.acknowledged()
		return itoa(want-n) + " are missing", n >= want
	})
}

// end stops the writers and waits for them.
func (l *load) end() {
	close(l.stop)
	l.all.Wait()
}

func version(o metav1.Object) uint64 {
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err) // the server says that it is a number
	}
	return v
}

// entry is what a watcher has seen at once: an event, or everything that is there.
type entry struct {
	change
	relisted map[string]string // values by name, at change.version; nil of an event
}

// record is what a watcher has seen: the naive history of everything that the load wrote.
type record struct {
	objects corev1.ConfigMapInterface
	all     sync.WaitGroup

	mu      sync.Mutex // guards all below
	history []entry
	resumed int
	relists int
}

// startRecord watches from now on until the test's context, or until the returned function is called.
func startRecord(t *testing.T, c kubernetes.Interface) (r *record, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r = &record{objects: c.CoreV1().ConfigMaps(loadNamespace)}
	list, err := r.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.all.Go(func() { r.follow(ctx, list.ResourceVersion) })
	return r, func() {
		cancel()
		r.all.Wait()
	}
}

// follow watches, and resumes a watch that broke where it broke. When the server does not know any more what was since then, it
// tells so, and everything is listed.
func (r *record) follow(ctx context.Context, from string) {
	for ctx.Err() == nil {
		expired := false
		w, err := r.objects.Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
		if err == nil {
			from, expired = r.read(w, from)
			w.Stop()
		} else {
			expired = apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		}
		if expired {
			if list, err := r.objects.List(ctx, metav1.ListOptions{}); err == nil {
				from = r.relist(list)
			}
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
		r.mu.Lock()
		r.resumed++
		r.mu.Unlock()
	}
}

// read notes events until the watch ends, and returns where the next must begin.
func (r *record) read(w watch.Interface, from string) (next string, expired bool) {
	for e := range w.ResultChan() {
		switch o := e.Object.(type) {
		case *core.ConfigMap:
			from = o.ResourceVersion
			if e.Type != watch.Bookmark {
				r.note(entry{change: change{event: e.Type, name: o.Name, value: o.Data[valueKey], version: version(o)}})
			}
		case *metav1.Status:
			return from, o.Code == http.StatusGone
		}
	}
	return from, false
}

func (r *record) relist(list *core.ConfigMapList) string {
	at, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		panic(err) // as in version
	}
	e := entry{change: change{version: at}, relisted: values(list.Items)}
	r.note(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relists++
	return list.ResourceVersion
}

func values(objects []core.ConfigMap) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		out[o.Name] = o.Data[valueKey]
	}
	return out
}

func (r *record) note(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, e)
}

// check compares what the watcher saw with what the writers know and with what is there. The writers have stopped.
func (l *load) check(t *testing.T, r *record) {
	t.Helper()
	last, err := l.objects.Create(t.Context(), &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}, Data: map[string]string{valueKey: "last"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	end := change{event: watch.Added, name: "last", value: "last", version: version(last)}
	l.try(end)
	l.ack(end)
	host.Eventually(t, settleTime, "the watcher sees the last write", func() (string, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := len(r.history)
		return itoa(n) + " entries", n > 0 && r.history[n-1].version >= end.version
	})
	list, err := l.objects.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%d writes tried, %d acknowledged, %d seen; the watch was resumed %d times, %d of them by a list", len(l.tried), len(l.acked), len(r.history), r.resumed, r.relists)
	if len(l.acked) == 0 || len(r.history) == 0 {
		t.Fatal("nothing was proven")
	}
	for i, f := range disagreements(l.tried, l.acked, r.history, values(list.Items)) {
		if i == 10 {
			t.Fatal("and more")
		}
		t.Error(f)
	}
}

// disagreements says in which way a history is not one of the writes: it skips or repeats one, has one that nobody made, or
// does not end with what is there.
func disagreements(tried map[string]bool, acked []change, history []entry, there map[string]string) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	seen, state, before := map[string]uint64{}, map[string]string{}, uint64(0)
	for _, e := range history {
		if e.relisted != nil {
			if e.version < before {
				fault("listed at version %d after %d", e.version, before)
			}
			cover(seen, acked, e, before)
			state, before = maps.Clone(e.relisted), e.version
			continue
		}
		if _, twice := seen[e.wrote()]; twice {
			fault("seen twice: %v", e.change)
		}
		if !tried[e.wrote()] {
			fault("nobody wrote %v", e.change)
		}
		if e.version <= before {
			fault("%v came after version %d", e.change, before)
		}
		if _, exists := state[e.name]; exists == (e.event == watch.Added) {
			fault("%v, and before it existed: %v", e.change, exists)
		}
		seen[e.wrote()], before = e.version, e.version
		if state[e.name] = e.value; e.event == watch.Deleted {
			delete(state, e.name)
		}
	}
	for _, a := range acked {
		if v, known := seen[a.wrote()]; !known || a.version != 0 && a.version != v {
			fault("acknowledged, and seen with version %d: %v", v, a)
		}
	}
	if !maps.Equal(there, state) {
		fault("there is %v, and the watcher says %v", there, state)
	}
	return faults
}

// cover notes the writes that a list stands for: those since the version before it of which what is listed is a result.
// What a deletion deleted was there at some version; if a list of that version or a later one has it not, it was deleted by then.
func cover(seen map[string]uint64, acked []change, list entry, before uint64) {
	for _, a := range acked {
		if _, known := seen[a.wrote()]; known {
			continue
		}
		now, exists := list.relisted[a.name]
		switch {
		case a.event == watch.Deleted && a.after <= list.version && (!exists || younger(now, a.value)):
			seen[a.wrote()] = list.version
		case a.event != watch.Deleted && before < a.version && a.version <= list.version && (!exists || now == a.value || younger(now, a.value)):
			seen[a.wrote()] = a.version
		}
	}
}

// younger tells whether value a was made after b.
func younger(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }
