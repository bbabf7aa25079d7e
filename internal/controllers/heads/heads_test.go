package heads

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

func keyOf(who server.Identity) types.NamespacedName { return types.NamespacedName{Name: who.Name} }
func uidOf(who server.Identity) types.UID            { return types.UID(who.UID) }

// one gives a node one layer.
func one(root int) func(*v1alpha1.AssignmentSpec) {
	return func(s *v1alpha1.AssignmentSpec) {
		s.Layers = []v1alpha1.AssignedLayer{assignedLayer(1, "a", root)}
		s.Layers[0].Since = metav1.Unix(1_800_000_000, 0)
	}
}

func codeOf(err error) reason.Code {
	if err == nil {
		return 0
	}
	return reason.Of(err).Code
}

func TestHeadFollowsTheAssignment(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	if b, _, err := r.Head(who); err != nil || len(b) > 0 {
		t.Fatalf("%v: a head of %d bytes, and nothing is assigned", err, len(b))
	}
	first := r.assign(who, one(1))
	h := r.head(who, atVersion(first))
	root, _ := h.Root()
	if list, ok := r.List(root); !ok || catalog.ListRoot(list) != root || h.Epoch != 1 {
		t.Errorf("list of %+v: %v", h, ok)
	}
	// Another server makes the same bytes.
	other := newRig(t)
	other.share(r)
	other.run()
	other.head(who, atVersion(first))
	a, _, _ := r.Head(who)
	b, _, _ := other.Head(who)
	if !bytes.Equal(a, b) {
		t.Errorf("two servers have\n%x\n%x", a, b)
	}
	// What was replaced is known for a while.
	second := r.assign(who, one(2))
	h = r.head(who, atVersion(second))
	if next, _ := h.Root(); next == root {
		t.Error("the same root")
	}
	if _, ok := r.List(root); !ok {
		t.Error("the list before is not known any more")
	}
	if got := testutil.ToFloat64(r.metrics.signed); got > 4 {
		t.Errorf("%v heads were signed", got)
	}
}

func TestNodeGoes(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	version := r.assign(who, one(1))
	r.head(who, atVersion(version))
	_, changed, err := r.Head(who)
	r.must(err)
	r.must(r.store.Delete(t.Context(), &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: who.Name}}, nil))
	r.told(changed)
	if _, _, err := r.Head(who); codeOf(err) != reason.ObjectUnknown {
		t.Errorf("error %v", err)
	}
	// Who is no node is told so as soon as that is certain.
	_, changed, err = r.Head(server.Identity{Name: "nobody", UID: "none"})
	r.must(err)
	r.told(changed)
	if _, _, err := r.Head(server.Identity{Name: "nobody", UID: "none"}); codeOf(err) != reason.ObjectUnknown {
		t.Errorf("error %v", err)
	}
	// The next one of that name does not get what was for him.
	n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: who.Name}}
	r.must(r.store.Create(t.Context(), n))
	again := server.Identity{Name: n.Name, UID: string(n.UID)}
	r.eventually("the new node is known", func() string {
		if r.view.known()[n.Name] < number(n.ResourceVersion) {
			return "not yet"
		}
		return ""
	})
	if b, _, err := r.Head(again); err != nil || len(b) > 0 {
		t.Errorf("%v: it has a head", err)
	}
}

