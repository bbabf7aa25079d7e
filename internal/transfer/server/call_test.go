package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestCertificates: who may call what.
func TestCertificates(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	elsewhere := newAuthority(t)
	const client = x509.ExtKeyUsageClientAuth
	for name, c := range map[string]struct {
		cert *tls.Certificate
		want map[string]string // code by call; "" is none
	}{
		"none":                 {nil, map[string]string{wire.PathStatus: "TK1003", wire.PathRenew: "TK1003", wire.PathWatch: "TK1003", wire.PathAnswer: "TK1003"}},
		"of a node":            {r.ca.client(t, "web-1", 0, client), map[string]string{wire.PathStatus: "", wire.PathRenew: ""}},
		"expired":              {r.ca.client(t, "web-1", 2*time.Hour, client), map[string]string{wire.PathStatus: "TK1004", wire.PathSync: "TK1004", wire.PathRenew: ""}},
		"not valid yet":        {r.ca.client(t, "web-1", -2*time.Hour, client), map[string]string{wire.PathStatus: "TK1004", wire.PathRenew: "TK1004"}},
		"of no node":           {r.ca.client(t, "ann", 0, client), map[string]string{wire.PathStatus: "TK1003", wire.PathRenew: "TK1003"}},
		"of a server":          {r.ca.client(t, "web-1", 0, x509.ExtKeyUsageServerAuth), map[string]string{wire.PathStatus: "TK1003", wire.PathRenew: "TK1003"}},
		"of another authority": {elsewhere.client(t, "web-1", 0, client), map[string]string{wire.PathStatus: "TK1003", wire.PathRenew: "TK1003"}},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			for path, want := range c.want {
				h := r.dial(c.cert) // a connection over which somebody was refused is closed
				var message any = wire.RenewRequest{Protocol: wire.Protocol}
				if path == wire.PathStatus {
					message = wire.Report{}
				}
				var reply map[int]any
				status, p := h.call(path, message, &reply)
				if want == "" && p != nil || want != "" && (p == nil || p.Code != want || status != http.StatusUnauthorized) {
					t.Errorf("%s: %d %+v, want %q", path, status, p, want)
				}
			}
			// These are for everybody.
			var reply wire.Credentials
			if status, p := r.dial(c.cert).call(wire.PathJoin, wire.JoinRequest{Protocol: wire.Protocol, Name: "web-2", Token: "good"}, &reply); p != nil || reply.Name != "web-2" {
				t.Errorf("join: %d %+v", status, p)
			}
		})
	}
	r.wait(t, "refusals are audited, with who it is when that is known", func() bool {
		known := false
		for _, f := range r.refusals {
			known = known || f.Who.Name == "web-1"
		}
		return len(r.refusals) == 14 && known
	})
}

// TestJoinRefused: it is told in words, and not audited twice.
func TestJoinRefused(t *testing.T) {
	r := newRig(t, nil)
	status, p := r.dial(nil).call(wire.PathJoin, wire.JoinRequest{Protocol: wire.Protocol, Name: "web-2", Token: "bad"}, nil)
	if status != http.StatusUnauthorized || p.Code != "TK1006" || !strings.Contains(p.Message, "127.0.0.1") {
		t.Errorf("%d %+v", status, p)
	}
	r.change(func() {
		if len(r.refusals) > 0 {
			t.Errorf("audited %+v", r.refusals)
		}
	})
}

// TestRenewalRefused: a host that wants a certificate for another key is seen in the audit log.
func TestRenewalRefused(t *testing.T) {
	r := newRig(t, nil)
	id := r.add("swapped")
	status, p := r.as("swapped").call(wire.PathRenew, wire.RenewRequest{Protocol: wire.Protocol}, nil)
	if status < 400 || status > 499 || p.Code != reason.JoinRequestInvalid.String() {
		t.Errorf("%d %+v", status, p)
	}
	r.wait(t, "it is audited", func() bool {
		return len(r.refusals) == 1 && r.refusals[0].Who == id && r.refusals[0].Call == wire.PathRenew
	})
}

