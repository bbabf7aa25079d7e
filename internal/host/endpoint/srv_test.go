package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// record is a target of an SRV record, with its address. Of several, earlier ones have priority.
type record struct {
	target  string
	address [4]byte
	port    uint16
}

// resolver asks a server of the test, which knows one service.
func resolver(t *testing.T, service string, records []record) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			answer(&m, service, records)
			if out, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(out, from)
			}
		}
	})
	t.Cleanup(func() { server.Close(); serving.Wait() })
	var dialer net.Dialer
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

func answer(m *dnsmessage.Message, service string, records []record) {
	m.Response, m.Additionals = true, nil
	m.RCode = dnsmessage.RCodeNameError
	q := m.Questions[0]
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
	for i, r := range records {
		switch {
		case q.Name.String() == service && q.Type == dnsmessage.TypeSRV:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.SRVResource{Priority: uint16(i), Target: dnsmessage.MustNewName(r.target), Port: r.port}})
			m.RCode = dnsmessage.RCodeSuccess
		case q.Name.String() == r.target:
			if m.RCode = dnsmessage.RCodeSuccess; q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: r.address}})
			}
		}
	}
}

func TestService(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port := place(t, l.Addr().String())
	local := [4]byte{127, 0, 0, 1}
	const name = "_db._tcp.example.com"
	here, gone := record{"here.example.com.", local, uint16(port)}, record{"gone.example.com.", local, 1}
	also := record{"also.example.com.", local, 1}
	for _, c := range []struct {
		what    string
		records []record
		code    reason.Code
		words   []string
	}{
		{"one answers", []record{here}, 0, nil},
		{"one of two answers", []record{gone, here}, 0, nil},
		{"none answers", []record{gone}, reason.EndpointSilent, []string{"gone.example.com:1", "refused"}},
		{"none of two answers", []record{gone, also}, reason.EndpointSilent, []string{"gone.example.com:1", "also.example.com:1"}},
		{"there is no record", nil, reason.EndpointSilent, []string{name}},
		{"it is said to be nowhere", []record{{".", local, 0}}, reason.EndpointSilent, []string{"nowhere"}},
	} {
		typ := New(Options{Resolver: resolver(t, name+".", c.records)})
		wantCode(t, c.what, asked(t, typ, bound(t, typ, declare.Endpoint{Service: name})), c.code, c.words...)
	}
}

// silent is the port of a socket of 127.0.0.1 that drops whoever wants to connect: one connection waits to be accepted, and no more may.
func silent(t *testing.T) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := address.(*unix.SockaddrInet4).Port
	waits, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { waits.Close() })
	return uint16(port)
}

// TestSilentTargets: an endpoint is kept by a target that answers, whatever those before it do: drop what is sent to them, take a
// connection and say nothing, or answer wrongly.
func TestSilentTargets(t *testing.T) {
	serve := func(status int) uint16 {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(server.Close)
		_, port := place(t, server.Listener.Addr().String())
		return uint16(port)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // it accepts nothing, and the kernel does
	_, port := place(t, l.Addr().String())
	const name = "_db._tcp.example.com"
	local := [4]byte{127, 0, 0, 1}
	drops, mute := record{"drops.example.com.", local, silent(t)}, record{"mute.example.com.", local, uint16(port)}
	well, ill := record{"well.example.com.", local, serve(http.StatusOK)}, record{"ill.example.com.", local, serve(http.StatusServiceUnavailable)}
	many := make([]record, targetsMax-1, targetsMax)
	for i := range many {
		many[i] = record{fmt.Sprintf("drops%d.example.com.", i), local, drops.port}
	}
	for _, c := range []struct {
		what    string
		records []record
		page    bool
		timeout string
		code    reason.Code
		words   []string
	}{
		{"the first drops", []record{drops, well}, false, "", 0, nil},
		{"the first says nothing", []record{mute, well}, true, "", 0, nil},
		{"the first is ill", []record{ill, well}, true, "", 0, nil},
		{"all but the last drop", append(many, well), true, "5s", 0, nil},
		{"all drop", []record{drops, {"also.example.com.", local, drops.port}}, false, "1s", reason.EndpointSilent, []string{"within 1s"}},
		{"one is ill, one drops", []record{ill, drops}, true, "2s", reason.EndpointWrong, []string{"ill.example.com", "status 503"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			e := declare.Endpoint{Service: name, Timeout: c.timeout}
			if c.page {
				e.HTTP = &declare.EndpointHTTP{}
			}
			typ := New(Options{Resolver: resolver(t, name+".", c.records)})
			wantCode(t, c.what, asked(t, typ, bound(t, typ, e)), c.code, c.words...)
		})
	}
}