// A layer is served by its root: the present one, one before, and after a start of the server, when nobody has compiled it.
func TestLayersAreServed(t *testing.T) {
	r := newRig(t).run()
	who, namespace := r.join(), r.namespace()
	m := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "site"}, Data: map[string]string{"index": "one"}}
	r.must(r.store.Create(t.Context(), m))
	hidden := &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tls"}, Data: map[string][]byte{"key": []byte("hush")}}
	r.must(r.store.Create(t.Context(), hidden))
	resources := []declare.Resource{
		{Name: "a", File: &declare.File{Path: "/etc/a", ContentFrom: &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "site", Key: "index"}}}},
		{Name: "b", File: &declare.File{Path: "/etc/b", ContentFrom: &declare.ContentSource{Secret: &declare.KeySelector{Name: "tls", Key: "key"}}}},
	}
	digest, err := catalog.RevisionDigest(resources)
	r.must(err)
	revision := &v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: catalog.RevisionName("web", digest)}, Spec: v1alpha1.RevisionSpec{Resources: resources}}
	r.must(r.store.Create(t.Context(), revision))
	config := "NodeConfig/" + namespace + "/web"
	l, err := r.layers.Of(t.Context(), config, revision.Name)
	r.must(err)
	if len(l.Keys) != 1 || l.Keys[0].Secret != namespace+"/tls/key" {
		t.Errorf("keys %v", l.Keys)
	}
	var own catalog.Digest
	give := func(root catalog.Digest) func(*v1alpha1.AssignmentSpec) {
		return func(s *v1alpha1.AssignmentSpec) {
			s.Layers = []v1alpha1.AssignedLayer{{Priority: 1, Config: config, Revision: revision.Name, Root: root.String(), Since: metav1.Unix(1_800_000_000, 0)}}
			withOwn(t, s, strings.Repeat("0a", 16))
			own, _ = ownRoot(s)
		}
	}
	version := r.assign(who, give(l.Root))
	r.head(who, atVersion(version))
	served := func(h *Heads, id string, root catalog.Digest) {
		t.Helper()
		got, ok := h.Layer(id, root)
		if !ok || got.Trie.Root() != root {
			t.Fatalf("layer %s at %s: %v", id, root, ok)
		}
		for row := range got.Trie.From(catalog.Digest{}) {
			if body, ok := got.Body(row.Digest); !ok || len(body) == 0 {
				t.Errorf("no body of %s", row.Digest)
			}
		}
	}
	served(r.Heads, config, l.Root)
	served(r.Heads, wire.OwnLayer, own)
	if _, ok := r.Layer(config, own); ok {
		t.Error("an own layer is served as one of a config")
	}
	if _, ok := r.Layer(config, rootNo(1)); ok {
		t.Error("a root that nobody has is served")
	}
	started := newRig(t)
	started.share(r)
	started.run().head(who, atVersion(version))
	served(started.Heads, config, l.Root)
	// The value changes: the next layer is another one, and the one before is there for who has it.
	r.must(r.store.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "site"}, m))
	m.Data["index"] = "two"
	r.must(r.store.Update(t.Context(), m))
	r.eventually("the layer is compiled again", func() string {
		next, err := r.layers.Of(t.Context(), config, revision.Name)
		r.must(err)
		if next.Root == l.Root {
			return "the same root"
		}
		return ""
	})
	served(r.Heads, config, l.Root)
	later := newRig(t)
	later.share(r)
	later.run().head(who, atVersion(version))
	if _, ok := later.Layer(config, l.Root); ok {
		t.Error("a server that has begun just now serves what it cannot know")
	}
}

func ownRoot(s *v1alpha1.AssignmentSpec) (catalog.Digest, error) {
	c, err := ContentOf(s)
	if err != nil {
		return catalog.Digest{}, err
	}
	return c.OwnRoot, nil
}

// While a state is tried its head has both roots, and both lists are served.
func TestTry(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	version := r.assign(who, func(s *v1alpha1.AssignmentSpec) {
		one(2)(s)
		before := assignedLayer(1, "a", 1)
		before.Since = metav1.Unix(1_800_000_000, 0)
		withTry(t, s, before)
	})
	h := r.head(who, atVersion(version))
	if h.Try == nil || h.Try.Seconds != 600 {
		t.Fatalf("head %+v", h)
	}
	for _, root := range []catalog.Digest{h.Roots[0].Root, h.Try.Fallback} {
		if _, ok := r.List(root); !ok {
			t.Errorf("no list at %s", root)
		}
	}
	confirmed := r.assign(who, func(s *v1alpha1.AssignmentSpec) { s.Try = nil })
	if h := r.head(who, atVersion(confirmed)); h.Try != nil {
		t.Error("it is still a try")
	}
}

