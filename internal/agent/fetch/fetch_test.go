package fetch

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// identity is a host of a cluster, as far as a fetch needs one.
type identity struct {
	client.Identity
	servers []string
	cert    tls.Certificate
	chain   *trust.Chain
}

func (id *identity) Servers() []string                      { return id.servers }
func (id *identity) Certificate() (*tls.Certificate, error) { return &id.cert, nil }
func (id *identity) Trust() *trust.Chain                    { return id.chain }

// scene is a host and its servers.
type scene struct {
	*testing.T
	id      *identity
	ca      *trust.CA
	objects *content.Objects
	fetcher *Fetcher
}

func newScene(t *testing.T) *scene {
	t.Helper()
	now := time.Now()
	cluster, heads, root := trust.NewClusterID(), trust.NewSigningKey(), trust.NewSigningKey()
	ca, err := trust.NewCA(cluster, now)
	must(t, err)
	chain, err := trust.NewChain(trust.Genesis{Cluster: cluster, CA: ca, Root: root, Heads: heads.Public()}, now, now)
	must(t, err)
	host, sealing := trust.NewHostKey(), trust.NewSealingKey()
	text, err := trust.NodeRequest(host, sealing.Public())
	must(t, err)
	request, err := trust.ParseNodeRequest(text)
	must(t, err)
	der, err := ca.IssueNode(request, trust.NodeCertificate{Cluster: cluster, Name: "web-1", UID: "uid-1"}, now)
	must(t, err)
	cert, err := host.TLS(der)
	must(t, err)
	objects, err := content.OpenObjects(filepath.Join(t.TempDir(), "objects"), content.Options{})
	must(t, err)
	s := &scene{T: t, id: &identity{cert: cert, chain: chain}, ca: ca, objects: objects}
	s.fetcher, err = New(Options{Objects: objects, Log: slog.New(slog.DiscardHandler),
		Identity: func() (client.Identity, error) { return s.id, nil }, Head: func() ([]byte, error) { return []byte("head"), nil }})
	must(t, err)
	objects.Fetched()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve adds a server that answers so.
func (s *scene) serve(handler http.HandlerFunc) {
	s.Helper()
	credential, err := s.ca.IssueServer(trust.ServerRequest{DNSNames: []string{"localhost"}}, time.Now())
	must(s.T, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.T, err)
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: &protocols, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{credential.TLS()}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}}
	var served sync.WaitGroup
	served.Go(func() { _ = server.ServeTLS(l, "", "") })
	s.Cleanup(func() { server.Close(); served.Wait() })
	s.id.servers = append(s.id.servers, l.Addr().String())
}

// want asks for an object, as a resource does.
func (s *scene) want(data []byte) content.Wanted {
	s.Helper()
	w := content.Wanted{Digest: content.DigestOf(data), Size: int64(len(data)), Claim: "path:/f"}
	s.objects.Use(w.Digest)
	if _, err := s.objects.Open(w); !reason.Is(err, reason.ObjectComing) {
		s.Fatalf("asked for: %v", err)
	}
	return w
}

// round makes an attempt for all that is wanted, whenever it is due.
func (s *scene) round() {
	for _, t := range s.fetcher.tries {
		t.at = time.Time{}
	}
	s.fetcher.round(s.Context())
}

// here reports whether an object has come, and is what it is to be.
func (s *scene) here(w content.Wanted, data []byte) bool {
	s.Helper()
	f, err := s.objects.Open(w)
	if err != nil {
		return false
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	return err == nil && bytes.Equal(got, data)
}

func from(r *http.Request) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
	return n
}

// give answers with a part of the data, and breaks off where that is not all.
func give(w http.ResponseWriter, r *http.Request, data []byte, most int) {
	at := from(r)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)-at))
	if at > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	end := min(len(data), at+most)
	_, _ = w.Write(data[at:end])
	_ = http.NewResponseController(w).Flush()
	if end < len(data) {
		panic(http.ErrAbortHandler)
	}
}

