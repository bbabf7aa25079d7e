package endpoint

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// place is where a server is.
func place(t *testing.T, address string) (name string, port int) {
	t.Helper()
	name, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return name, n
}

// bound is an endpoint that may take a minute where nothing else is declared: a machine that is busy is slow.
func bound(t *testing.T, typ *Type, e declare.Endpoint) host.Resource {
	t.Helper()
	e.Timeout = cmp.Or(e.Timeout, "1m")
	r, err := typ.Bind(t.Context(), host.Declared{Title: "endpoint/e", Key: "endpoint:e", Resource: declare.Resource{Name: "e", Endpoint: &e}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asked is what a check of one endpoint says.
func asked(t *testing.T, typ *Type, r host.Resource) host.Plan {
	t.Helper()
	return typ.Check(t.Context(), []host.Resource{r}, host.Shallow)[0]
}

// wantCode checks how an endpoint is; 0 is kept.
func wantCode(t *testing.T, what string, p host.Plan, code reason.Code, words ...string) {
	t.Helper()
	got := reason.Code(0)
	message := ""
	if p.Err != nil {
		got, message = reason.Of(p.Err).Code, p.Err.Error()
	}
	if got != code {
		t.Errorf("%s: %v %q, want %v", what, got, message, code)
	}
	for _, w := range words {
		if !strings.Contains(message, w) {
			t.Errorf("%s: %q does not say %q", what, message, w)
		}
	}
	if code != 0 && reason.Of(p.Err).After <= 0 {
		t.Errorf("%s: it is not said when it is asked again", what)
	}
}

func TestConnection(t *testing.T) {
	typ := New(Options{})
	l, err := net.Listen("tcp", boots.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	name, port := place(t, l.Addr().String())
	r := bound(t, typ, declare.Endpoint{Host: name, Port: port})
	if p := asked(t, typ, r); !p.Empty() {
		t.Errorf("it answers, and the plan is %+v", p)
	}
	l.Close()
	wantCode(t, "closed", asked(t, typ, r), reason.EndpointSilent, "refused", l.Addr().String())
	wantCode(t, "still closed", asked(t, typ, r), reason.EndpointSilent)
	if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// That it answers again is a change, once.
	p := asked(t, typ, r)
	if p.Err != nil || len(p.Changes) != 1 || !strings.HasPrefix(p.Changes[0].From, "none since 20") {
		t.Fatalf("it answers again: %+v", p)
	}
	if again := asked(t, typ, r); again.Empty() {
		t.Error("a change that nobody has applied is forgotten")
	}
	if res := typ.Apply(t.Context(), []host.Plan{p}); res[0].Err != nil || !res[0].Changed {
		t.Errorf("%+v", res[0])
	}
	if p := asked(t, typ, r); !p.Empty() {
		t.Errorf("after that: %+v", p)
	}
}

// TestStubborn are servers that do their worst. None may hold a check longer than its time.
func TestStubborn(t *testing.T) {
	typ := New(Options{})
	serve := func(talk func(net.Conn)) (string, int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var talks sync.WaitGroup
		talks.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				talks.Go(func() { defer c.Close(); talk(c) })
			}
		})
		t.Cleanup(func() { l.Close(); talks.Wait() })
		return place(t, l.Addr().String())
	}
	hear := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	request := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) } // a request, which comes in one piece
	page := &declare.EndpointHTTP{Path: "/health", Contains: "well"}
	for _, s := range []struct {
		what  string
		talk  func(net.Conn)
		tls   bool
		http  *declare.EndpointHTTP
		code  reason.Code
		words []string
	}{
		{"says nothing", hear, false, page, reason.EndpointSilent, []string{"within 1s"}},
		{"says nothing to TLS", hear, true, nil, reason.EndpointSilent, []string{"within 1s"}},
		{"speaks no TLS", func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-OpenSSH\r\n"); hear(c) }, true, nil, reason.EndpointWrong, []string{"TLS"}},
		{"speaks no HTTP", func(c net.Conn) { fmt.Fprint(c, "220 mail ready\r\n"); hear(c) }, false, page, reason.EndpointWrong, []string{"speaks no HTTP", "malformed"}},
		{"drips", func(c net.Conn) {
			request(c)
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
			}
		}, false, page, reason.EndpointSilent, []string{"within 1s"}},
		{"never ends", func(c net.Conn) {
			request(c)
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := c.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, false, page, reason.EndpointWrong, []string{`does not contain "well"`}},
		{"sends headers for ever", func(c net.Conn) {
			request(c)
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", time.Now().UnixNano(), strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}, false, page, reason.EndpointWrong, nil},
		{"says for ever that it will answer", func(c net.Conn) {
			request(c)
			for {
				if _, err := fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
			}
		}, false, page, reason.EndpointWrong, []string{"will be an answer"}},
		{"says first that it will answer", func(c net.Conn) {
			request(c)
			fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell")
		}, false, page, 0, nil},
		{"closes", func(c net.Conn) {}, false, page, reason.EndpointSilent, nil},
	} {
		t.Run(s.what, func(t *testing.T) {
			t.Parallel()
			name, port := serve(s.talk)
			timeout := ""
			if slices.Contains(s.words, "within 1s") {
				timeout = "1s"
			}
			r := bound(t, typ, declare.Endpoint{Host: name, Port: port, TLS: s.tls, HTTP: s.http, Timeout: timeout})
			wantCode(t, s.what, asked(t, typ, r), s.code, s.words...)
		})
	}
}

func TestPages(t *testing.T) {
	typ := New(Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/well":
			fmt.Fprintf(w, "all is well at %s, %s", r.Host, r.URL.RawQuery)
		case "/ill":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/moved":
			http.Redirect(w, r, "/well", http.StatusFound)
		}
	}))
	defer server.Close()
	name, port := place(t, server.Listener.Addr().String())
	for _, c := range []struct {
		page  declare.EndpointHTTP
		code  reason.Code
		words []string
	}{
		{declare.EndpointHTTP{}, 0, nil},
		{declare.EndpointHTTP{Path: "/well?deep=1", Contains: "deep=1"}, 0, nil},
		{declare.EndpointHTTP{Path: "/well", Contains: server.Listener.Addr().String()}, 0, nil},
		{declare.EndpointHTTP{Path: "/well", Contains: "ill at ease"}, reason.EndpointWrong, []string{"/well", "does not contain"}},
		{declare.EndpointHTTP{Path: "/ill"}, reason.EndpointWrong, []string{"status 503"}},
		{declare.EndpointHTTP{Path: "/ill", Status: []int{503}}, 0, nil},
		{declare.EndpointHTTP{Path: "/moved"}, reason.EndpointWrong, []string{"status 302"}},
		{declare.EndpointHTTP{Path: "/moved", Status: []int{302}}, 0, nil},
	} {
		wantCode(t, fmt.Sprintf("%+v", c.page), asked(t, typ, bound(t, typ, declare.Endpoint{Host: name, Port: port, HTTP: &c.page})), c.code, c.words...)
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	name, port := place(t, server.Listener.Addr().String())
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for _, c := range []struct {
		what     string
		roots    *x509.CertPool
		endpoint declare.Endpoint
		code     reason.Code
		words    []string
	}{
		{"the host's own authorities", roots, declare.Endpoint{TLS: true, HTTP: &declare.EndpointHTTP{}}, 0, nil},
		{"declared authorities", x509.NewCertPool(), declare.Endpoint{TLS: true, CA: text}, 0, nil},
		{"another name that it has", roots, declare.Endpoint{TLS: true, ServerName: "example.com"}, 0, nil},
		{"a name that it has not", roots, declare.Endpoint{TLS: true, ServerName: "example.org"}, reason.EndpointWrong, []string{"example.org"}},
		{"unknown authorities", x509.NewCertPool(), declare.Endpoint{TLS: true}, reason.EndpointWrong, []string{"unknown authority"}},
	} {
		c.endpoint.Host, c.endpoint.Port = name, port
		typ := New(Options{Roots: c.roots})
		wantCode(t, c.what, asked(t, typ, bound(t, typ, c.endpoint)), c.code, c.words...)
	}
}

