package assignments

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/wire"
)

// simSeeds is how many worlds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 40

func setting(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// memory is a store whose watches are late, and whose writes fail now and then.
type memory struct {
	mu      sync.Mutex
	seed    uint64
	tries   map[string]uint64 // writes, by object
	calm    bool
	version int
	nodes   map[string]*v1alpha1.Node
	configs map[string]*v1alpha1.NodeConfig
	placed  map[string]*v1alpha1.Assignment
	news    []func(*Assignments) // not told yet
	writes  int
}

// fails goes by object and try, because writes run beside each other.
func (m *memory) fails(name string) bool {
	m.tries[name]++
	h := fnv.New64()
	_, _ = h.Write([]byte(name))
	return !m.calm && rand.New(rand.NewPCG(m.seed+m.tries[name], h.Sum64())).IntN(8) == 0
}

func (m *memory) next() string {
	m.version++
	m.writes++
	return strconv.Itoa(m.version)
}

func (m *memory) Get(_ context.Context, key types.NamespacedName, into runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch o := into.(type) {
	case *v1alpha1.Revision:
		o.Spec.Resources = resourcesOf(key.Name)
	case *v1alpha1.NodeConfig:
		c := m.configs[key.Name]
		if c == nil {
			return apierrors.NewNotFound(v1alpha1.Resource("nodeconfigs"), key.Name)
		}
		c.DeepCopyInto(o)
	}
	return nil
}

func (m *memory) Create(_ context.Context, o runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := o.(*v1alpha1.Assignment)
	if m.placed[a.Name] != nil {
		return apierrors.NewAlreadyExists(v1alpha1.Resource("assignments"), a.Name)
	}
	if m.fails(o.(metav1.Object).GetName()) {
		return apierrors.NewInternalError(fmt.Errorf("no room"))
	}
	a.ResourceVersion = m.next()
	a.UID = types.UID("a" + a.ResourceVersion)
	m.place(a)
	return nil
}

func (m *memory) Update(_ context.Context, o runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := o.(*v1alpha1.Assignment)
	if old := m.placed[a.Name]; old == nil || old.ResourceVersion != a.ResourceVersion || m.fails(o.(metav1.Object).GetName()) {
		return apierrors.NewConflict(v1alpha1.Resource("assignments"), a.Name, fmt.Errorf("another version"))
	}
	a.ResourceVersion = m.next()
	m.place(a)
	return nil
}

func (m *memory) place(a *v1alpha1.Assignment) {
	m.placed[a.Name] = a.DeepCopy()
	told := a.DeepCopy()
	m.news = append(m.news, func(to *Assignments) { _ = to.placed.Update(told) })
}

func (m *memory) UpdateStatus(_ context.Context, o runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := o.(*v1alpha1.NodeConfig)
	old := m.configs[c.Name]
	if old == nil || old.ResourceVersion != c.ResourceVersion || m.fails(o.(metav1.Object).GetName()) {
		return apierrors.NewConflict(v1alpha1.Resource("nodeconfigs"), c.Name, fmt.Errorf("another version"))
	}
	old.Status = *c.Status.DeepCopy()
	m.put(old)
	old.DeepCopyInto(c)
	return nil
}

func (m *memory) put(c *v1alpha1.NodeConfig) {
	c.ResourceVersion = m.next()
	m.configs[c.Name] = c
	told := c.DeepCopy()
	m.news = append(m.news, func(to *Assignments) { _ = to.configs[0].Update(told) })
}

func (*memory) ListerWatcher(schema.GroupVersionKind, bool) cache.ListerWatcher { return nil }

// tell passes on the oldest news.
func (m *memory) tell(to *Assignments, n int) {
	for range min(n, len(m.news)) {
		m.news[0](to)
		m.news = m.news[1:]
	}
}

// resourcesOf a revision: c1 and c2 claim what the other one claims at times, agree on some of it, and take some of it from one ConfigMap.
func resourcesOf(revision string) []declare.Resource {
	config, number := revision[:2], revision[3:]
	var all []declare.Resource
	add := func(path, content string) {
		all = append(all, declare.Resource{Name: path[1:], File: &declare.File{Path: path, Content: content}})
	}
	taken := func(path string) {
		add(path, "")
		all[len(all)-1].File.ContentFrom = &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "values", Key: "value"}}
	}
	if config == "c0" {
		add("/c0", number)
		taken("/taken")
		return all
	}
	switch number {
	case "0":
		add("/shared", "agreed")
	case "1":
		add("/shared", config)
	case "2":
		add("/x", config)
	case "3":
		add("/y", config)
	case "4":
		taken("/shared")
	case "5":
		taken("/shared")
		add("/x", config)
	}
	return all
}

