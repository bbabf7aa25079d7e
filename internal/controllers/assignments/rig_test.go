package assignments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/inbox"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/events"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// within is how long the tests wait for what should be there in a moment: long, for a machine that is busy with other things.
const within = 60 * time.Second

// local is the storage of the one server of this process.
var local *registry.Local

func TestMain(m *testing.M) {
	code, err := withStore(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withStore(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tako-assignments-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	member, err := etcd.Start(ctx, etcd.Options{Dir: dir})
	if err != nil {
		return 1, err
	}
	defer member.Close()
	client, err := etcd.Connect(ctx, etcd.Connection{Endpoints: member.Endpoints()})
	if err != nil {
		return 1, err
	}
	defer func() { _ = client.Close() }()
	member.Attach(client)
	kinds := registry.Kinds()
	scheme := registry.NewScheme(kinds)
	backend := registry.NewBackend(scheme, client, nil)
	defer backend.Close()
	bounds, err := events.New(events.Options{})
	if err != nil {
		return 1, err
	}
	objects, err := registry.New(scheme, kinds, backend, nil, bounds)
	if err != nil {
		return 1, err
	}
	for _, k := range kinds {
		s := objects.Store(k.Resource())
		defer s.Destroy()
		late := time.Now().Add(within)
		for s.ReadinessCheck() != nil {
			if time.Now().After(late) {
				return 1, errors.New("the storage does not get ready")
			}
			<-time.After(time.Millisecond)
		}
	}
	local = registry.NewLocal(objects, admission.NewChainHandler())
	return m.Run(), nil
}

// rig is a fleet of hosts that are not there, on a real store.
type rig struct {
	*testing.T
	layers   *fakeLayers
	presence *fakePresence
	recorder *fakeRecorder
	agents   map[string]*agent
	bad      map[string]string // revisions that do not work, with what is wrong
	badRoots func(string) bool // roots that do not work
	path     map[string]string // of the file of a config; default its own
	full     atomic.Bool       // the store takes no Secrets
	busy     atomic.Bool       // hosts take everything up, and have not looked at it yet
	measures *fakeMeasures
	stop     func()
	begun    *Assignments
}

// fakeMeasures answers what it is told to.
type fakeMeasures struct {
	mu      sync.Mutex // guards what follows
	value   float64
	missing string
	wanted  map[measures.Query]bool
}

func (m *fakeMeasures) Answer(measures.Query) scale.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missing != "" {
		return scale.Answer{Missing: m.missing}
	}
	return scale.Answer{At: time.Now(), Value: m.value}
}

func (m *fakeMeasures) Want(queries map[measures.Query]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = queries
}

// says changes the answer.
func (m *fakeMeasures) says(value float64, missing string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.value, m.missing = value, missing
}

// asked is what is wanted.
func (m *fakeMeasures) asked() (texts []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for q := range m.wanted {
		texts = append(texts, q.Text)
	}
	return texts
}

// refusing is a store that takes no Secrets for a while.
type refusing struct {
	*registry.Local
	full *atomic.Bool
}

func (r refusing) Update(ctx context.Context, o runtime.Object) error {
	if _, is := o.(*core.Secret); is && r.full.Load() {
		return errors.New("there is no room")
	}
	return r.Local.Update(ctx, o)
}

// agent is what would be a host.
type agent struct {
	name    string
	deaf    bool // it takes nothing up
	enforce *v1alpha1.Assignment
	busy    bool // it has said that it is
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		T: t, presence: &fakePresence{seen: map[types.UID]presence.Seen{}, changed: make(chan struct{}, 1)}, recorder: &fakeRecorder{},
		layers: &fakeLayers{changed: make(chan struct{}, 1), salt: map[string]string{}, missing: map[string]error{}, keys: map[string][]layers.KeyUse{}},
		agents: map[string]*agent{}, bad: map[string]string{}, measures: &fakeMeasures{},
	}
	t.Cleanup(r.clear)
	r.begin()
	t.Cleanup(func() { r.stop() })
	return r
}