// TestRefusedHostsAreNamed: whoever is refused with a certificate of the cluster has the name in it in the audit log, also who is no node
// any more, and whatever is wrong with his call.
func TestRefusedHostsAreNamed(t *testing.T) {
	r := newRig(t, nil)
	id := r.add("web-1")
	deleted := r.add("deleted")
	r.change(func() { r.nodes["deleted"].gone = true })
	for _, c := range []struct {
		host string
		path string
		who  Identity
	}{{"deleted", wire.PathStatus, deleted}, {"deleted", wire.PathRenew, deleted}, {"deleted", "/v1/made-up", deleted}, {"web-1", "/v1/made-up", id}} {
		var before int
		var got Identity
		r.change(func() { before = len(r.refusals) })
		r.as(c.host).call(c.path, wire.RenewRequest{Protocol: wire.Protocol}, nil)
		r.wait(t, "it is audited", func() bool {
			if len(r.refusals) > before {
				got = r.refusals[before].Who
			}
			return len(r.refusals) > before
		})
		if got != c.who || got.UID == "" {
			t.Errorf("%s calls %s: %+v, want %+v", c.host, c.path, got, c.who)
		}
	}
}

// TestRefusalsAreBounded: who is refused again and again fills no audit log, and does so over one connection after the other.
func TestRefusalsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	h := r.dial(nil)
	var dialed atomic.Int32
	transport := h.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	const calls = 300
	began := time.Now()
	for range calls {
		if status, p := h.call(wire.PathStatus, wire.Report{}, nil); status != http.StatusUnauthorized {
			t.Fatalf("%d %+v", status, p)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, rate := float64(len(r.refusals)), auditRate(); n < rate.Burst || n > rate.Burst+rate.Second*time.Since(began).Seconds()+1 {
		t.Errorf("%v lines in the audit log for %d refusals", n, calls)
	}
	if n := dialed.Load(); n < calls/16 {
		t.Errorf("%d connections for %d refusals", n, calls)
	}
}

// TestMalformed: what no agent sends.
func TestMalformed(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	h := r.as("web-1")
	for name, c := range map[string]struct {
		path string
		body []byte
	}{
		"no such call":         {"/v1/shell", nil},
		"no message":           {wire.PathStatus, nil},
		"no CBOR":              {wire.PathStatus, []byte("{}")},
		"another type":         {wire.PathStatus, encode(t, []int{1})},
		"too long":             {wire.PathStatus, make([]byte, wire.RequestMax+1)},
		"much too long":        {wire.PathStatus, make([]byte, 10*wire.RequestMax)},
		"something behind it":  {wire.PathStatus, append(encode(t, wire.Report{}), 0)},
		"a later version":      {wire.PathJoin, encode(t, wire.JoinRequest{Protocol: wire.Protocol + 1})},
		"a later watch":        {wire.PathWatch, encode(t, wire.WatchRequest{Protocol: wire.Protocol + 1})},
		"no version":           {wire.PathRenew, encode(t, wire.RenewRequest{})},
		"trust with POST":      {wire.PathTrust, nil},
		"an answer to nothing": {wire.PathAnswer, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			if status, p := h.send(c.path, c.body, nil); status != http.StatusBadRequest || p.Code != "TK1040" {
				t.Errorf("%d %+v", status, p)
			}
		})
	}
	for _, method := range []string{http.MethodGet, http.MethodConnect, http.MethodDelete} {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+r.addr+wire.PathStatus, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Do(req)
		if err != nil {
			continue // the transport knows better
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
}

// TestTrust: the documents are for everybody.
func TestTrust(t *testing.T) {
	r := newRig(t, nil)
	r.change(func() { r.highest = 3 })
	h := r.dial(nil)
	for query, want := range map[string]string{"": "documents after 0", "?after=2": "documents after 2", "?after=3": ""} {
		resp, err := h.Get("https://" + r.addr + wire.PathTrust + query)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 100)
		n, _ := resp.Body.Read(got)
		if resp.Body.Close(); string(got[:n]) != want || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %q", query, resp.Status, got[:n])
		}
	}
	resp, err := h.Get("https://" + r.addr + wire.PathTrust + "?after=-1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if p := problemOf(t, resp); resp.StatusCode != http.StatusBadRequest || p.Code != "TK1040" {
		t.Errorf("%s %+v", resp.Status, p)
	}
}

// TestOnlyHTTP2: it is spoken over TLS 1.3 alone, and nothing else is.
func TestOnlyHTTP2(t *testing.T) {
	r := newRig(t, nil)
	for name, config := range map[string]*tls.Config{
		"TLS 1.2":  {RootCAs: r.pool(), ServerName: "localhost", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}},
		"HTTP/1.1": {RootCAs: r.pool(), ServerName: "localhost", NextProtos: []string{"http/1.1"}},
		"nothing":  {RootCAs: r.pool(), ServerName: "localhost"},
	} {
		c, err := tls.Dial("tcp", r.addr, config)
		if err != nil {
			continue
		}
		_, _ = c.Write([]byte("GET /v1/trust HTTP/1.1\r\nHost: localhost\r\n\r\n")) // it may be closed already
		if n, err := c.Read(make([]byte, 100)); err == nil {
			t.Errorf("%s is answered with %d bytes", name, n)
		}
		_ = c.Close()
	}
}