// contents of a revision, by path.
func (s *sim) contents(revision string) map[string]string {
	is := map[string]string{}
	for _, r := range resourcesOf(revision) {
		is[r.File.Path] = r.File.Content
		if r.File.ContentFrom != nil {
			is[r.File.Path] = s.value
		}
	}
	return is
}

// compile compiles a revision with the value of now, and remembers what that was.
func (s *sim) compile(revision string) []catalog.Item {
	items, err := catalog.CompileWith(resourcesOf(revision), func(*declare.Resource) (catalog.Content, error) { return catalog.Content{Text: s.value}, nil })
	if err != nil {
		panic(err)
	}
	s.compiled[catalog.TrieOf(items).Root().String()] = s.contents(revision)
	return items
}

// agree reports whether two revisions can be on one host.
func (s *sim) agree(a, b string) bool {
	others := s.contents(b)
	for path, content := range s.contents(a) {
		if other, both := others[path]; both && other != content {
			return false
		}
	}
	return true
}

// sim is a fleet in one goroutine.
type sim struct {
	t        *testing.T
	rng      *rand.Rand
	store    *memory
	presence *fakePresence
	layers   *fakeLayers
	a        *Assignments
	w        *world
	has      map[string]*v1alpha1.Assignment // what each host has taken up
	value    string                          // of the ConfigMap
	compiled map[string]map[string]string    // contents by path, by root
	made     int
}

func newSim(t *testing.T, rng *rand.Rand) *sim {
	s := &sim{t: t, rng: rng, has: map[string]*v1alpha1.Assignment{}, value: "first", compiled: map[string]map[string]string{}}
	s.store = &memory{seed: rng.Uint64(), tries: map[string]uint64{}, nodes: map[string]*v1alpha1.Node{}, configs: map[string]*v1alpha1.NodeConfig{}, placed: map[string]*v1alpha1.Assignment{}}
	s.presence = &fakePresence{seen: map[types.UID]presence.Seen{}, changed: make(chan struct{}, 1)}
	s.layers = &fakeLayers{changed: make(chan struct{}, 1), salt: map[string]string{}, missing: map[string]error{}, keys: map[string][]layers.KeyUse{}, compile: s.compile}
	s.begin()
	for range 4 {
		s.join()
	}
	for i := range 3 {
		s.declare(fmt.Sprint("c", i))
	}
	return s
}

// begin is a server that begins, with what is stored.
func (s *sim) begin() {
	a, err := New(Options{Objects: s.store, Layers: s.layers, Changes: s.layers, Presence: s.presence, Recorder: &fakeRecorder{}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.a, s.w, s.store.news = a, newWorld(time.Now().Add(-time.Hour)), nil
	s.layers.forget()
	for _, n := range s.store.nodes {
		_ = a.nodes.Add(n.DeepCopy())
	}
	for _, c := range s.store.configs {
		_ = a.configs[0].Add(c.DeepCopy())
	}
	for _, p := range s.store.placed {
		_ = a.placed.Add(p.DeepCopy())
	}
}

func (s *sim) join() {
	s.made++
	name := fmt.Sprint("n", s.made)
	n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.NodeSpec{Environment: "qa"}}
	n.Status.Identity = &v1alpha1.NodeIdentity{SealingKey: []byte(name)}
	s.store.nodes[name] = n
	_ = s.a.nodes.Add(n.DeepCopy())
	s.presence.say(n.UID, name, presence.Seen{Presence: node.Here, Believed: true})
}

func (s *sim) declare(name string) {
	c := s.store.configs[name]
	if c == nil {
		c = &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "qa", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(s.made), 0))}}
	}
	c = c.DeepCopy()
	c.Generation++
	c.Spec.Rollout = declare.Rollout{MaxUnavailable: []declare.IntOrPercent{"1", "2", "100%"}[s.rng.IntN(3)], Try: []string{"", "", "10s"}[s.rng.IntN(3)]}
	revision := fmt.Sprint(name, "-", s.rng.IntN(6))
	c.Status.Revision = revision
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRevised, Status: metav1.ConditionTrue, Reason: "RevisionMade", ObservedGeneration: c.Generation}}
	s.store.put(c)
}

