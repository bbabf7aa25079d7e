package peer

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// signer is who signs heads in these tests.
type signer struct {
	chain   *trust.Chain
	cluster trust.ClusterID
	key     *trust.SigningKey
}

func newSigner(t testing.TB, now time.Time) signer {
	t.Helper()
	cluster, root, heads := trust.NewClusterID(), trust.NewSigningKey(), trust.NewSigningKey()
	ca, err := trust.NewCA(cluster, now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	chain, err := trust.NewChain(trust.Genesis{Cluster: cluster, CA: ca, Root: root, Heads: heads.Public()}, now, now)
	if err != nil {
		t.Fatal(err)
	}
	return signer{chain, cluster, heads}
}

// deposit is what a server leaves for a node.
func (s signer) deposit(t testing.TB, node string, version uint64, issued time.Time) wire.Deposit {
	t.Helper()
	list, err := catalog.NewList(catalog.Layer{Priority: 1000, ID: "NodeConfig/a/b", Root: catalog.Digest{byte(version)}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	h, err := catalog.Head{Cluster: s.cluster, Node: node, UID: "uid-of-" + node, Epoch: 1, Version: version, MinProtocol: 1,
		Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.ListRoot(data)}}, Issued: issued.Unix(), Expires: issued.Add(24 * time.Hour).Unix()}.Sign(s.key)
	if err != nil {
		t.Fatal(err)
	}
	head, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return wire.Deposit{Head: head, List: data}
}

// TestDeposits: only the newest of what is signed for another node is kept, for a bounded number of them, and given to that node alone, until it expires.
func TestDeposits(t *testing.T) {
	now := time.Now()
	s, own := newSigner(t, now), catalog.Node{Name: "web-1", UID: "uid-of-web-1"}
	own.Cluster = s.cluster
	stranger := newSigner(t, now)
	d := NewDeposits()
	torn := s.deposit(t, "web-2", 7, now)
	torn.List = torn.List[1:]
	large := s.deposit(t, "web-2", 7, now)
	large.List = make([]byte, wire.DepositMax)
	for what, bad := range map[string]wire.Deposit{
		"for this host":         s.deposit(t, "web-1", 7, now),
		"of another cluster":    stranger.deposit(t, "web-2", 7, now),
		"with another list":     torn,
		"too large":             large,
		"that has expired":      s.deposit(t, "web-2", 7, now.Add(-25*time.Hour)),
		"that cannot be read":   {Head: []byte("head")},
		"of a list and no head": {List: []byte{0x80}},
	} {
		if err := d.Put(bad, own, s.chain, now); err == nil || d.Len() != 0 {
			t.Errorf("one %s is kept", what)
		}
	}
	for _, version := range []uint64{7, 9, 8} {
		if err := d.Put(s.deposit(t, "web-2", version, now), own, s.chain, now); err != nil {
			t.Fatal(err)
		}
	}
	nine := s.deposit(t, "web-2", 9, now)
	mark := func(version uint64, root byte) catalog.Mark {
		m := catalog.Mark{Epoch: 1, Version: version, Issued: now.Unix()}
		list, _ := catalog.NewList(catalog.Layer{Priority: 1000, ID: "NodeConfig/a/b", Root: catalog.Digest{root}})
		data, _ := list.Encode()
		m.Root = catalog.ListRoot(data)
		return m
	}
	for what, c := range map[string]struct {
		uid        string
		have       catalog.Mark
		list       bool
		at         time.Time
		head, also bool
	}{
		"for who has nothing":               {"uid-of-web-2", catalog.Mark{}, false, now, true, true},
		"for who has an older one":          {"uid-of-web-2", mark(8, 8), true, now, true, true},
		"for who has it":                    {"uid-of-web-2", mark(9, 9), true, now, false, false},
		"for who has it without its list":   {"uid-of-web-2", mark(9, 9), false, now, false, true},
		"for who has another of its number": {"uid-of-web-2", mark(9, 1), false, now, false, false},
		"for who has a newer one":           {"uid-of-web-2", mark(10, 10), false, now, false, false},
		"for somebody else":                 {"uid-of-web-3", catalog.Mark{}, false, now, false, false},
		"when it has expired":               {"uid-of-web-2", catalog.Mark{}, false, now.Add(25 * time.Hour), false, false},
	} {
		head, list := d.of(c.uid, c.have, c.list, c.at)
		if (head != nil) != c.head || (list != nil) != c.also || c.head && !slices.Equal(head, nine.Head) || c.also && !slices.Equal(list, nine.List) {
			t.Errorf("%s: a head %v, a list %v", what, head != nil, list != nil)
		}
	}
	for i := range depositsMax {
		if err := d.Put(s.deposit(t, fmt.Sprint("db-", i), 1, now), own, s.chain, now.Add(time.Duration(i+1)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if head, _ := d.of("uid-of-web-2", catalog.Mark{}, false, now); d.Len() != depositsMax || head != nil {
		t.Errorf("%d are kept, the oldest among them: %v", d.Len(), head != nil)
	}
}

// TestBucket: never more than the burst and what the time allows, and who waits as long as he is told gets what he wants.
func TestBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		second := float64(rapid.IntRange(1, 1000).Draw(t, "rate"))
		var b bucket
		began := time.Unix(1000, 0)
		now, taken := began, 0.0
		for range rapid.IntRange(1, 200).Draw(t, "times") {
			now = now.Add(time.Duration(rapid.IntRange(0, int(time.Second)).Draw(t, "pause")))
			wait := b.take(1, second, now)
			if wait > 0 {
				now = now.Add(wait + time.Microsecond)
				if b.take(1, second, now) > 0 {
					t.Fatal("who has waited gets nothing")
				}
			}
			taken++
			if most := burst*second + now.Sub(began).Seconds()*second + 1; taken > most {
				t.Fatalf("%v were taken, of at most %v", taken, most)
			}
		}
	})
}

// addressed is a connection from somewhere.
type addressed struct {
	net.Conn
	from string
}

func (a addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.from))
}
func (a addressed) Close() error { return nil }

