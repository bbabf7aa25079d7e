package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// counting makes a client that counts its connections.
func counting(h *host) *atomic.Int32 {
	var dialed atomic.Int32
	h.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return &dialed
}

// TestHastyHost: who holds a valid certificate and calls in a loop gets his share, and the others do not notice.
func TestHastyHost(t *testing.T) {
	head := make([]byte, 300)
	for name, c := range map[string]struct {
		path    string
		message any
		fine    func(status int, p *wire.Problem) bool
	}{
		"reports":                   {wire.PathStatus, wire.Report{}, func(_ int, p *wire.Problem) bool { return p == nil }},
		"renewals":                  {wire.PathRenew, wire.RenewRequest{Protocol: wire.Protocol}, func(_ int, p *wire.Problem) bool { return p == nil }},
		"answers to nothing":        {wire.PathAnswer + "?" + wire.ParamID + "=7", wire.Problem{}, func(s int, _ *wire.Problem) bool { return s != http.StatusServiceUnavailable }},
		"content that is not there": {wire.PathNodes, wire.NodesRequest{Head: head, Hashes: make([]catalog.Digest, 1)}, func(s int, _ *wire.Problem) bool { return s != http.StatusServiceUnavailable }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Limits.NodeCalls, o.Limits.NodeFetches = 1, 1 })
			r.add("hasty")
			r.add("calm")
			h := r.as("hasty")
			dialed := counting(h)
			served, refused := 0, 0
			for calls := 0; calls < 10*hastyMax && dialed.Load() < 2; calls++ {
				resp, err := h.post(t.Context(), c.path, encode(t, c.message))
				if err != nil {
					refused++ // its connection was closed
					continue
				}
				var p *wire.Problem
				if resp.StatusCode != http.StatusOK {
					p = problemOf(t, resp)
				}
				_ = resp.Body.Close()
				switch {
				case c.fine(resp.StatusCode, p):
					served++
				case p == nil || p.Code != reason.TransferBusy.String() || p.RetryAfter < 1000 || resp.Header.Get("Retry-After") == "":
					t.Fatalf("%d %+v", resp.StatusCode, p)
				default:
					refused++
				}
			}
			if served < burstOf || refused < hastyMax {
				t.Errorf("%d calls are served, %d refused", served, refused)
			}
			if dialed.Load() < 2 {
				t.Error("its connection stays open, however often it is told to wait")
			}
			if status, p := r.as("calm").call(wire.PathStatus, wire.Report{}, &wire.StatusReply{}); p != nil {
				t.Errorf("another host: %d %+v", status, p)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, refusal := range r.refusals {
				if refusal.Code == reason.TransferBusy {
					t.Errorf("the audit log has %+v", refusal)
				}
			}
			heard := 0
			for _, s := range r.heard {
				if strings.HasPrefix(s, "heard hasty") {
					heard++
				}
			}
			if heard > served {
				t.Errorf("%d reports are heard, %d calls were served", heard, served)
			}
		})
	}
}

// TestHastyWatches: watches that are opened and closed over and over are calls too.
func TestHastyWatches(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.NodeCalls = 1 })
	r.add("hasty")
	h := r.as("hasty")
	opened := 0
	for range hastyMax {
		resp, err := h.post(t.Context(), wire.PathWatch, encode(t, wire.WatchRequest{Protocol: wire.Protocol}))
		if err != nil {
			continue
		}
		if resp.StatusCode == http.StatusOK {
			opened++
		}
		_ = resp.Body.Close()
	}
	if opened < burstOf || opened == hastyMax {
		t.Errorf("%d of %d watches are opened", opened, hastyMax)
	}
}

