package catalog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const testCluster = trust.ClusterID("aaaaaaaaaaaaaaaaaaaaaaaa")

var testNode = Node{Cluster: testCluster, Name: "web-1", UID: "11111111-1111-1111-1111-111111111111"}

func aHead() Head {
	return Head{
		Cluster: testNode.Cluster, Node: testNode.Name, UID: testNode.UID, Epoch: 1, Version: 7,
		Roots: []FormatRoot{{Format: FormatV1, Root: KeyOf("root")}}, Entries: 3, Bytes: 300, Issued: 1000, Expires: 2000,
	}
}

func signed(t rapid.TB, h Head, key *trust.SigningKey) (SignedHead, []byte) {
	t.Helper()
	s, err := h.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

func TestHeadIsBelieved(t *testing.T) {
	key := trust.NewSigningKey()
	h := aHead()
	h.Try = &Try{Seconds: 20, Fallback: KeyOf("old")}
	h.Absorbed = []AbsorbedNumber{{Layer: "NodeConfig/prod/web", Number: 3}}
	h.Consent, h.Window = 30, 60
	_, b := signed(t, h, key)
	if _, again := signed(t, h, key); !bytes.Equal(b, again) {
		t.Error("equal heads have other bytes")
	}
	if len(b) > 400 {
		t.Errorf("it has %d bytes", len(b))
	}
	s, read, err := DecodeHead(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Verify(Keys{trust.NewSigningKey().Public(), key.Public()}, testNode)
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != h.Version || *got.Try != *h.Try || !slices.Equal(got.Absorbed, h.Absorbed) || got.Key != key.Public().ID() || read.Version != got.Version {
		t.Errorf("believed %+v, signed %+v", got, h)
	}
}

func TestHeadIsRefused(t *testing.T) {
	key := trust.NewSigningKey()
	for name, test := range map[string]struct {
		change func(*Head)
		keys   Keys
	}{
		"another cluster":       {func(h *Head) { h.Cluster = "bbbbbbbbbbbbbbbbbbbbbbbb" }, Keys{key.Public()}},
		"another host":          {func(h *Head) { h.Node = "web-2" }, Keys{key.Public()}},
		"a host of before":      {func(h *Head) { h.UID = "2" }, Keys{key.Public()}},
		"a key that is unknown": {func(*Head) {}, Keys{trust.NewSigningKey().Public()}},
		"no key":                {func(*Head) {}, nil},
	} {
		h := aHead()
		test.change(&h)
		s, _ := signed(t, h, key)
		if _, err := s.Verify(test.keys, testNode); !reason.Is(err, reason.HeadRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*Head){
		"no node":             func(h *Head) { h.Node = "" },
		"no version":          func(h *Head) { h.Version = 0 },
		"no root":             func(h *Head) { h.Roots = nil },
		"an end before begin": func(h *Head) { h.Expires = h.Issued },
		"too much consent":    func(h *Head) { h.Consent = 101 },
	} {
		h := aHead()
		change(&h)
		if _, err := h.Sign(key); err == nil {
			t.Errorf("a head with %s was signed", name)
		}
	}
}

// TestHeadTampered: no byte of a head can be changed.
func TestHeadTampered(t *testing.T) {
	key := trust.NewSigningKey()
	_, b := signed(t, aHead(), key)
	for i := range b {
		changed := slices.Clone(b)
		changed[i] ^= 1
		s, _, err := DecodeHead(changed)
		if err != nil {
			continue
		}
		if _, err := s.Verify(Keys{key.Public()}, testNode); err == nil {
			t.Errorf("with another byte %d of %d it is believed", i, len(b))
		}
	}
	// What is signed for another purpose is no head.
	s, _ := signed(t, aHead(), key)
	s.Signature = key.Sign(s.Body)
	if _, err := s.Verify(Keys{key.Public()}, testNode); !reason.Is(err, reason.HeadRefused) {
		t.Errorf("signed without its purpose: %v", err)
	}
}

// TestHeadOfALaterVersion: fields that are not known yet are kept in what is passed on, and change nothing.
func TestHeadOfALaterVersion(t *testing.T) {
	key := trust.NewSigningKey()
	h := aHead()
	h.Protocol, h.Key = HeadProtocol+1, key.Public().ID()
	type later struct {
		Head
		New string `cbor:"99,keyasint"`
	}
	body, err := encoding.Marshal(later{h, "of the future"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := SignedHead{Body: body, Signature: key.Sign(append([]byte(headPurpose), body...))}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := DecodeHead(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Verify(Keys{key.Public()}, testNode); err != nil || got.Version != h.Version {
		t.Errorf("%v: believed %+v", err, got)
	}
	if again, err := s.Encode(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("%v: it is passed on as other bytes", err)
	}
}

// TestMark: whatever heads come, in whatever order and however often, the mark never goes back, and of two heads with one version
// the first is kept.
func TestMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Mark
		roots := map[[2]uint64]Digest{} // of the versions that were accepted
		for range rapid.IntRange(1, 40).Draw(t, "heads") {
			h := aHead()
			h.Epoch, h.Version = uint64(rapid.IntRange(1, 2).Draw(t, "epoch")), uint64(rapid.IntRange(1, 4).Draw(t, "version"))
			h.Roots[0].Root = KeyOf(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "root"))
			h.Issued = int64(rapid.IntRange(1, 100).Draw(t, "issued"))
			h.Expires = h.Issued + 50
			now := time.Unix(int64(rapid.IntRange(1, 120).Draw(t, "now")), 0)
			standing, next := m.Judge(&h, now)
			if next.Epoch < m.Epoch || next.Epoch == m.Epoch && next.Version < m.Version {
				t.Fatalf("%+v followed %+v", next, m)
			}
			if (standing == HeadNews) != (next.Version != m.Version || next.Epoch != m.Epoch) {
				t.Fatalf("%s: %+v followed %+v", standing, next, m)
			}
			at := [2]uint64{next.Epoch, next.Version}
			if standing == HeadNews {
				if now.Unix() >= h.Expires {
					t.Fatal("an expired head was begun with")
				}
				roots[at] = next.Root
			}
			if m.Version > 0 && roots[at] != next.Root {
				t.Fatalf("version %v has the root %s, and had %s", at, next.Root, roots[at])
			}
			if standing == HeadEquivocation && next != m {
				t.Fatal("an equivocation has changed the mark")
			}
			if next.Version > 0 && next.Expires < m.Expires && standing == HeadRepeated {
				t.Fatal("a repetition has made the end earlier")
			}
			m = next
		}
	})
}

func TestMarkStandings(t *testing.T) {
	m := Mark{Epoch: 2, Version: 7, Root: KeyOf("root"), Issued: 1000, Expires: 2000}
	now := time.Unix(1500, 0)
	for name, test := range map[string]struct {
		change func(*Head)
		want   Standing
	}{
		"the same":                {func(*Head) {}, HeadRepeated},
		"issued later":            {func(h *Head) { h.Issued, h.Expires = 1100, 2100 }, HeadRepeated},
		"higher":                  {func(h *Head) { h.Version = 8 }, HeadNews},
		"a higher epoch":          {func(h *Head) { h.Epoch, h.Version = 3, 1 }, HeadNews},
		"lower":                   {func(h *Head) { h.Version = 6 }, HeadOld},
		"a lower epoch":           {func(h *Head) { h.Epoch, h.Version = 1, 9 }, HeadOld},
		"another root":            {func(h *Head) { h.Roots[0].Root = KeyOf("other") }, HeadEquivocation},
		"higher, but too late":    {func(h *Head) { h.Version, h.Expires = 8, 1400 }, HeadExpired},
		"for later protocols":     {func(h *Head) { h.Version, h.MinProtocol = 8, HeadProtocol+1 }, HeadUnknown},
		"in another format alone": {func(h *Head) { h.Version, h.Roots[0].Format = 8, 9 }, HeadUnknown},
	} {
		h := aHead()
		h.Epoch = 2
		test.change(&h)
		if got, _ := m.Judge(&h, now); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	h := aHead()
	h.Epoch, h.Issued, h.Expires = 2, 1100, 2100
	if _, next := m.Judge(&h, now); next.Expires != 2100 || next.Stale(time.Unix(2050, 0)) || !m.Stale(time.Unix(2050, 0)) {
		t.Errorf("extended to %+v", next)
	}
	if (Mark{}).Stale(now) {
		t.Error("who has nothing is stale")
	}
}

func TestStatement(t *testing.T) {
	key := trust.NewSigningKey()
	st := Statement{Cluster: testCluster, Layer: "NodeConfig/prod/web", Epoch: 1, Number: 3, Root: KeyOf("root"), Issued: 1000, Expires: 2000}
	s, err := st.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, _, err := DecodeStatement(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read.Verify(Keys{key.Public()}, testCluster); err != nil || got.Root != st.Root || got.Number != 3 {
		t.Errorf("%v: believed %+v", err, got)
	}
	if _, err := read.Verify(Keys{trust.NewSigningKey().Public()}, testCluster); !reason.Is(err, reason.HeadRefused) {
		t.Errorf("of an unknown key: %v", err)
	}
	if _, err := read.Verify(Keys{key.Public()}, "bbbbbbbbbbbbbbbbbbbbbbbb"); !reason.Is(err, reason.HeadRefused) {
		t.Errorf("of another cluster: %v", err)
	}
	// A signature under a head is none under a statement.
	h, _ := signed(t, aHead(), key)
	if _, err := (SignedStatement{Body: h.Body, Signature: h.Signature}).Verify(Keys{key.Public()}, testCluster); err == nil {
		t.Error("a head is believed as a statement")
	}
	st.Number = 0
	if _, err := st.Sign(key); err == nil {
		t.Error("a statement without a number was signed")
	}
}

// TestListRoom: layers of configs and of workloads have each their own room, and what is at every bound is read again.
func TestListRoom(t *testing.T) {
	all := []Layer{{Priority: OwnPriority, ID: "own"}}
	for i := range LayersMax {
		all = append(all, Layer{Priority: 1, ID: fmt.Sprintf("%0*d", declare.ClaimBytesMax, i)})
	}
	for i := range TemplatesMax {
		all = append(all, Layer{ID: TemplateLayer("shop", fmt.Sprintf("%0*d", templateIDMax-len("Revision/shop/"), i))})
	}
	l, err := NewList(all...)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := DecodeList(b); err != nil || !slices.Equal(back, l) {
		t.Errorf("it does not come back: %v", err)
	}
	configs := 0
	for i := range l {
		if l[i].Config() {
			configs++
		}
	}
	if configs != LayersMax {
		t.Errorf("%d layers are taken for those of configs", configs)
	}
	for name, more := range map[string]Layer{"config": {Priority: 1, ID: "a"}, "template": {ID: TemplateLayer("shop", "a")}} {
		if _, err := NewList(append(all, more)...); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("one %s more: %v", name, err)
		}
	}
	if _, err := NewList(Layer{ID: TemplateLayer("shop", strings.Repeat("x", templateIDMax))}); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("a long ID: %v", err)
	}
}

func TestList(t *testing.T) {
	l, err := NewList(Layer{Priority: OwnPriority, ID: "node/web-1"}, Layer{Priority: 100, ID: "b"}, Layer{Priority: 100, ID: "a"}, Layer{Priority: 1100, ID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, layer := range l {
		ids = append(ids, layer.ID)
	}
	if !slices.Equal(ids, []string{"c", "a", "b", "node/web-1"}) {
		t.Errorf("in the order %v", ids)
	}
	b, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := DecodeList(b); err != nil || !slices.Equal(back, l) {
		t.Errorf("%v: read %v", err, back)
	}
	for name, layers := range map[string][]Layer{
		"twice":          {{Priority: 1, ID: "a"}, {Priority: 2, ID: "a"}},
		"two of its own": {{Priority: OwnPriority, ID: "a"}, {Priority: OwnPriority, ID: "b"}},
		"no ID":          {{Priority: 1}},
		"priority":       {{Priority: 2000, ID: "a"}},
	} {
		if _, err := NewList(layers...); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unordered, err := List{l[1], l[0]}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeList(unordered); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("not in order: %v", err)
	}
}

// decodes reports what is read is written as the same bytes.
func FuzzDecodeHead(f *testing.F) {
	_, b := signed(f, aHead(), trust.NewSigningKey())
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := DecodeHead(data)
		if err != nil {
			return
		}
		b, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := DecodeHead(b); err != nil {
			t.Errorf("read, written and then refused: %v", err)
		}
	})
}

func FuzzDecodeStatement(f *testing.F) {
	s, err := Statement{Layer: "a", Number: 1, Expires: 1}.Sign(trust.NewSigningKey())
	if err != nil {
		f.Fatal(err)
	}
	b, err := s.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, _, err := DecodeStatement(data); err == nil {
			if _, err := s.Verify(nil, testCluster); err == nil {
				t.Error("believed without a key")
			}
		}
	})
}

func FuzzDecodeList(f *testing.F) {
	l, err := NewList(Layer{Priority: 1, ID: "a"})
	if err != nil {
		f.Fatal(err)
	}
	b, err := l.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeList(data)
		if err != nil {
			return
		}
		if b, err := l.Encode(); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%v: %x is read, and written as %x", err, data, b)
		}
	})
}