// An Assignment that nothing can be made of leaves what its node had, and is told once.
func TestMalformedAssignment(t *testing.T) {
	r := newRig(t).run()
	who, fresh := r.join(), r.join()
	version := r.assign(who, one(1))
	r.head(who, atVersion(version))
	spoil := func(s *v1alpha1.AssignmentSpec) {
		one(1)(s)
		withOwn(t, s, strings.Repeat("0a", 16))
		s.Own.Root = rootNo(1).String()
	}
	r.assign(who, spoil)
	r.assign(fresh, spoil)
	r.eventually("both were seen", func() string {
		if n := testutil.ToFloat64(r.metrics.malformed); n != 2 {
			return fmt.Sprint(n, " were")
		}
		return ""
	})
	if err := r.compare(t.Context(), r.assignments); err != nil || testutil.ToFloat64(r.metrics.lost) != 0 {
		t.Errorf("%v: it counts as lost", err)
	}
	b, _, err := r.Head(who)
	r.must(err)
	if h := r.verify(who, b); h.Version != version {
		t.Errorf("version %d", h.Version)
	}
	r.head(fresh, atVersion(r.assign(fresh, func(s *v1alpha1.AssignmentSpec) { s.Own = nil })))
}

// Nothing new is signed while the view may be old, and everybody is told when it is not any more.
func TestOldViewSignsNothing(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	first := r.assign(who, one(1))
	r.head(who, atVersion(first))
	r.disturb(errors.New("etcd is away"), 0)
	r.fresh.extend(time.Time{}, time.Now()) // 30 s later
	_, changed, err := r.Head(who)
	r.must(err)
	second := r.assign(who, one(2))
	r.told(changed)
	b, changed, err := r.Head(who)
	r.must(err)
	if h := r.verify(who, b); h.Version != first {
		t.Errorf("version %d was signed, from a view that may be old", h.Version)
	}
	if testutil.ToFloat64(r.metrics.fresh) != 0 {
		t.Error("the metric says that it is fresh")
	}
	r.disturb(nil, 0)
	r.told(changed)
	r.head(who, atVersion(second))
	if testutil.ToFloat64(r.metrics.fresh) != 1 {
		t.Error("the metric says that it is not fresh")
	}
}

func TestWithoutAKey(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	first := r.assign(who, one(1))
	r.head(who, atVersion(first))
	r.edit(trust.Revoke(r.keys.Heads().Public().ID()), trust.SetKey(trust.RoleHeads, trust.NewSigningKey().Public(), time.Now().Add(time.Hour)))
	second := r.assign(who, one(2))
	r.eventually("the Assignment is known", func() string {
		if v, _ := r.view.newestOf(who.Name); v != second {
			return fmt.Sprint(v)
		}
		return ""
	})
	b, _, err := r.Head(who)
	r.must(err)
	if _, h, err := catalog.DecodeHead(b); err != nil || h.Version != first {
		t.Errorf("%v: version %d is signed with a key that was revoked", err, h.Version)
	}
	if testutil.ToFloat64(r.metrics.keyless) != 1 {
		t.Error("the metric does not say so")
	}
}