// begin is a server that begins to lead.
func (r *rig) begin() {
	r.Helper()
	r.beginOn(refusing{local, &r.full})
}

// beginOn is one with a store of its own.
func (r *rig) beginOn(store Objects) {
	r.Helper()
	a, err := New(Options{
		Objects: store, Layers: r.layers, Changes: r.layers, Presence: r.presence, Recorder: r.recorder, Measures: r.measures,
		Log: slog.New(slog.NewTextHandler(r.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	r.begun = a
	r.stop = func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.Errorf("it ended with %v", err)
			}
			ended <- nil
		case <-time.After(within):
			r.Error("it does not end")
		}
	}
}

// clear takes away what a test has made.
func (r *rig) clear() {
	for _, kind := range []string{v1alpha1.KindNodeConfig, v1alpha1.KindClusterNodeConfig, v1alpha1.KindRevision, v1alpha1.KindClusterRevision, v1alpha1.KindInstance, v1alpha1.KindNode, v1alpha1.KindAssignment} {
		for _, o := range listOf(r.T, kind) {
			if err := local.Delete(context.Background(), o, nil); err != nil && !apierrors.IsNotFound(err) {
				r.Errorf("clear: %v", err)
			}
			r.unfinished(o)
		}
	}
}

// unfinished lets an Assignment go that waits for what has ended.
func (r *rig) unfinished(o runtime.Object) {
	a, is := o.(*v1alpha1.Assignment)
	if !is || len(a.Finalizers) == 0 {
		return
	}
	left := &v1alpha1.Assignment{}
	if err := local.Get(context.Background(), keyOf(a.Name), left); apierrors.IsNotFound(err) {
		return
	}
	left.Finalizers = nil
	if err := local.Update(context.Background(), left); err != nil && !apierrors.IsNotFound(err) {
		r.Errorf("clear: %v", err)
	}
}

func listOf(t testing.TB, kind string) []runtime.Object {
	t.Helper()
	type lister interface {
		List(metav1.ListOptions) (runtime.Object, error)
	}
	list, err := local.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(kind), false).(lister).List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	if err := meta.EachListItem(list, func(o runtime.Object) error { all = append(all, o.DeepCopyObject()); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// eventually lets the hosts work until look returns "", and fails with what it returned last.
func (r *rig) eventually(what string, look func() string) {
	r.Helper()
	late, again := time.After(within), time.NewTicker(2*time.Millisecond)
	defer again.Stop()
	for {
		r.work()
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

// work has every host take up what is assigned, and say what became of it.
func (r *rig) work() {
	for _, name := range slices.Sorted(mapsKeys(r.agents)) {
		r.workOne(r.agents[name])
	}
}

func mapsKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (r *rig) workOne(g *agent) {
	a, n := &v1alpha1.Assignment{}, &v1alpha1.Node{}
	if g.deaf || local.Get(r.Context(), types.NamespacedName{Name: g.name}, a) != nil || local.Get(r.Context(), types.NamespacedName{Name: g.name}, n) != nil || a.Spec.NodeUID != n.UID {
		return
	}
	if g.enforce != nil && g.enforce.ResourceVersion == a.ResourceVersion && g.enforce.UID == a.UID && g.busy == r.busy.Load() {
		return
	}
	g.enforce, g.busy = a, r.busy.Load()
	report := &wire.Report{Enforced: catalog.Mark{Version: versionOf(a)}, Have: catalog.Mark{Version: versionOf(a)}}
	for _, l := range a.Spec.Layers {
		c := wire.ConfigReport{ID: l.Config, Settled: true, Converged: r.bad[l.Revision] == ""}
		if r.badRoots != nil && r.badRoots(l.Root) {
			c.Converged, c.Code, c.Message = false, reason.CheckRejected, "wrong value"
		} else if !c.Converged {
			c.Code, c.Message = reason.CheckRejected, r.bad[l.Revision]
		}
		if g.busy {
			c = wire.ConfigReport{ID: l.Config}
		}
		report.Configs = append(report.Configs, c)
	}
	r.presence.say(n.UID, g.name, presence.Seen{Presence: node.Here, Believed: true, Report: report})
}

// join makes a node that a host has joined as and that is heard.
func (r *rig) join(name, environment string) *v1alpha1.Node {
	r.Helper()
	n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: v1alpha1.NodeSpec{Environment: environment}}
	r.must(local.Create(r.Context(), n))
	n.Status.Identity = &v1alpha1.NodeIdentity{Key: "sha256:00", SealingKey: []byte("key of " + name), Joined: metav1.Now()}
	r.must(local.UpdateStatus(r.Context(), n))
	r.agents[name] = &agent{name: name}
	r.presence.say(n.UID, name, presence.Seen{Presence: node.Here, Believed: true})
	return n
}

// change changes the spec of a node.
func (r *rig) change(name string, change func(*v1alpha1.NodeSpec)) {
	r.Helper()
	r.retry(func() error {
		n := &v1alpha1.Node{}
		if err := local.Get(r.Context(), types.NamespacedName{Name: name}, n); err != nil {
			return err
		}
		change(&n.Spec)
		return local.Update(r.Context(), n)
	})
}

func (r *rig) retry(do func() error) {
	r.Helper()
	for range 20 {
		err := do()
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			r.Fatal(err)
		}
	}
	r.Fatal("somebody is always faster")
}

// declare makes or changes a NodeConfig of one file, and does what the controller of revisions does. It returns the revision.
func (r *rig) declare(namespace, name, content string, rollout declare.Rollout) string {
	r.Helper()
	resources := []declare.Resource{{Name: "f", File: &declare.File{Path: "/etc/motd", Content: content}}}
	if path, is := r.path[name]; is {
		resources[0].File.Path = path
	} else if name != "motd" && name != "other" {
		resources[0].File.Path = "/etc/" + name
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c := &v1alpha1.NodeConfig{}
	r.retry(func() error {
		err := local.Get(r.Context(), key, c)
		if apierrors.IsNotFound(err) {
			c = &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: declare.NodeConfigSpec{Resources: resources, Rollout: rollout}}
			return local.Create(r.Context(), c)
		}
		if err != nil {
			return err
		}
		c.Spec.Resources, c.Spec.Rollout = resources, rollout
		return local.Update(r.Context(), c)
	})
	digest, err := catalog.RevisionDigest(resources)
	r.must(err)
	revision := catalog.RevisionName(name, digest)
	err = local.Create(r.Context(), &v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: revision}, Spec: v1alpha1.RevisionSpec{Resources: resources}})
	if !apierrors.IsAlreadyExists(err) {
		r.must(err)
	}
	r.retry(func() error {
		if err := local.Get(r.Context(), key, c); err != nil {
			return err
		}
		c.Status.Revision = revision
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionRevised, Status: metav1.ConditionTrue, Reason: "RevisionMade", ObservedGeneration: c.Generation})
		return local.UpdateStatus(r.Context(), c)
	})
	return revision
}