// TestAdmission: too many of one address, too many strangers and too many connections are closed before their handshake.
func TestAdmission(t *testing.T) {
	for name, limits := range map[string]Limits{"connections": {Connections: 5}, "strangers": {Strangers: 5}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Limits = limits })
			r.add("web-1")
			var open []net.Conn
			for range 5 {
				c, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, c)
			}
			more, err := net.Dial("tcp", r.addr)
			if err == nil {
				defer more.Close()
				if _, err := more.Read(make([]byte, 1)); err == nil {
					t.Error("something was read")
				}
			}
			for _, c := range open {
				_ = c.Close()
			}
			// There is room again, as soon as the server has noticed.
			late := time.After(time.Minute)
			for {
				resp, err := r.as("web-1").post(t.Context(), wire.PathStatus, encode(t, wire.Report{}))
				if err == nil {
					if resp.Body.Close(); resp.StatusCode != http.StatusOK {
						t.Error(resp.Status)
					}
					return
				}
				select {
				case <-late:
					t.Fatal(err)
				default:
				}
			}
		})
	}
}

// TestSilentStrangers: one address that connects and says nothing leaves room for others, and has room again when it lets go.
func TestSilentStrangers(t *testing.T) {
	limits := Limits{Strangers: 100}.withDefaults()
	l := newListener(nil, limits, newAllowances(limits), newMetrics())
	from := func(address string) *conn {
		c, _ := l.admit(fakeConn{from: address}, time.Now())
		return c
	}
	var all []*conn
	for range 80 {
		if c := from("192.0.2.1:1"); c != nil {
			all = append(all, c)
		}
	}
	if len(all) != 50 {
		t.Errorf("%d of 80 came in", len(all))
	}
	if from("192.0.2.2:1") == nil {
		t.Error("another address is kept out")
	}
	l.leave(all[0])
	seen := &shown{}
	all[1].shown.Store(seen)
	if !all[1].known(seen, Identity{Name: "web-1"}) || from("192.0.2.1:2") == nil || from("192.0.2.1:3") == nil || from("192.0.2.1:4") != nil {
		t.Error("one has gone and one was recognized: there is room for two")
	}
	for c := range l.open {
		l.leave(c)
	}
	if len(l.unknown) != 0 || l.strangers != 0 || len(l.nodes) != 0 {
		t.Errorf("nobody is left, and %v, %d, %v are counted", l.unknown, l.strangers, l.nodes)
	}
}

// fakeConn comes from an address.
type fakeConn struct {
	net.Conn
	from string
}

func (c fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}

// TestSourceIsGivenBack: hosts behind one address do not use it up, when they say who they are.
func TestSourceIsGivenBack(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.SourceAccepts = 1 })
	for i := range 120 { // more than twice what there is at once
		name := fmt.Sprint("web-", i)
		r.add(name)
		if status, p := r.as(name).call(wire.PathStatus, wire.Report{}, &wire.StatusReply{}); p != nil {
			t.Fatalf("connection %d: %d %+v", i, status, p)
		}
	}
}

// TestNodeConnections: a node that opens one connection after the other has no more than its share, and gets it back.
func TestNodeConnections(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.NodeConnections = 2 })
	r.add("web-1")
	first, second := r.as("web-1"), r.as("web-1")
	for _, h := range []*host{first, second, first} {
		if status, p := h.call(wire.PathStatus, wire.Report{}, &wire.StatusReply{}); p != nil {
			t.Fatalf("%d %+v", status, p)
		}
	}
	if status, p := r.as("web-1").call(wire.PathStatus, wire.Report{}, nil); status != http.StatusServiceUnavailable || p.Code != "TK1043" {
		t.Errorf("a third one: %d %+v", status, p)
	}
	first.CloseIdleConnections()
	late := time.After(time.Minute)
	for {
		// Over another connection: the one over which it was refused is closed.
		status, p := r.as("web-1").call(wire.PathStatus, wire.Report{}, &wire.StatusReply{})
		if p == nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("after one was closed: %d %+v", status, p)
		default:
		}
	}
}
