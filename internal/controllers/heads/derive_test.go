package heads

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/transfer/wire"
)

// rootNo is a root of its own for each number.
func rootNo(i int) catalog.Digest { return catalog.KeyOf(fmt.Sprint(i)) }

func assignedLayer(priority int32, config string, root int) v1alpha1.AssignedLayer {
	return v1alpha1.AssignedLayer{Priority: priority, Config: "NodeConfig/prod/" + config, Revision: config + "-0123456789", Root: rootNo(root).String()}
}

// withOwn gives a specification an own layer with keys.
func withOwn(t testing.TB, spec *v1alpha1.AssignmentSpec, ids ...string) {
	t.Helper()
	spec.Own = &v1alpha1.OwnLayer{Holds: []v1alpha1.NodeHold{{Resource: "path:/etc/motd", Reason: "because", Owner: "ann", Until: metav1.Unix(2e9, 0)}}}
	for _, id := range ids {
		spec.Own.Keys = append(spec.Own.Keys, v1alpha1.WrappedKey{ID: id, Secret: "prod/tls/key", Sealed: []byte("sealed " + id)})
	}
	items, err := layers.OwnItems(spec.Own)
	if err != nil {
		t.Fatal(err)
	}
	spec.Own.Root = catalog.TrieOf(items).Root().String()
}

func withTry(t testing.TB, spec *v1alpha1.AssignmentSpec, before ...v1alpha1.AssignedLayer) {
	t.Helper()
	list, err := layers.ListOf(before, "")
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	spec.Try = &v1alpha1.AssignedTry{Seconds: 600, Config: before[0].Config, Fallback: catalog.ListRoot(encoded).String(), Layers: before}
}

func TestContentOf(t *testing.T) {
	full := v1alpha1.AssignmentSpec{
		NodeUID: "u", Layers: []v1alpha1.AssignedLayer{assignedLayer(10, "b", 2), assignedLayer(10, "a", 1), assignedLayer(1500, "c", 3)}, Entries: 7, Bytes: 70, AllowDeletions: 30,
	}
	withOwn(t, &full, strings.Repeat("0a", 16))
	withTry(t, &full, assignedLayer(10, "a", 9))
	for name, c := range map[string]struct {
		change func(*v1alpha1.AssignmentSpec)
		list   string // layers of the catalog, in order
		fails  string
	}{
		"full":             {func(*v1alpha1.AssignmentSpec) {}, "c a b own", ""},
		"nothing":          {func(s *v1alpha1.AssignmentSpec) { *s = v1alpha1.AssignmentSpec{} }, "", ""},
		"no own":           {func(s *v1alpha1.AssignmentSpec) { s.Own = nil }, "c a b", ""},
		"too much consent": {func(s *v1alpha1.AssignmentSpec) { s.AllowDeletions = 101 }, "c a b own", ""},
		"another own root": {func(s *v1alpha1.AssignmentSpec) { s.Own.Root = rootNo(1).String() }, "", "own layer"},
		"malformed root":   {func(s *v1alpha1.AssignmentSpec) { s.Layers[0].Root = "sha256:00" }, "", "read root"},
		"one config twice": {func(s *v1alpha1.AssignmentSpec) { s.Layers[0].Config = s.Layers[1].Config }, "", "twice"},
		"another fallback": {func(s *v1alpha1.AssignmentSpec) { s.Try.Fallback = rootNo(1).String() }, "", "fallback"},
		"one key twice":    {func(s *v1alpha1.AssignmentSpec) { s.Own.Keys = append(s.Own.Keys, s.Own.Keys[0]) }, "", "twice"},
		"an empty own layer": {func(s *v1alpha1.AssignmentSpec) {
			s.Own = &v1alpha1.OwnLayer{Root: catalog.TrieOf(nil).Root().String()}
		}, "c a b own", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := full.DeepCopy()
			c.change(spec)
			got, err := ContentOf(spec)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, l := range got.List {
				names = append(names, strings.TrimPrefix(l.ID, "NodeConfig/prod/"))
			}
			if text := strings.Join(names, " "); text != c.list {
				t.Errorf("layers %s, want %s", text, c.list)
			}
			if back, err := catalog.DecodeList(got.Encoded); err != nil || len(back) != len(got.List) || catalog.ListRoot(got.Encoded) != got.Root || got.Consent > 100 {
				t.Errorf("%v: content %+v", err, got)
			}
			entries, bytes := spec.Entries, spec.Bytes
			for _, item := range got.Own {
				entries, bytes = entries+1, bytes+int64(len(item.Body))
			}
			if got.Entries != uint64(entries) || got.Bytes != uint64(bytes) || name == "full" && got.Entries != 9 {
				t.Errorf("it says %d entries and %d bytes, and has %d and %d", got.Entries, got.Bytes, entries, bytes)
			}
		})
	}
}