// TestConnectionsOfOneNode: a node that connects over and over uses up what its address has, though it says who it is. Others have theirs.
func TestConnectionsOfOneNode(t *testing.T) {
	limits := Limits{SourceAccepts: 1}.withDefaults()
	l := newListener(nil, limits, newAllowances(limits), newMetrics())
	now := time.Now()
	connect := func(from, node string) bool {
		c, _ := l.admit(fakeConn{from: from}, now)
		if c == nil {
			return false
		}
		seen := &shown{}
		c.shown.Store(seen)
		if !c.known(seen, Identity{Name: node}) {
			t.Fatalf("%s has too many connections", node)
		}
		l.leave(c)
		return true
	}
	n := 0
	for n < 1_000 && connect("192.0.2.1:1", "hasty") {
		n++
	}
	most := int(connects().Burst + limits.source().Burst)
	if n < most || n > most+5 { // some tenths of a second may pass
		t.Errorf("%d connections, want %d", n, most)
	}
	for i := range 200 {
		if !connect("192.0.2.2:1", fmt.Sprint("calm-", i)) {
			t.Fatalf("connection %d of another address is refused", i)
		}
	}
}

// TestStrangersCallSeldom: over one connection a stranger makes as many calls as it takes to join, and what they have cost is given
// back once.
func TestStrangersCallSeldom(t *testing.T) {
	r := newRig(t, nil)
	h := r.dial(nil)
	dialed := counting(h)
	for i := range strangeMax {
		if status, p := h.call(wire.PathJoin, wire.JoinRequest{Protocol: wire.Protocol, Token: "good", Name: "web-1"}, &wire.Credentials{}); p != nil {
			t.Fatalf("call %d: %d %+v", i, status, p)
		}
	}
	if status, p := h.call(wire.PathJoin, wire.JoinRequest{Protocol: wire.Protocol, Token: "good", Name: "web-1"}, nil); status != http.StatusServiceUnavailable || p.Code != "TK1043" {
		t.Errorf("one call more: %d %+v", status, p)
	}
	if status, p := h.call(wire.PathJoin, wire.JoinRequest{Protocol: wire.Protocol, Token: "good", Name: "web-1"}, &wire.Credentials{}); p != nil || dialed.Load() != 2 {
		t.Errorf("over another connection: %d %+v, %d connections", status, p, dialed.Load())
	}
	limits := Limits{}.withDefaults()
	l := newListener(nil, limits, newAllowances(limits), newMetrics())
	used := func() float64 { return l.sources.Used(l.first().from) }
	now := time.Now()
	first, _ := l.admit(fakeConn{from: "192.0.2.1:1"}, now)
	if second, _ := l.admit(fakeConn{from: "192.0.2.1:1"}, now); first == nil || second == nil {
		t.Fatal("nobody comes in")
	}
	first.joined()
	first.joined()
	if n := used(); n < 0.9 {
		t.Errorf("%v of two connections are used, after one was given back", n)
	}
}

// first is one of the connections.
func (l *listener) first() *conn { return l.connections()[0] }

// TestAllowancesAreForgotten: what is kept of nodes that call no more.
func TestAllowancesAreForgotten(t *testing.T) {
	a := newAllowances(Limits{}.withDefaults())
	now := time.Now()
	for i := range 10_000 {
		if ok, _ := a.take(fmt.Sprint("node-", i), fetching, now); !ok {
			t.Fatal("the first call is refused")
		}
	}
	a.take("last", speaking, now.Add(2*bucketsEvery))
	if n := len(a.nodes); n != 1 {
		t.Errorf("%d nodes are remembered", n)
	}
	for range 3 * burstOf * 20 {
		a.take("busy", speaking, now.Add(2*bucketsEvery))
	}
	if ok, wait := a.take("busy", speaking, now.Add(2*bucketsEvery)); ok || wait <= 0 || wait > time.Second {
		t.Errorf("%t, %s", ok, wait)
	}
	if ok, _ := a.take("busy", fetching, now.Add(2*bucketsEvery)); !ok {
		t.Error("one kind of calls takes the other's place")
	}
	if ok, _ := a.take("busy", speaking, now.Add(2*bucketsEvery+time.Second)); !ok {
		t.Error("a second later it has none")
	}
}
