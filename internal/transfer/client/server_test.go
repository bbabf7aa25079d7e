package client_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// server is a server of the transfer for one host.
type server struct {
	t       *testing.T
	cluster *cluster
	dials   chan net.Conn
	closed  chan struct{}
	closing sync.Once

	mu    sync.Mutex // guards what follows
	certs tls.Certificate
	conns []*lossy
	content
	behaviour
	seen
}

// content is what the host is to have.
type content struct {
	head    []byte
	list    []byte
	trie    catalog.Trie
	bodies  map[catalog.Digest][]byte
	changed chan struct{} // closed with each new head
}

// behaviour is how the server treats the host.
type behaviour struct {
	usageEvery uint32            // of its answers to reports
	silence    uint32            // the same, in seconds
	refusal    *reason.Error     // of reports
	again      bool              // watches end with a hint when there is a new head
	hasty      bool              // watches end with a hint at once
	cut        bool              // watches end without one
	deaf       bool              // reports are lost
	along      func() []byte     // the list that goes with a head; nil: none does
	mute       bool              // watches that are opened now are silent for ever
	frozen     map[string][]byte // the head that is repeated, by the address that was called
	refuse     *reason.Error     // of watches
	ask        *wire.Question    // to be asked with the next head
	others     []string          // servers that watches tell of
	garble     map[string][]byte // what is answered instead, by the path of the call
}

// seen is what the host has done.
type seen struct {
	reports []wire.Report
	calls   map[string]int
	answers map[string]string // by the query of the call
	joins   []wire.JoinRequest
	expired int            // calls with an expired certificate
	serials map[string]int // calls other than for trust, by the serial number of the certificate
}

const layerID = "NodeConfig/default/web"

