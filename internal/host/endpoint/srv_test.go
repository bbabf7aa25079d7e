package endpoint

import (
	"context"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// record is a target of an SRV record, with its address.
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
	for _, r := range records {
		switch {
		case q.Name.String() == service && q.Type == dnsmessage.TypeSRV:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(r.target), Port: r.port}})
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
	for _, c := range []struct {
		what    string
		records []record
		code    reason.Code
		words   []string
	}{
		{"one answers", []record{here}, 0, nil},
		{"one of two answers", []record{gone, here}, 0, nil},
		{"none answers", []record{gone}, reason.EndpointSilent, []string{"gone.example.com:1", "refused"}},
		{"there is no record", nil, reason.EndpointSilent, []string{name}},
		{"it is said to be nowhere", []record{{".", local, 0}}, reason.EndpointSilent, []string{"nowhere"}},
	} {
		typ := New(Options{Resolver: resolver(t, name+".", c.records)})
		wantCode(t, c.what, asked(t, typ, bound(t, typ, declare.Endpoint{Service: name})), c.code, c.words...)
	}
}