// config reads a config.
func (r *rig) config(namespace, name string) *v1alpha1.NodeConfig {
	r.Helper()
	c := &v1alpha1.NodeConfig{}
	r.must(local.Get(r.Context(), types.NamespacedName{Namespace: namespace, Name: name}, c))
	return c
}

// assigned are the revisions that a node has.
func (r *rig) assigned(name string) []string {
	revisions := []string{}
	for _, l := range r.assignment(name).Spec.Layers {
		revisions = append(revisions, l.Revision)
	}
	return revisions
}

// assignment is that of a node; empty when there is none.
func (r *rig) assignment(name string) *v1alpha1.Assignment {
	r.Helper()
	a := &v1alpha1.Assignment{}
	if err := local.Get(r.Context(), types.NamespacedName{Name: name}, a); err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	return a
}

// settles waits until a config is in a phase with a revision, and says so for its generation.
func (r *rig) settles(namespace, name, revision, phase string) *v1alpha1.NodeConfig {
	r.Helper()
	var c *v1alpha1.NodeConfig
	r.eventually(name+" is "+phase, func() string {
		c = r.config(namespace, name)
		s := c.Status.Rollout
		if s != nil && s.Phase == phase && s.Target == revision && c.Status.ObservedGeneration == c.Generation {
			return ""
		}
		return fmt.Sprintf("%+v of generation %d", c.Status, c.Generation)
	})
	return c
}