// TestGate: so many connections of one address, so many in all, so many a second; a place is free again once its connection is closed.
func TestGate(t *testing.T) {
	g := newGate(nil, Limits{Connections: 6, SourceConnections: 2, Accepts: 100}, func() {})
	now := time.Unix(1000, 0)
	open := func(from string) *admitted { return g.admit(addressed{from: from + ":1"}, now) }
	a, b := open("192.0.2.1"), open("192.0.2.1")
	if a == nil || b == nil || open("192.0.2.1") != nil {
		t.Error("an address has not two places")
	}
	_ = a.Close()
	_ = a.Close()
	if open("192.0.2.1") == nil || open("192.0.2.1") != nil {
		t.Error("a place that was given back is none, or two")
	}
	for i := range 4 {
		if open(fmt.Sprint("192.0.2.", 10+i)) == nil {
			t.Errorf("there is no place for address %d", i)
		}
	}
	if open("192.0.2.20") != nil {
		t.Error("there are more places than there may be")
	}
	slow := newGate(nil, Limits{Connections: 1000, SourceConnections: 1000, Accepts: 1}, func() {})
	admittedAtOnce := 0
	for range 100 {
		if slow.admit(addressed{from: "192.0.2.1:1"}, now) != nil {
			admittedAtOnce++
		}
	}
	if admittedAtOnce != burst {
		t.Errorf("%d are admitted at once", admittedAtOnce)
	}
}

// TestCallersAreBounded: nobody makes this host remember more of callers than it has room for.
func TestCallersAreBounded(t *testing.T) {
	c := newCallers(10)
	now := time.Unix(1000, 0)
	for i := range 2 * callersMax {
		wait := c.take(fmt.Sprint("uid-", i), now)
		if (wait > 0) != (i >= callersMax) {
			t.Fatalf("caller %d waits %s", i, wait)
		}
	}
	if c.take("uid-new", now.Add(time.Minute)) > 0 || len(c.nodes) > callersMax {
		t.Errorf("%d are remembered after a minute", len(c.nodes))
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{}); !reason.Is(err, reason.InternalFault) {
		t.Errorf("a server of nothing: %v", err)
	}
	if err := (Limits{Bytes: -1}).withDefaults().validate(); err == nil {
		t.Error("a negative limit is none")
	}
}