func newServer(t *testing.T, c *cluster) *server {
	t.Helper()
	credential, err := c.ca.IssueServer(trust.ServerRequest{DNSNames: []string{"localhost"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &server{
		t: t, cluster: c, certs: credential.TLS(), dials: make(chan net.Conn), closed: make(chan struct{}),
		content: content{bodies: map[catalog.Digest][]byte{}, changed: make(chan struct{})}, seen: seen{calls: map[string]int{}, answers: map[string]string{}, serials: map[string]int{}},
	}
}

// Accept, Close and Addr make a listener of it.
func (s *server) Accept() (net.Conn, error) {
	select {
	case c := <-s.dials:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}
func (s *server) Close() error   { s.closing.Do(func() { close(s.closed) }); return nil }
func (s *server) Addr() net.Addr { return &net.TCPAddr{} }

func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	c := &lossy{Conn: far}
	select {
	case s.dials <- c:
		s.set(func() { s.conns = append(s.conns, c) })
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lossy is a connection that may lose what is written to it, or in both directions, and stays open.
type lossy struct {
	net.Conn
	lost, both atomic.Bool
}

// Read reads what is not lost.
func (l *lossy) Read(p []byte) (int, error) {
	for {
		n, err := l.Conn.Read(p)
		if err != nil || !l.both.Load() {
			return n, err
		}
	}
}

func (l *lossy) Write(p []byte) (int, error) {
	if l.lost.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

// swallow makes the connections that are open lose what the server writes.
func (s *server) swallow() {
	s.set(func() {
		for _, c := range s.conns {
			c.lost.Store(true)
		}
	})
}

// cutOff makes the connections that are open lose everything.
func (s *server) cutOff() {
	s.swallow()
	s.set(func() {
		for _, c := range s.conns {
			c.both.Store(true)
		}
	})
}

func (s *server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cert := s.certs
	return &cert, nil
}

// run serves until ctx ends.
func (s *server) run(ctx context.Context) {
	h := &http.Server{Handler: s, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, GetCertificate: s.certificate}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	var all sync.WaitGroup
	all.Go(func() { _ = h.ServeTLS(s, "", "") })
	<-ctx.Done()
	_ = h.Close()
	all.Wait()
}

func (s *server) publish(version uint64, bodies ...string) {
	s.t.Helper()
	var rows []catalog.Row
	all := map[catalog.Digest][]byte{}
	for i, b := range bodies {
		d := catalog.Digest(sha256.Sum256([]byte(b)))
		all[d] = []byte(b)
		rows = append(rows, catalog.Row{Key: catalog.KeyOf(fmt.Sprint("claim", i)), Digest: d})
	}
	trie := catalog.Build(rows)
	l, err := catalog.NewList(catalog.Layer{Priority: 1000, ID: layerID, Root: trie.Root()})
	if err != nil {
		s.t.Fatal(err)
	}
	list, err := l.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	now := time.Now()
	signed, err := catalog.Head{
		Cluster: s.cluster.id, Node: "web-1", UID: "uid-1", Epoch: 1, Version: version, Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.ListRoot(list)}},
		Issued: now.Unix(), Expires: now.Add(24 * time.Hour).Unix(), MinProtocol: 1,
	}.Sign(s.cluster.heads)
	if err != nil {
		s.t.Fatal(err)
	}
	head, err := signed.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, s.list, s.trie, s.bodies = head, list, trie, all
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls[r.URL.Path]++
	if len(r.TLS.PeerCertificates) > 0 {
		cert := r.TLS.PeerCertificates[0]
		s.serials[cert.SerialNumber.String()]++
		if time.Now().After(cert.NotAfter) {
			s.expired++
		}
	}
	garbled := s.garble[r.URL.Path]
	s.mu.Unlock()
	if garbled != nil {
		_, _ = w.Write(garbled)
		return
	}
	var err error
	switch r.URL.Path {
	case wire.PathTrust:
		var text []byte
		if text, err = s.cluster.chain.Encode(); err == nil {
			_, err = w.Write(text)
		}
	case wire.PathJoin:
		err = s.join(w, r)
	case wire.PathRenew:
		err = s.renew(w, r)
	case wire.PathWatch:
		err = s.watch(w, r)
	case wire.PathSync:
		err = s.sync(w, r)
	case wire.PathNodes:
		err = s.nodes(w, r)
	case wire.PathStatus:
		err = s.status(w, r)
	case wire.PathAnswer:
		err = s.answer(r)
	}
	if e := new(reason.Error); errors.As(err, &e) {
		w.WriteHeader(e.Entry().HTTP)
		data, _ := wire.Encode(wire.Problem{Code: e.Code.String(), Message: e.Error(), Hint: e.Hint, RetryAfter: uint32(e.After / time.Millisecond)})
		_, _ = w.Write(data)
	}
}

func send(w http.ResponseWriter, message any) error {
	data, err := wire.Encode(message)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

func (s *server) join(w http.ResponseWriter, r *http.Request) error {
	var q wire.JoinRequest
	if err := wire.ReadAll(r.Body, wire.RequestMax, &q); err != nil {
		return err
	}
	s.mu.Lock()
	s.joins = append(s.joins, q)
	s.mu.Unlock()
	return s.credentials(w, q.Request, q.Name)
}

func (s *server) credentials(w http.ResponseWriter, request []byte, name string) error {
	der, err := s.cluster.issue(request, name)
	if err != nil {
		return err
	}
	text, err := s.cluster.chain.Encode()
	if err != nil {
		return err
	}
	return send(w, wire.Credentials{Protocol: wire.Protocol, Certificate: der, Name: name, UID: "uid-1", Trust: text})
}

func (s *server) renew(w http.ResponseWriter, r *http.Request) error {
	var q wire.RenewRequest
	if err := wire.ReadAll(r.Body, wire.RequestMax, &q); err != nil {
		return err
	}
	return s.credentials(w, q.Request, "web-1")
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) error {
	var q wire.WatchRequest
	if err := wire.ReadAll(r.Body, wire.RequestMax, &q); err != nil {
		return err
	}
	s.mu.Lock()
	s.reports = append(s.reports, q.Report)
	refuse, mute := s.refuse, s.mute
	s.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	if mute {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return nil
	}
	frame := func(f wire.Frame) {
		_ = wire.WriteFrame(w, f)
		w.(http.Flusher).Flush()
	}
	beat := time.NewTicker(45 * time.Second)
	defer beat.Stop()
	if n := s.cluster.chain.Current().Number; n > q.Report.Trust {
		frame(wire.Frame{Trust: n})
	}
	s.mu.Lock()
	others := s.others
	s.mu.Unlock()
	if len(others) > 0 {
		frame(wire.Frame{Servers: others})
	}
	for first := true; ; first = false {
		s.mu.Lock()
		head, changed, again, ask, cut, hasty := s.head, s.changed, s.again, s.ask, s.cut, s.hasty
		var along []byte
		if s.along != nil {
			along = s.along()
		}
		s.ask = nil
		if old, frozen := s.frozen[r.Host]; frozen {
			head = old
		}
		s.mu.Unlock()
		if cut && !first {
			return nil
		}
		if hasty {
			frame(wire.Frame{Again: new(uint32)})
			return nil
		}
		if again && !first {
			pause := uint32(3000)
			frame(wire.Frame{Again: &pause})
			return nil
		}
		if head != nil {
			frame(wire.Frame{Head: head, List: along})
		}
		if ask != nil {
			frame(wire.Frame{Question: ask})
		}
		select {
		case <-changed:
		case <-beat.C:
		case <-r.Context().Done():
			return nil
		}
	}
}

func (s *server) sync(w http.ResponseWriter, r *http.Request) error {
	var q wire.SyncRequest
	if err := wire.ReadAll(r.Body, wire.RequestMax, &q); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	part := wire.SyncPart{Kind: wire.SyncSnapshot}
	for c := range catalog.Difference(catalog.Trie{}, s.trie, q.Cursor) {
		part.Changes = append(part.Changes, wire.Change{Key: c.Key, Body: s.bodies[c.Digest]})
		if len(part.Changes) == 2 {
			if err := wire.WriteFrame(w, part); err != nil {
				return err
			}
			part.Changes = nil
		}
	}
	part.Last = true
	return wire.WriteFrame(w, part)
}

func (s *server) nodes(w http.ResponseWriter, r *http.Request) error {
	var q wire.NodesRequest
	if err := wire.ReadAll(r.Body, wire.RequestMax, &q); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := wire.NodesReply{Items: make([][]byte, len(q.Hashes))}
	if q.Layer == wire.CatalogLayer && q.Hashes[0] == catalog.ListRoot(s.list) {
		reply.Items[0] = s.list
	}
	return send(w, reply)
}

func (s *server) status(w http.ResponseWriter, r *http.Request) error {
	var q wire.Report
	if err := wire.ReadAll(r.Body, wire.RequestMax, &q); err != nil {
		return err
	}
	var reply wire.StatusReply
	var refusal error
	s.set(func() {
		if s.refusal != nil {
			refusal = s.refusal
		} else if !s.deaf {
			s.reports = append(s.reports, q)
		}
		reply.UsageEvery, reply.RetryAfter = s.usageEvery, s.silence
	})
	if refusal != nil {
		return refusal
	}
	return send(w, reply)
}

func (s *server) answer(r *http.Request) error {
	data, err := io.ReadAll(r.Body)
	s.mu.Lock()
	s.answers[r.URL.RawQuery] = string(data)
	s.mu.Unlock()
	return err
}

// set changes what the server does.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[path]
}

func (s *server) last() wire.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reports) == 0 {
		return wire.Report{}
	}
	return s.reports[len(s.reports)-1]
}