func TestDerive(t *testing.T) {
	keys := newKeys(t)
	spec := v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{assignedLayer(1, "a", 1)}, Entries: 7, Bytes: 70, AllowDeletions: 30}
	withOwn(t, &spec)
	withTry(t, &spec, assignedLayer(1, "a", 2))
	c, err := ContentOf(&spec)
	if err != nil {
		t.Fatal(err)
	}
	node := catalog.Node{Cluster: keys.Cluster(), Name: "web-1", UID: "u-1"}
	now := time.Unix(1_800_000_000, 0)
	head := Derive(c, node, 3, 42, Issued(node.UID, now))
	s, err := head.Sign(keys.Heads())
	if err != nil {
		t.Fatal(err)
	}
	back, err := s.Verify(catalog.Keys{keys.Heads().Public()}, node)
	if err != nil {
		t.Fatal(err)
	}
	root, _ := back.Root()
	if root != c.Root || back.Version != 42 || back.Epoch != 3 || back.Entries != c.Entries || back.Bytes != c.Bytes || c.Entries != 8 || c.Bytes <= 70 || back.Consent != 30 || back.Try == nil || back.Try.Seconds != 600 {
		t.Errorf("head %+v", back)
	}
	if standing, mark := (catalog.Mark{}).Judge(&back, now); standing != catalog.HeadNews || mark.Stale(now.Add(lifetime-period)) || !mark.Stale(now.Add(lifetime)) {
		t.Errorf("it is %s, with %+v", standing, mark)
	}
}

// TestFetchWindow: a head has the window of its Assignment. Where there is none it has no such field: what was signed before there was one is signed
// again with the same bytes.
func TestFetchWindow(t *testing.T) {
	keys := newKeys(t)
	for seconds, want := range map[int32]any{0: nil, -1: nil, 600: uint64(600)} {
		spec := v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{assignedLayer(1, "a", 1)}, FetchWindowSeconds: seconds}
		c, err := ContentOf(&spec)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Derive(c, catalog.Node{Cluster: keys.Cluster(), Name: "n", UID: "u"}, 1, 2, 3).Sign(keys.Heads())
		if err != nil {
			t.Fatal(err)
		}
		var fields map[uint64]any
		if err := cbor.Unmarshal(s.Body, &fields); err != nil {
			t.Fatal(err)
		}
		if got := fields[14]; got != want {
			t.Errorf("%d seconds: a head has %v, want %v", seconds, got, want)
		}
		spec.FetchWindowSeconds = 0
		without, err := ContentOf(&spec)
		if err != nil {
			t.Fatal(err)
		}
		if without.Root != c.Root {
			t.Errorf("%d seconds: another root", seconds)
		}
	}
}

