package swarm

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/trust"
)

// serving is an HTTP/2 server as net/http makes it, and a link to it whose messages come out of the channel.
func serving(t *testing.T, h http.HandlerFunc) (*link, <-chan message, <-chan error) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	l, err := dial(t.Context(), netip.MustParseAddr("127.0.0.2"), s.Listener.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	messages, ended := make(chan message, 1000), make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- l.read(func(m message) bool { messages <- m; return true })
	}()
	t.Cleanup(func() {
		l.close()
		<-ended
	})
	return l, messages, ended
}

// whole is the whole answer to a call.
func whole(t *testing.T, stream uint32, messages <-chan message) (status int, data []byte) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case m := <-messages:
			if m.stream != stream {
				t.Fatalf("a message of stream %d, want %d", m.stream, stream)
			}
			if m.status != 0 {
				status = m.status
			}
			data = append(data, m.data...)
			if m.end {
				return status, data
			}
		case <-late:
			t.Fatal("no answer")
		}
	}
}

// TestLink: calls are answered, also those whose answers are larger than what may be on the way at once, and many after one another, which
// together are larger than what the server takes before it has read some.
func TestLink(t *testing.T) {
	const size = 300 << 10
	l, messages, _ := serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil || r.Header.Get("Content-Type") != "application/cbor":
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/large":
			_, _ = w.Write(bytes.Repeat([]byte("x"), size))
		case r.URL.Path == "/no":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("why"))
		default:
			_, _ = io.WriteString(w, r.RemoteAddr+" "+string(body[:2]))
		}
	})
	call := func(path string, body []byte) (int, string) {
		t.Helper()
		stream, err := l.post(path, body)
		if err != nil {
			t.Fatal(err)
		}
		status, data := whole(t, stream, messages)
		return status, string(data)
	}
	for range 3 {
		if status, data := call("/large", []byte("hi")); status != http.StatusOK || len(data) != size {
			t.Fatalf("%d, %d bytes", status, len(data))
		}
	}
	if status, data := call("/no", []byte("hi")); status != http.StatusForbidden || data != "why" {
		t.Errorf("%d %q", status, data)
	}
	for range 20 {
		status, data := call("/echo", bytes.Repeat([]byte("hi"), 10<<10))
		if status != http.StatusOK || !strings.HasPrefix(data, "127.0.0.2:") || !strings.HasSuffix(data, " hi") {
			t.Fatalf("%d %q", status, data)
		}
	}
}

// TestLinkEnds: a server that ends the connection ends the reading, and one that is told that nobody waits any more ends the call.
func TestLinkEnds(t *testing.T) {
	canceled := make(chan struct{})
	l, messages, ended := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(canceled)
			return
		}
		w.Header().Set("Connection", "close")
	})
	stream, err := l.post("/wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	if m := <-messages; m.stream != stream || m.status != http.StatusOK || m.end {
		t.Fatalf("%+v", m)
	}
	if err := l.cancel(stream); err != nil {
		t.Fatal(err)
	}
	select {
	case <-canceled:
	case <-time.After(30 * time.Second):
		t.Fatal("the call goes on")
	}
	if _, err := l.post("/close", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		l.close()
	case <-time.After(30 * time.Second):
		t.Fatal("the connection goes on")
	}
}

func TestFrames(t *testing.T) {
	for name, c := range map[string]struct {
		data        string
		first, rest string
		whole, bad  bool
	}{
		"nothing":       {"", "", "", false, false},
		"half a length": {"\x00\x00", "", "\x00\x00", false, false},
		"half":          {"\x00\x00\x00\x03ab", "", "\x00\x00\x00\x03ab", false, false},
		"one":           {"\x00\x00\x00\x03abc", "abc", "", true, false},
		"one and more":  {"\x00\x00\x00\x01ab", "a", "b", true, false},
		"too long":      {"\x7f\x00\x00\x01ab", "", "\x7f\x00\x00\x01ab", false, true},
	} {
		first, rest, whole, err := frameOf([]byte(c.data))
		if string(first) != c.first || string(rest) != c.rest || whole != c.whole || (err != nil) != c.bad {
			t.Errorf("%s: %q, %q, %v, %v", name, first, rest, whole, err)
		}
	}
}

// TestReportThatIsNotWritten: a host whose report could not be written, because its connection has just ended, reports on the next one.
func TestReportThatIsNotWritten(t *testing.T) {
	l, _, _ := serving(t, func(http.ResponseWriter, *http.Request) {})
	now, cluster := time.Now(), trust.NewClusterID()
	ca, err := trust.NewCA(cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := trust.NewChain(trust.Genesis{Cluster: cluster, CA: ca, Root: trust.NewSigningKey(), Heads: trust.NewSigningKey().Public()}, now, now)
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(catalog.Node{Cluster: cluster, Name: "n", UID: "u"}, chain, tls.Certificate{}, netip.Addr{})
	h.machine = core.New(core.Options{Node: h.node, Chain: h.chain, Held: h.store, Sources: 1, Random: h.random})
	h.line = &line{link: l, calls: map[uint32]*call{}}
	h.tally.watching.Store(true)
	h.report.changed(now)
	l.close()
	if err := h.due(now.Add(reportPause)); err == nil {
		t.Fatal("a report goes over a connection that has ended")
	}
	h.lost()
	if h.report.sent || h.report.dueAt().IsZero() {
		t.Errorf("it reports nothing any more: %+v", h.report)
	}
}