// refuse answers as a server that says why.
func refuse(w http.ResponseWriter, code reason.Code, status int) {
	data, _ := wire.Encode(wire.Problem{Code: code.String(), Message: "no"})
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// What breaks off goes on where it was, also with another server.
func TestResume(t *testing.T) {
	s := newScene(t)
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	var begins []int
	var mu sync.Mutex
	handler := func(w http.ResponseWriter, r *http.Request) {
		head, err := wire.DecodeHead(r.Header.Get(wire.HeaderHead))
		key, keyErr := wire.DecodeKey(r.Header.Get(wire.HeaderKey))
		if err != nil || keyErr != nil || string(head) != "head" || key != catalog.KeyOf("path:/f") || len(r.TLS.PeerCertificates) == 0 {
			t.Errorf("it shows %q, %v, %v, %v", head, key, err, keyErr)
		}
		mu.Lock()
		begins = append(begins, from(r))
		mu.Unlock()
		give(w, r, data, 100_000)
	}
	s.serve(handler)
	s.serve(handler)
	w := s.want(data)
	for range 10 {
		s.round()
		if s.here(w, data) {
			break
		}
	}
	if !s.here(w, data) || len(s.objects.Wanted()) != 0 {
		t.Fatal("it did not come")
	}
	for i := 1; i < len(begins); i++ {
		if begins[i] <= begins[i-1] {
			t.Errorf("begun at %v", begins)
		}
	}
}

func TestRefused(t *testing.T) {
	s := newScene(t)
	data := []byte("what is wanted")
	answer := func(w http.ResponseWriter, _ *http.Request) { refuse(w, reason.ObjectRefused, http.StatusForbidden) }
	s.serve(func(w http.ResponseWriter, r *http.Request) { answer(w, r) })
	w := s.want(data)
	fails := func(what string, want reason.Code) {
		t.Helper()
		s.round()
		if _, err := s.objects.Open(w); !reason.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fails("not for this host", reason.ObjectRefused)
	answer = func(w http.ResponseWriter, _ *http.Request) { refuse(w, reason.ObjectMissing, http.StatusNotFound) }
	fails("not there", reason.ObjectMissing)
	answer = func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, reason.TransferBusy, http.StatusServiceUnavailable)
	}
	fails("busy", reason.ObjectComing)
	answer = func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(append(data, "and more"...)) }
	fails("too much", reason.ObjectComing)
	answer = func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(bytes.ToUpper(data)) }
	fails("something else", reason.ContentMismatch)
	answer = func(w http.ResponseWriter, r *http.Request) { give(w, r, data, len(data)) }
	s.round()
	if !s.here(w, data) {
		t.Error("it did not come in the end")
	}
}

// A server that is busy is asked again within minutes, whatever it asks for.
func TestAskedForLong(t *testing.T) {
	s := newScene(t)
	data := []byte("what is wanted")
	s.serve(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := wire.Encode(wire.Problem{Code: reason.TransferBusy.String(), Message: "no", RetryAfter: math.MaxUint32})
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(text)
	})
	w := s.want(data)
	s.round()
	if try := s.fetcher.tries[w.Digest]; try == nil || time.Until(try.at) > pauseMax {
		t.Errorf("tried again: %+v", try)
	}
}

// Another server may have what one has not.
func TestNextServer(t *testing.T) {
	s := newScene(t)
	data := []byte("what is wanted")
	s.id.servers = []string{"127.0.0.1:1"} // nobody is there
	s.serve(func(w http.ResponseWriter, _ *http.Request) { refuse(w, reason.ObjectMissing, http.StatusNotFound) })
	s.serve(func(w http.ResponseWriter, r *http.Request) { give(w, r, data, len(data)) })
	w := s.want(data)
	s.round()
	if !s.here(w, data) {
		t.Error("it did not come")
	}
}

// What a server says about an object is told, and not that another one, asked after it, does not answer.
func TestWhatAServerSaysIsTold(t *testing.T) {
	s := newScene(t)
	s.serve(func(w http.ResponseWriter, _ *http.Request) { refuse(w, reason.ObjectMissing, http.StatusNotFound) })
	s.id.servers = append(s.id.servers, "127.0.0.1:1") // nobody listens there
	w := s.want([]byte("data"))
	s.round()
	if _, err := s.objects.Open(w); !reason.Is(err, reason.ObjectMissing) {
		t.Error(err)
	}
}

// A server that is not of the cluster is told nothing.
func TestForeignServer(t *testing.T) {
	s, other := newScene(t), newScene(t)
	other.serve(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	s.id.servers = other.id.servers
	w := s.want([]byte("x"))
	s.round()
	if _, err := s.objects.Open(w); !reason.Is(err, reason.ObjectComing) {
		t.Errorf("%v", err)
	}
}

// Run waits for news, and ends with its context.
func TestRun(t *testing.T) {
	s := newScene(t)
	data := []byte("what is wanted")
	s.serve(func(w http.ResponseWriter, r *http.Request) { give(w, r, data, len(data)) })
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { s.fetcher.Run(ctx) })
	w := s.want(data)
	for deadline := time.Now().Add(30 * time.Second); !s.objects.Has(w.Digest); {
		if time.Now().After(deadline) {
			t.Fatal("it did not come within 30 s")
		}
		<-time.After(time.Millisecond)
	}
	cancel()
	run.Wait()
}
