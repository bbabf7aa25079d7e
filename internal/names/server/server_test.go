package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"tako.dev/tako/declare/workload"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
)

// run starts a server at a free port of a local address, and ends it with the test.
func run(t testing.TB, o Options) (s *Server, at netip.AddrPort) {
	t.Helper()
	return start(t, o, "127.0.0.1:0")
}

// serve starts a server of an index at an address.
func serve(t testing.TB, address string, x *names.Index) *Server {
	t.Helper()
	s, _ := start(t, Options{}, address)
	s.Swap(x)
	return s
}

func start(t testing.TB, o Options, address string) (s *Server, at netip.AddrPort) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := Listen(t.Context(), []netip.AddrPort{netip.MustParseAddrPort(address)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, sockets) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	return s, sockets.Addresses()[0]
}

// web is n ready instances of prod/web, which say their version in everything that they have.
func web(t testing.TB, version uint64, n int) *names.Index {
	t.Helper()
	x, err := names.New(names.Options{Servers: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	e := x.Edit()
	port := names.Port{Name: "http", Protocol: workload.TCP}
	if err := e.PutWorkload(names.Workload{Namespace: "prod", Name: "web", Ports: []names.Port{port}}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		err := e.PutInstance(&names.Instance{Namespace: "prod", Workload: "web", Name: fmt.Sprintf("web-%d-%d", version, i), Index: int32(i), Node: "n1", Revision: "r1",
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(version), byte(i >> 8), byte(i)})}, Endpoints: []names.Endpoint{{Port: port, Number: uint16(version)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return e.Commit(version)
}

func ask(t testing.TB, at netip.AddrPort, network, name string, qtype uint16, edns uint16) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	if edns > 0 {
		q.SetEdns0(edns, false)
	}
	client := &dns.Client{Net: network, Timeout: 10 * time.Second}
	r, _, err := client.Exchange(q, at.String())
	if err != nil {
		t.Fatalf("ask by %s for %s: %v", network, name, err)
	}
	return r
}

// TestSwapReachesAnswers: what is asked when Swap has returned is answered from the new view, without anybody looking for it, by either
// transport.
func TestSwapReachesAnswers(t *testing.T) {
	s, at := run(t, Options{})
	if r := ask(t, at, "udp", "web.prod.tako.internal.", dns.TypeA, 1232); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("before anything is known: %v", r)
	}
	for version := range uint64(50) {
		ready := int(version % 2)
		s.Swap(web(t, version, ready))
		for _, network := range []string{"udp", "tcp"} {
			r := ask(t, at, network, "web.prod.tako.internal.", dns.TypeA, 1232)
			if r.Rcode != dns.RcodeSuccess || len(r.Answer) != ready || !r.Authoritative || ready == 0 && r.Ns[0].(*dns.SOA).Serial != uint32(version) {
				t.Fatalf("version %d by %s: %v", version, network, r)
			}
		}
	}
	if c := s.Counts(); c.Answered["NOERROR"] != 100 || c.Answered["SERVFAIL"] != 1 || c.Dropped+c.Limited+c.Truncated != 0 {
		t.Errorf("counted %+v", c)
	}
}

// TestAnswerIsOfOneVersion has views replaced as fast as can be while clients ask: all of an answer is of one of them.
func TestAnswerIsOfOneVersion(t *testing.T) {
	s, at := run(t, Options{})
	views := []*names.Index{web(t, 1, 3), web(t, 2, 3)}
	s.Swap(views[0])
	var done atomic.Bool
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for i := 0; !done.Load(); i++ {
			s.Swap(views[i%2])
		}
	})
	for range 300 {
		r := ask(t, at, "udp", "_http._tcp.web.prod.tako.internal.", dns.TypeSRV, 1232)
		want := fmt.Sprintf("web-%d-", r.Answer[0].(*dns.SRV).Port)
		for _, rr := range slices.Concat(r.Answer, r.Extra) {
			if srv, ok := rr.(*dns.SRV); ok && !strings.HasPrefix(srv.Target, want) {
				t.Fatalf("%s in an answer of %s", srv.Target, want)
			}
			if rr.Header().Rrtype == dns.TypeA && !strings.HasPrefix(rr.Header().Name, want) {
				t.Fatalf("%s in an answer of %s", rr, want)
			}
		}
	}
	done.Store(true)
	swapper.Wait()
}