func TestShown(t *testing.T) {
	r := newRig(t)
	r.lag = 50 * time.Millisecond
	r.run()
	who := r.join()
	version := r.assign(who, one(1))
	r.head(who, atVersion(version))
	for name, mark := range map[string]catalog.Mark{"nothing": {}, "older": {Epoch: 1, Version: version - 1}, "the same": {Epoch: 1, Version: version}, "of an epoch before": {Version: 1 << 40}} {
		if err := r.Shown(t.Context(), who, mark); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	nothing := r.join()
	if err := r.Shown(t.Context(), nothing, catalog.Mark{Epoch: 1, Version: 1}); err != nil {
		t.Errorf("without an Assignment: %v", err)
	}
	// Another server has signed it already, and what the watch here has lost is found by comparing.
	r.losing.mu.Lock()
	r.losing.lost[who.Name] = true
	r.losing.mu.Unlock()
	next := r.assign(who, one(2))
	answer := make(chan error, 1)
	go func() { answer <- r.Shown(t.Context(), who, catalog.Mark{Epoch: 1, Version: next}) }()
	r.must(r.compare(t.Context(), r.assignments))
	if err := <-answer; err != nil {
		t.Errorf("a server that is behind for a moment: %v", err)
	}
	if n := len(r.suspicions()); n != 0 {
		t.Errorf("%d suspicions", n)
	}
	// The store cannot be asked.
	r.disturb(errors.New("etcd is away"), 0)
	err := r.Shown(t.Context(), who, catalog.Mark{Epoch: 1, Version: 1 << 40})
	if e := reason.Of(err); err == nil || e.Code != reason.StoreUnreachable || e.After == 0 {
		t.Errorf("without a store: %v", err)
	}
}

// shown asks as a host does: again while the server says that it is behind.
func (r *rig) shown(who server.Identity, mark catalog.Mark) (err error) {
	for late := time.Now().Add(within); ; {
		if err = r.Shown(r.Context(), who, mark); codeOf(err) != reason.ServerBehind || time.Now().After(late) {
			return err
		}
	}
}

// A server that starts knows nothing for a moment. A host that comes back then waits, and is not refused.
func TestShownAtTheStart(t *testing.T) {
	r := newRig(t)
	who := r.join()
	version := r.assign(who, one(1))
	answer := make(chan error, 1)
	go func() { answer <- r.shown(who, catalog.Mark{Epoch: 1, Version: version}) }()
	r.run()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	r.head(who, atVersion(version))
}

// Case 24: the store went back in time. Nothing is signed for a host that has seen more, until somebody bumps the epoch.
func TestRollback(t *testing.T) {
	r := newRig(t).run()
	who, other := r.join(), r.join()
	version := r.assign(who, one(1))
	r.head(who, atVersion(version))
	mark := catalog.Mark{Epoch: 1, Version: 1 << 40}
	for range 3 {
		err := r.Shown(t.Context(), who, mark)
		if e := reason.Of(err); err == nil || e.Code != reason.RollbackSuspected || e.After == 0 || e.Entry().HTTP != 409 {
			t.Fatalf("error %v", err)
		}
	}
	if s := r.suspicions(); len(s) != 1 || s[0].Node != who || s[0].Shown != mark || s[0].Version != version || s[0].Revision < version {
		t.Errorf("suspicions %+v", s)
	}
	next := r.assign(who, one(2))
	r.eventually("the Assignment is known", func() string {
		if v, _ := r.view.newestOf(who.Name); v != next {
			return fmt.Sprint(v)
		}
		return ""
	})
	b, _, err := r.Head(who)
	r.must(err)
	if h := r.verify(who, b); h.Version != version {
		t.Errorf("version %d was signed", h.Version)
	}
	r.head(other, atVersion(r.assign(other, one(1)))) // of others nothing is known to be wrong
	r.sign(trust.BumpEpoch())
	if err := r.Shown(t.Context(), who, mark); err != nil {
		t.Errorf("right after the bump: %v", err)
	}
	if h := r.head(who, atVersion(next)); h.Epoch != 2 {
		t.Errorf("head %+v", h)
	}
	if err := r.Shown(t.Context(), who, mark); err != nil {
		t.Errorf("after the bump: %v", err)
	}
}

// What one host has shown says nothing of the one that a person has put in its place.
func TestSuspicionEndsWithTheHost(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	who.Key = "old"
	r.head(who, atVersion(r.assign(who, one(1))))
	if err := r.Shown(t.Context(), who, catalog.Mark{Epoch: 1 << 60, Version: 1 << 60}); codeOf(err) != reason.RollbackSuspected {
		t.Fatalf("error %v", err)
	}
	next := r.assign(who, one(2))
	fresh := who
	fresh.Key = "fresh"
	if err := r.Shown(t.Context(), fresh, catalog.Mark{}); err != nil {
		t.Errorf("the host in its place: %v", err)
	}
	r.head(fresh, atVersion(next))
	if err := r.Shown(t.Context(), who, catalog.Mark{}); codeOf(err) != reason.RollbackSuspected {
		t.Errorf("the host before: %v", err)
	}
}

// Who asks for a head while another epoch begins is either given one of that, or told of it.
func TestEpochBeginsWhileAHeadIsAskedFor(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	version := r.assign(who, one(1))
	r.head(who, atVersion(version))
	type answer struct {
		head    []byte
		changed <-chan struct{}
	}
	answers := make(chan answer, 1)
	r.view.mu.Lock()
	go func() {
		head, changed, _ := r.Head(who)
		answers <- answer{head, changed}
	}()
	stacks := make([]byte, 1<<20)
	r.eventually("the lock is waited for", func() string {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "(*Mutex).Lock") && strings.Contains(stack, "(*Heads).Head") {
				return ""
			}
		}
		return "it is not"
	})
	before := r.trust.Load()
	r.trust.Store(&trusted{before.chain, before.epoch + 1, before.number + 1})
	for _, n := range r.view.nodes {
		n.wake() // as wakeStarved does
	}
	r.view.mu.Unlock()
	a := <-answers
	select {
	case <-a.changed:
		return
	default:
	}
	if h := r.verify(who, a.head); h.Epoch != before.epoch+1 {
		t.Errorf("a head of epoch %d, and nothing tells of another one", h.Epoch)
	}
}