// work has a host take up what is stored for it.
func (s *sim) work(name string) {
	p := s.store.placed[name]
	if p == nil {
		return
	}
	s.has[name] = p
	r := &wire.Report{Enforced: catalog.Mark{Version: versionOf(p)}, Have: catalog.Mark{Version: versionOf(p)}}
	for _, l := range p.Spec.Layers {
		r.Configs = append(r.Configs, wire.ConfigReport{ID: l.Config, Settled: true, Converged: s.store.calm || l.Root[0]%4 != 0})
	}
	s.presence.say(types.UID(name), name, presence.Seen{Presence: node.Here, Believed: true, Report: r})
}

func (s *sim) step() {
	names := slices.Sorted(maps.Keys(s.store.nodes))
	name := names[s.rng.IntN(len(names))]
	switch k := s.rng.IntN(20); {
	case k < 6:
		s.work(name)
	case k < 12:
		s.store.tell(s.a, 1+s.rng.IntN(4))
	case k == 12:
		s.declare(fmt.Sprint("c", s.rng.IntN(3)))
	case k == 13 && s.rng.IntN(4) == 0:
		s.join()
	case k == 14 && len(names) > 2 && s.rng.IntN(4) == 0:
		n := s.store.nodes[name]
		delete(s.store.nodes, name)
		delete(s.store.placed, name)
		_ = s.a.nodes.Delete(n)
		s.store.news = append(s.store.news, func(to *Assignments) {
			_ = to.placed.Delete(&v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: name}})
		})
	case k == 15:
		for i := range 3 {
			s.layers.set(fmt.Sprint("NodeConfig/qa/c", i), func() { s.value = fmt.Sprint(s.rng.IntN(3)) })
		}
	case k == 16:
		n := s.store.nodes[name].DeepCopy()
		n.Spec.Environment = []string{"qa", "qa", "prod"}[s.rng.IntN(3)]
		s.store.nodes[name] = n
		_ = s.a.nodes.Update(n.DeepCopy())
	case k == 17 && s.rng.IntN(4) == 0:
		s.begin()
	case k == 18:
		n := s.store.nodes[name].DeepCopy()
		n.Spec.Holds = nil
		if s.rng.IntN(2) == 0 {
			n.Spec.Holds = []v1alpha1.NodeHold{{Reason: "r", Owner: "o", Until: metav1.NewTime(time.Now().Add(time.Hour))}}
		}
		s.store.nodes[name] = n
		_ = s.a.nodes.Update(n.DeepCopy())
	}
	<-time.After(time.Duration(s.rng.IntN(300)) * time.Millisecond)
	s.round()
}

// round decides, and checks what is stored then.
func (s *sim) round() {
	s.a.absorb(s.w, time.Now())
	_ = s.a.round(s.t.Context(), s.w)
	for name, p := range s.store.placed {
		content := map[string]string{}
		for i, l := range p.Spec.Layers {
			if i > 0 && p.Spec.Layers[i-1].Config >= l.Config {
				s.t.Fatalf("%s: the layers are not in order: %+v", name, p.Spec.Layers)
			}
			for path, is := range s.compiled[l.Root] {
				if other, taken := content[path]; taken && other != is {
					s.t.Fatalf("%s: two layers want different things of %s: %+v", name, path, p.Spec.Layers)
				}
				content[path] = is
			}
		}
		if p.Spec.Try != nil && layerOf(p.Spec.Layers, p.Spec.Try.Config) == nil {
			s.t.Fatalf("%s tries what it has not got: %+v", name, p.Spec)
		}
	}
}