// TestTruncated asks for more than fits a packet: what is only added goes first and nobody is told, then TC says to ask by TCP, where it is
// whole.
func TestTruncated(t *testing.T) {
	s, at := run(t, Options{})
	s.Swap(web(t, 7, 500))
	const name = "_http._tcp.web.prod.tako.internal."
	for _, edns := range []uint16{0, 512, 1232, 65535} {
		r := ask(t, at, "udp", name, dns.TypeSRV, edns)
		r.Compress = true // as it came
		if limit := min(max(int(edns), 512), 1232); !r.Truncated || len(r.Answer) == 0 || r.Len() > limit {
			t.Errorf("with %d bytes: truncated %t, %d answers, %d bytes", edns, r.Truncated, len(r.Answer), r.Len())
		}
	}
	r := ask(t, at, "tcp", name, dns.TypeSRV, 1232)
	if r.Truncated || len(r.Answer) != names.InstancesMax {
		t.Errorf("by TCP: truncated %t, %d answers", r.Truncated, len(r.Answer))
	}
	if ede := r.IsEdns0().Option; len(ede) != 1 || ede[0].(*dns.EDNS0_EDE).ExtraText != "200 of 500 ready instances are listed, others the next time" {
		t.Errorf("of those left out it says %v", ede)
	}
	s.Swap(web(t, 7, 12))
	if r := ask(t, at, "udp", name, dns.TypeSRV, 1232); r.Truncated || len(r.Answer) != 12 || len(r.Extra) != 13 {
		t.Errorf("12 fit with their addresses: %v", r)
	}
	s.Swap(web(t, 7, 7))
	if r := ask(t, at, "udp", name, dns.TypeSRV, 512); r.Truncated || len(r.Answer) != 7 || len(r.Extra) != 1 {
		t.Errorf("7 fit without their addresses: truncated %t, %d answers, %d more", r.Truncated, len(r.Answer), len(r.Extra))
	}
}