// The store has gone back, and on from there: it has as many revisions as the host has seen, and an older state of the node.
func TestRollbackThatWentOn(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	version := r.assign(who, one(1))
	r.head(who, atVersion(version))
	after := r.assign(r.join(), one(1)) // the store goes on
	if after <= version {
		t.Fatalf("version %d after %d", after, version)
	}
	err := r.Shown(t.Context(), who, catalog.Mark{Epoch: 1, Version: after})
	if codeOf(err) != reason.RollbackSuspected || len(r.suspicions()) != 1 {
		t.Errorf("error %v, suspicions %v", err, r.suspicions())
	}
}

// Case 24, with a store that really is an old copy: of the time before a state that a host has.
func TestOldCopyOfTheStore(t *testing.T) {
	dir, old := t.TempDir(), t.TempDir()
	// life is one life of a server.
	life := func(dir string, with *rig, do func(r *rig)) *rig {
		on, err := openStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer on.close()
		r := rigOn(t, on)
		if with != nil {
			r.share(with)
		}
		defer r.start()()
		do(r)
		return r
	}
	var who server.Identity
	var mark catalog.Mark
	first := life(dir, nil, func(r *rig) {
		who = r.join()
		r.head(who, atVersion(r.assign(who, one(1))))
	})
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	life(dir, first, func(r *rig) {
		h := r.head(who, atVersion(r.assign(who, one(2))))
		_, mark = mark.Judge(&h, time.Now())
	})
	life(dir, first, func(r *rig) {
		if err := r.shown(who, mark); err != nil {
			t.Errorf("after a start on what was there: %v", err)
		}
	})
	life(old, first, func(r *rig) {
		if err := r.shown(who, mark); codeOf(err) != reason.RollbackSuspected {
			t.Errorf("on an old copy: %v", err)
		}
	})
	life(old, first, func(r *rig) {
		for range 5 {
			r.join() // the store goes on
		}
		if err := r.shown(who, mark); codeOf(err) != reason.RollbackSuspected {
			t.Errorf("on an old copy that has gone on: %v", err)
		}
		if b, _, err := r.Head(who); err != nil || len(b) > 0 {
			t.Errorf("%v: signed %d bytes", err, len(b))
		}
		r.bump()
		h := r.head(who, func(h *catalog.Head) bool { return h.Epoch == 2 })
		if standing, _ := mark.Judge(&h, time.Now()); standing != catalog.HeadNews {
			t.Errorf("to the host it is %s", standing)
		}
	})
}

// The store goes back while the server runs.
func TestStoreGoesBack(t *testing.T) {
	r := newRig(t).run()
	who := r.join()
	r.head(who, atVersion(r.assign(who, one(1))))
	r.disturb(nil, 1)
	if err := r.prove(t.Context()); codeOf(err) != reason.RollbackSuspected {
		t.Errorf("error %v", err)
	}
	r.ask()
	r.eventually("nothing is signed any more", func() string {
		if r.fresh.is(time.Now()) {
			return "the view is fresh"
		}
		return ""
	})
}

func TestOptions(t *testing.T) {
	r := newRig(t)
	for name, spoil := range map[string]func(*Options){
		"objects": func(o *Options) { o.Objects = nil }, "layers": func(o *Options) { o.Layers = nil }, "keys": func(o *Options) { o.Keys = nil },
		"chain": func(o *Options) { o.Chain = nil }, "revision": func(o *Options) { o.Revision = nil }, "compare": func(o *Options) { o.Compare = time.Millisecond },
	} {
		o := r.options
		spoil(&o)
		if _, err := New(o); codeOf(err) != reason.InternalFault {
			t.Errorf("%s: %v", name, err)
		}
	}
}