// TestFrozen: many endpoints that do not answer take as long as one.
func TestFrozen(t *testing.T) {
	typ := New(Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it accepts nothing, and the kernel does
	name, port := place(t, l.Addr().String())
	all := make([]host.Resource, laneBatch)
	for i := range all {
		all[i] = bound(t, typ, declare.Endpoint{Host: name, Port: port, HTTP: &declare.EndpointHTTP{}, Timeout: "1s"})
	}
	ctx, cancel := context.WithTimeout(t.Context(), laneBatch*time.Second)
	defer cancel()
	for _, p := range typ.Check(ctx, all, host.Deep) {
		wantCode(t, "frozen", p, reason.EndpointSilent, "within 1s")
	}
	if ctx.Err() != nil {
		t.Error("they were asked one after the other")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if p := typ.Check(ended, all[:1], host.Shallow)[0]; !reason.Is(p.Err, reason.Interrupted) {
		t.Errorf("an agent that ends says %v", p.Err)
	}
}

func TestNames(t *testing.T) {
	typ := New(Options{})
	wantCode(t, "a name that leads nowhere", asked(t, typ, bound(t, typ, declare.Endpoint{Host: "nowhere.invalid", Port: 1, Timeout: "2s"})), reason.EndpointSilent, "nowhere.invalid")
	_, err := typ.Bind(t.Context(), host.Declared{Title: "endpoint/e", Resource: declare.Resource{Expand: true, Endpoint: &declare.Endpoint{Host: "a b", Port: 1}}})
	if !reason.Is(err, reason.InvalidValue) {
		t.Errorf("what was filled in wrongly: %v", err)
	}
	r := bound(t, typ, declare.Endpoint{Host: "db", Port: 1})
	if _, err := typ.Original(t.Context(), r); err == nil {
		t.Error("there is something to put back")
	}
	if err := typ.Remove(t.Context(), r, declare.OnRemoveDelete, nil); err != nil {
		t.Error(err)
	}
	if w := r.Watches(); len(w) != 1 || w[0] != (host.Watch{Kind: host.WatchTime, Name: "30s"}) {
		t.Errorf("watches %v", w)
	}
	if !errors.Is(plain(&net.OpError{Op: "dial", Err: net.ErrClosed}), net.ErrClosed) {
		t.Error("what went wrong is lost")
	}
}