// TestManners: what is no question of ours is answered as RFC 1035, 6891 and 8914 say, or not at all.
func TestManners(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Swap(web(t, 1, 1))
	type change = func(m *dns.Msg)
	for _, one := range []struct {
		what   string
		change change
		rcode  int
	}{
		{"a name of others", func(m *dns.Msg) { m.Question[0].Name = "example.org." }, dns.RcodeRefused},
		{"another class", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		{"a transfer", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused},
		{"an update", func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		{"two questions", func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		{"no question", func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		{"an answer in a question", func(m *dns.Msg) { m.Answer = []dns.RR{&dns.NULL{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeNULL}}} }, dns.RcodeFormatError},
		{"two OPT", func(m *dns.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }, dns.RcodeFormatError},
		{"a later EDNS", func(m *dns.Msg) { m.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		{"an answer", func(m *dns.Msg) { m.Response = true }, -1},
	} {
		q := new(dns.Msg)
		q.SetQuestion("web.prod.tako.internal.", dns.TypeA)
		q.SetEdns0(1232, true)
		one.change(q)
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		answer := s.respond(b, nil, false)
		if one.rcode < 0 {
			if answer != nil {
				t.Errorf("%s is answered", one.what)
			}
			continue
		}
		r := new(dns.Msg)
		if err := r.Unpack(answer); err != nil || r.Rcode != one.rcode || !r.Response || r.Id != q.Id || r.RecursionAvailable || r.IsEdns0() == nil {
			t.Errorf("%s: %v, %v", one.what, err, r)
		}
	}
	if s.respond([]byte("too short"), nil, false) != nil {
		t.Error("what has no header is answered")
	}
	if c := s.Counts(); c.Answered["REFUSED"] != 3 || c.Answered["FORMERR"] != 4 || c.Answered["NOTIMP"] != 1 || c.Answered["BADVERS"] != 1 || c.Dropped != 2 {
		t.Errorf("counted %+v", c)
	}
}

// TestRate: a client that asks too much has no answer, and is counted. By UDP anybody can ask in its name, so by TCP it has questions of its own.
func TestRate(t *testing.T) {
	s, at := run(t, Options{Rate: bucket.Rate{Burst: 3, Second: 0.001}})
	s.Swap(web(t, 1, 1))
	q := new(dns.Msg)
	q.SetQuestion("web.prod.tako.internal.", dns.TypeA)
	for limited, network := range []string{"udp", "tcp"} {
		for range 3 {
			ask(t, at, network, "web.prod.tako.internal.", dns.TypeA, 0)
		}
		if r, _, err := (&dns.Client{Net: network, Timeout: time.Second}).Exchange(q, at.String()); err == nil {
			t.Errorf("the fourth by %s is answered: %v", network, r)
		}
		boots.Eventually(t, time.Minute, "all that were asked are counted", func() (string, bool) {
			c := s.Counts()
			return fmt.Sprintf("%+v", c), c.Limited == uint64(limited)+1 && c.Answered["NOERROR"] == 3*uint64(limited+1)
		})
	}
	for _, rate := range []bucket.Rate{{Second: 5}, {Burst: 5}, {Burst: 0.5}, {Burst: 0.5, Second: 5}, {Burst: -1}} {
		if _, err := New(Options{Rate: rate}); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("a rate that lets nobody ask, %v: %v", rate, err)
		}
	}
}

// TestHome: programs of this machine have no bound where they ask at a local address, and the rate is for all others.
func TestHome(t *testing.T) {
	s, at := run(t, Options{Rate: bucket.Rate{Burst: 1, Second: 0.001}, Home: true})
	s.Swap(web(t, 1, 1))
	for range 5 {
		for _, network := range []string{"udp", "tcp"} {
			ask(t, at, network, "web.prod.tako.internal.", dns.TypeA, 0)
		}
	}
	if c := s.Counts(); c.Limited != 0 || c.Answered["NOERROR"] != 10 {
		t.Errorf("counted %+v", c)
	}
	for from, bounded := range map[string]bool{"127.0.0.88": false, "::1": false, "::ffff:127.0.0.1": false, "192.0.2.7": true, "2001:db8::7": true} {
		if limit := s.limit(s.packetLimit, netip.MustParseAddr(from)); (limit != nil) != bounded {
			t.Errorf("%s is bounded: %t", from, limit != nil)
		}
	}
}

// TestEachComesFirst: clients that ask for both families, or for one name after another, hear of all instances first all the same.
func TestEachComesFirst(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Swap(web(t, 1, 2))
	first := map[string]int{}
	for range 100 {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			q, r := new(dns.Msg), new(dns.Msg)
			q.SetQuestion("web.prod.tako.internal.", qtype)
			b, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Unpack(s.respond(b, nil, false)); err != nil {
				t.Fatal(err)
			}
			if qtype == dns.TypeA {
				first[r.Answer[0].(*dns.A).A.String()]++
			}
		}
	}
	for address, times := range first {
		if len(first) != 2 || times < 30 {
			t.Errorf("%s comes first %d times of 100", address, times)
		}
	}
}

// TestRefusedSaysWhy: what is not ours is refused for its name, what is ours for its type or class.
func TestRefusedSaysWhy(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Swap(web(t, 1, 1))
	for q, code := range map[dns.Question]uint16{
		{Name: "example.org.", Qtype: dns.TypeA, Qclass: dns.ClassINET}:           dns.ExtendedErrorCodeNotAuthoritative,
		{Name: "Prod.tako.internal.", Qtype: dns.TypeAXFR, Qclass: dns.ClassINET}: dns.ExtendedErrorCodeNotSupported,
		{Name: "prod.tako.internal.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}: dns.ExtendedErrorCodeNotSupported,
	} {
		m, r := &dns.Msg{Question: []dns.Question{q}}, new(dns.Msg)
		m.SetEdns0(1232, false)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Unpack(s.respond(b, nil, false)); err != nil || r.Rcode != dns.RcodeRefused || len(r.IsEdns0().Option) != 1 || r.IsEdns0().Option[0].(*dns.EDNS0_EDE).InfoCode != code {
			t.Errorf("%v: %v, %v", q, err, r)
		}
	}
}

// TestManyConnections: where clients have a rate, each has so many connections, others are let in all the same, and several questions go over
// one.
func TestManyConnections(t *testing.T) {
	s, at := run(t, Options{Rate: bucket.Rate{Burst: 1000, Second: 1000}})
	s.Swap(web(t, 1, 1))
	dialer := net.Dialer{Timeout: 10 * time.Second}
	var held []*dns.Conn
	for range connsOfOne {
		c, err := dialer.DialContext(t.Context(), "tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, &dns.Conn{Conn: c})
	}
	for range 3 {
		for _, c := range held {
			q := new(dns.Msg)
			q.SetQuestion("web.prod.tako.internal.", dns.TypeA)
			if r, _, err := new(dns.Client).ExchangeWithConn(q, c); err != nil || len(r.Answer) != 1 {
				t.Fatalf("%v, %v", err, r)
			}
		}
	}
	extra, err := dialer.DialContext(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	_ = extra.SetReadDeadline(time.Now().Add(idleMax / 2))
	if _, err := extra.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection more than a client may have stays open: %v", err)
	}
	other := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := other.DialContext(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := new(dns.Msg)
	q.SetQuestion("web.prod.tako.internal.", dns.TypeA)
	if r, _, err := new(dns.Client).ExchangeWithConn(q, &dns.Conn{Conn: c}); err != nil || len(r.Answer) != 1 {
		t.Errorf("another client: %v, %v", err, r)
	}
}

// TestConnectionsWait: at a local address more connections than there are places for wait until one is free, and are answered then.
func TestConnectionsWait(t *testing.T) {
	s, at := run(t, Options{})
	s.Swap(web(t, 1, 1))
	dialer := net.Dialer{Timeout: 10 * time.Second}
	var held []net.Conn
	for range connsMax {
		c, err := dialer.DialContext(t.Context(), "tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	waiting, err := dialer.DialContext(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	held[0].Close()
	q := new(dns.Msg)
	q.SetQuestion("web.prod.tako.internal.", dns.TypeA)
	if r, _, err := (&dns.Client{Timeout: idleMax / 2}).ExchangeWithConn(q, &dns.Conn{Conn: waiting}); err != nil || len(r.Answer) != 1 {
		t.Errorf("when a place is free: %v, %v", err, r)
	}
	for _, c := range held {
		c.Close()
	}
	for range connsMax + 1 {
		ask(t, at, "tcp", "web.prod.tako.internal.", dns.TypeA, 0) // each place is free again
	}
}

// TestListen: an address that is taken, and one that cannot be answered from, are refused with the reason, and what was taken is given back.
func TestListen(t *testing.T) {
	first, err := Listen(t.Context(), []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	taken := first.Addresses()[0]
	free := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), taken.Port())
	for _, wrong := range []netip.AddrPort{taken, netip.MustParseAddrPort("0.0.0.0:0"), {}} {
		if _, err := Listen(t.Context(), []netip.AddrPort{free, wrong}); !reason.Is(err, reason.NamesUnserved) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	both, err := Listen(t.Context(), []netip.AddrPort{free, taken})
	if err != nil {
		t.Fatalf("what was refused is held: %v", err)
	}
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := both.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), both); !reason.Is(err, reason.NamesUnserved) {
		t.Errorf("with an address that has failed: %v", err)
	}
}

// FuzzRespond gives a server any message. What it answers fits, can be read, and is to the question.
func FuzzRespond(f *testing.F) {
	x := web(f, 1, 40)
	s, err := New(Options{})
	if err != nil {
		f.Fatal(err)
	}
	s.Swap(x)
	for _, name := range []string{"web.prod.tako.internal.", "WEB.prod.Tako.Internal.", "_http._tcp.web.prod.tako.internal.", "_http._tcp.prod.tako.internal.", `Living\032Room\.\195\188._http._tcp.prod.tako.internal.`,
		"web._sub._http._tcp.prod.tako.internal.", "_services._dns-sd._udp.prod.tako.internal.", "0.web.prod.tako.internal.", "web-1-3._http._tcp.prod.tako.internal.", "n1.node.tako.internal.", "."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypePTR, dns.TypeTXT, dns.TypeSOA, dns.TypeANY, dns.TypeAXFR} {
			q := new(dns.Msg)
			q.SetQuestion(name, qtype)
			q.SetEdns0(700, true)
			b, err := q.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, false)
			f.Add(b[:len(b)-11], true)
		}
	}
	f.Fuzz(func(t *testing.T, query []byte, stream bool) {
		answer := s.respond(query, nil, stream)
		if answer == nil {
			return
		}
		q, r := new(dns.Msg), new(dns.Msg)
		limit := dns.MinMsgSize
		if q.Unpack(query) == nil && q.IsEdns0() != nil {
			limit = max(limit, min(int(q.IsEdns0().UDPSize()), packetBytesMax))
		}
		if err := r.Unpack(answer); err != nil || r.Id != q.Id || !r.Response || !stream && len(answer) > limit {
			t.Fatalf("%x is answered by %x (%d bytes, %v)", query, answer, len(answer), err)
		}
		if len(r.Question) == 1 && r.Question[0] != q.Question[0] {
			t.Fatalf("%v is answered as %v", q.Question, r.Question)
		}
		if r.Rcode == dns.RcodeSuccess && len(r.Answer)+len(r.Ns) == 0 && !r.Truncated {
			t.Fatalf("%v: nothing, and nobody who says so", q.Question)
		}
		if stream && r.Truncated {
			t.Fatalf("%v: truncated by TCP", q.Question)
		}
	})
}

// FuzzReceive has a connection bring any bytes: what is taken are the questions that are whole, one after the other, up to the first that is cut short or
// too long.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{0, 1, 7, 0, 2, 8, 9})
	f.Add([]byte{0, 0, 0, 1, 5, 0xff, 0xff, 1})
	f.Add([]byte{0, 3, 1})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		here, there := net.Pipe()
		var writer sync.WaitGroup
		writer.Go(func() {
			_, _ = there.Write(data) // the reader may have enough before
			_ = there.Close()
		})
		query := make([]byte, 64)
		for rest := data; ; {
			n, err := receive(here, query)
			whole := len(rest) >= 2
			if whole {
				length := int(rest[0])<<8 | int(rest[1])
				if whole = length <= len(query) && len(rest) >= 2+length; whole {
					if err != nil || !bytes.Equal(query[:n], rest[2:2+length]) {
						t.Fatalf("of %x comes %x, %v", rest, query[:n], err)
					}
					rest = rest[2+length:]
				}
			}
			if !whole {
				if err == nil {
					t.Fatalf("of %x comes %x", rest, query[:n])
				}
				break
			}
		}
		_ = here.Close()
		writer.Wait()
	})
}

func BenchmarkRespond(b *testing.B) {
	for _, one := range []struct {
		name  string
		qtype uint16
	}{{"web.prod.tako.internal.", dns.TypeA}, {"_http._tcp.web.prod.tako.internal.", dns.TypeSRV}, {"nothing.prod.tako.internal.", dns.TypeA}} {
		b.Run(one.name, func(b *testing.B) {
			s, err := New(Options{})
			if err != nil {
				b.Fatal(err)
			}
			s.Swap(web(b, 1, 8))
			q := new(dns.Msg)
			q.SetQuestion(one.name, one.qtype)
			q.SetEdns0(1232, false)
			query, err := q.Pack()
			if err != nil {
				b.Fatal(err)
			}
			scratch := make([]byte, packetBytesMax)
			b.ReportAllocs()
			for b.Loop() {
				if s.respond(query, scratch, false) == nil {
					b.Fatal("no answer")
				}
			}
		})
	}
}