// Equal inputs make equal bytes, in whatever order the layers stand, and at any time of one period; the next one is later and otherwise the same.
func TestEveryServerMakesTheSame(t *testing.T) {
	keys := newKeys(t)
	sign := func(c *Content, uid string, version uint64, now time.Time) ([]byte, int64) {
		issued := Issued(uid, now)
		s, err := Derive(c, catalog.Node{Cluster: keys.Cluster(), Name: "n", UID: uid}, 1, version, issued).Sign(keys.Heads())
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b, issued
	}
	rapid.Check(t, func(rt *rapid.T) {
		spec := v1alpha1.AssignmentSpec{NodeUID: types.UID("u")}
		for i := range rapid.IntRange(0, 20).Draw(rt, "layers") {
			spec.Layers = append(spec.Layers, assignedLayer(int32(rapid.IntRange(0, 1999).Draw(rt, "priority")), fmt.Sprint("c", i), rapid.IntRange(0, 5).Draw(rt, "root")))
		}
		other := spec.DeepCopy()
		other.Layers = rapid.Permutation(other.Layers).Draw(rt, "order")
		var ids []string
		for i := range rapid.IntRange(0, 3).Draw(rt, "keys") {
			ids = append(ids, fmt.Sprintf("%032x", i))
		}
		withOwn(t, &spec, ids...)
		withOwn(t, other, rapid.Permutation(ids).Draw(rt, "order of keys")...)
		one, err1 := ContentOf(&spec)
		two, err2 := ContentOf(other)
		if err1 != nil || err2 != nil {
			rt.Fatal(err1, err2)
		}
		uid := rapid.StringMatching(`[0-9a-f]{8}`).Draw(rt, "uid")
		version := rapid.Uint64Range(1, 1<<40).Draw(rt, "version")
		now := time.Unix(rapid.Int64Range(0, 1<<33).Draw(rt, "now"), 0)
		a, issued := sign(one, uid, version, now)
		// Any moment of the same period.
		b, _ := sign(two, uid, version, time.Unix(issued+rapid.Int64Range(0, int64(period/time.Second)-1).Draw(rt, "later"), 0))
		if !bytes.Equal(a, b) {
			rt.Fatalf("two servers make different heads:\n%x\n%x", a, b)
		}
		if issued > now.Unix() || now.Unix()-issued >= int64(period/time.Second) {
			rt.Fatalf("at %d it is issued %d", now.Unix(), issued)
		}
		if next := Issued(uid, time.Unix(issued, 0).Add(period)); next != issued+int64(period/time.Second) {
			rt.Fatalf("after %d comes %d", issued, next)
		}
	})
}

// The work of signing is spread over the period.
func TestIssuedIsSpread(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	quarters := make([]int, 4)
	for i := range 4000 {
		since := now.Unix() - Issued(fmt.Sprint("node-", i), now)
		quarters[since*4/int64(period/time.Second)]++
	}
	for i, n := range quarters {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 4000 nodes are in quarter %d", n, i)
		}
	}
}

func TestOwnLayerIsNamed(t *testing.T) {
	spec := v1alpha1.AssignmentSpec{}
	withOwn(t, &spec)
	c, err := ContentOf(&spec)
	if err != nil {
		t.Fatal(err)
	}
	want := catalog.Layer{Priority: catalog.OwnPriority, ID: wire.OwnLayer, Root: c.OwnRoot}
	if len(c.List) != 1 || c.List[0] != want {
		t.Errorf("list %+v", c.List)
	}
}

// TestAbsorbedOrders: a head says which orders are absorbed, of its own epoch alone: numbers begin anew with each.
func TestAbsorbedOrders(t *testing.T) {
	c, err := ContentOf(&v1alpha1.AssignmentSpec{NodeUID: "u", Absorbed: []v1alpha1.AbsorbedOrder{
		{Config: "NodeConfig/prod/a", Epoch: 1, Number: 9}, {Config: "NodeConfig/prod/b", Epoch: 2, Number: 3}, {Config: "NodeConfig/prod/c", Epoch: -1, Number: 3}, {Config: "NodeConfig/prod/d", Epoch: 2},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for epoch, want := range map[uint64][]catalog.AbsorbedNumber{1: {{Layer: "NodeConfig/prod/a", Number: 9}}, 2: {{Layer: "NodeConfig/prod/b", Number: 3}}, 3: nil} {
		if got := Derive(c, catalog.Node{}, epoch, 7, 1).Absorbed; !slices.Equal(got, want) {
			t.Errorf("a head of epoch %d has absorbed %+v, want %+v", epoch, got, want)
		}
	}
}