// wantCondition wants a condition of a config; status "" wants none.
func (r *rig) wantCondition(c *v1alpha1.NodeConfig, kind string, status metav1.ConditionStatus, why string) {
	r.Helper()
	is := meta.FindStatusCondition(c.Status.Conditions, kind)
	if is == nil && status == "" {
		return
	}
	if is == nil || is.Status != status || is.Reason != why {
		r.Errorf("%s of %s is %+v, want %s %s", kind, c.Name, is, status, why)
	}
}

// fakePresence knows what it is told.
type fakePresence struct {
	mu      sync.Mutex
	seen    map[types.UID]presence.Seen
	changes []string
	changed chan struct{}
}

func (p *fakePresence) say(uid types.UID, name string, seen presence.Seen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[uid] = seen
	p.changes = append(p.changes, name)
	inbox.Signal(p.changed)
}

func (p *fakePresence) Of(uid types.UID) (presence.Seen, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.seen[uid]
	return s, ok
}

func (p *fakePresence) Changed() <-chan struct{} { return p.changed }

func (p *fakePresence) Changes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := p.changes
	p.changes = nil
	return names
}

// fakeLayers makes roots of names and salts.
type fakeLayers struct {
	mu      sync.Mutex
	salt    map[string]string // by config
	missing map[string]error
	keys    map[string][]layers.KeyUse
	told    []string
	changed chan struct{}
	sealed  int
	compile func(revision string) []catalog.Item // what a revision is; nil: it does not matter
	kept    map[catalog.Digest]*layers.Layer
}

// lack has a config compiled to nothing, for a reason; nil ends that.
func (f *fakeLayers) lack(config string, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.missing, config)
	if why != nil {
		f.missing[config] = why
	}
}

func (f *fakeLayers) Of(_ context.Context, config, revision string) (*layers.Layer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.missing[config]; err != nil {
		return nil, err
	}
	layer := &layers.Layer{Root: sha256.Sum256([]byte(config + "\x00" + revision + "\x00" + f.salt[config])), Entries: 1, Bytes: 100}
	if f.compile != nil {
		layer = layers.NewLayer(f.compile(revision))
	}
	layer.Keys = f.keys[config]
	if f.kept == nil {
		f.kept = map[catalog.Digest]*layers.Layer{}
	}
	f.kept[layer.Root] = layer
	return layer, nil
}

func (f *fakeLayers) At(_ string, root catalog.Digest) (*layers.Layer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	layer, ok := f.kept[root]
	return layer, ok
}

// forget is that values that have changed are nowhere any more.
func (f *fakeLayers) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.kept)
}

func (f *fakeLayers) WrapFor(to layers.Recipient, key layers.KeyUse) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sealed++
	return fmt.Appendf(nil, "%s for %s, %d", key.ID, to.SealingKey, f.sealed), nil
}

func (f *fakeLayers) KeyID(secretUID, key string, value []byte) string {
	id := sha256.Sum256([]byte(secretUID + "/" + key + "/" + string(value)))
	return hex.EncodeToString(id[:16])
}

func (f *fakeLayers) C() <-chan struct{} { return f.changed }

func (f *fakeLayers) Take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told
}

// set changes what a config compiles to.
func (f *fakeLayers) set(config string, change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.told = append(f.told, config)
	inbox.Signal(f.changed)
}

// fakeRecorder keeps what is told.
type fakeRecorder struct {
	mu  sync.Mutex
	all []string
}

func (f *fakeRecorder) Tell(about core.ObjectReference, _, why, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, about.Name+": "+why)
}

func (f *fakeRecorder) has(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.all, text)
}

// about tells whether anything is told of an object.
func (f *fakeRecorder) about(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.all, func(told string) bool { return strings.HasPrefix(told, name+": ") })
}

func (f *fakeRecorder) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = nil
}

func keyOf(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