// confirm ends what is tried: a rollout waits for that.
func (s *sim) confirm() {
	for _, name := range slices.Sorted(maps.Keys(s.store.configs)) {
		if c := s.store.configs[name]; c.Spec.Rollout.Try != "" {
			c = c.DeepCopy()
			c.Generation++
			c.Spec.Rollout.Try = ""
			meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionRevised).ObservedGeneration = c.Generation
			s.store.put(c)
		}
	}
}

// settle makes the world quiet, and wants it to end as it is declared, with nothing written any more.
func (s *sim) settle() {
	s.store.calm = true
	late := time.Now().Add(10 * time.Minute)
	clear(s.has) // everybody says once more how things are
	s.confirm()
	for quiet := 0; quiet < 5; {
		before := s.store.writes
		s.store.tell(s.a, len(s.store.news))
		for name := range s.store.nodes {
			if s.has[name] == nil || s.has[name] != s.store.placed[name] {
				s.work(name)
			}
		}
		s.round()
		<-time.After(20 * time.Millisecond)
		if quiet++; s.store.writes != before || !s.w.wakeAt().IsZero() && s.w.wakeAt().Before(time.Now().Add(2*time.Second)) {
			quiet = 0
		}
		if time.Now().After(late) {
			for _, c := range s.store.configs {
				s.t.Logf("%s: %+v", c.Name, c.Status)
			}
			s.t.Fatalf("it does not end: %d are written, again in %v", s.store.writes-before, time.Until(s.w.wakeAt()))
		}
	}
	for name, n := range s.store.nodes {
		p := s.store.placed[name]
		if p == nil || p.Spec.Environment != n.Spec.Environment || (p.Spec.Own != nil) != (len(n.Spec.Holds) > 0) {
			h := s.w.hosts[name]
			s.t.Fatalf("%s has %+v, and is %+v; known as %+v with %+v, decided %+v, dirty %v, wakes %v of %v", name, p, n.Spec, h.hostSpec, h.assigned, h.rows, h.dirty, h.wakeAt, time.Now())
		}
		for id, k := range s.w.configs {
			c := s.store.configs[k.name]
			if l := layerOf(p.Spec.Layers, id); n.Spec.Environment == "qa" && s.canEnd(k.name) && (l == nil || l.Revision != c.Status.Revision || l.Root != c.Status.Rollout.TargetRoot) {
				h := s.w.hosts[name]
				s.t.Fatalf("%s has %+v of %s, which is %+v; decided rows %+v, kept out %+v, stands %+v, wakes %v, host %+v, wakes %v", name, l, id, c.Status, h.rows, k.refused, k.was, k.wakeAt, h.seen, h.wakeAt)
			}
		}
		if n.Spec.Environment != "qa" && len(p.Spec.Layers) > 0 {
			s.t.Fatalf("%s has %+v of another environment", name, p.Spec.Layers)
		}
	}
	for name, c := range s.store.configs {
		if r := c.Status.Rollout; s.canEnd(name) && (r == nil || r.Phase != "Complete" && r.Phase != "Empty" || len(c.Status.Conflicts) > 0) {
			s.t.Fatalf("%s is %+v", name, c.Status)
		}
	}
}

// canEnd: no other config is in the way for good.
func (s *sim) canEnd(name string) bool {
	return name == "c0" || s.agree(s.store.configs["c1"].Status.Revision, s.store.configs["c2"].Status.Revision)
}

// TestSimulation: with watches that are late, writes that fail, servers that come and go and hosts that do as they like, no node ever
// has two layers that contradict each other, and when it is quiet everybody has what is declared.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), max(setting("TAKO_SEEDS", simSeeds), simSeeds)
	if one := setting("TAKO_SEED", 0); one != 0 {
		first, last = one, one
	}
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t, rand.New(rand.NewPCG(seed, 1)))
				for range 300 {
					s.step()
				}
				s.settle()
			})
		}) {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
}
