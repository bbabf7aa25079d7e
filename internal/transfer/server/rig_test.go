package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// authority issues the certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert = a.issue(t, a.key, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
	})
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) issue(t testing.TB, key *ecdsa.PrivateKey, template *x509.Certificate) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// client makes a certificate for a host, valid around now but for the time that it is late.
func (a *authority) client(t testing.TB, name string, late time.Duration, usage x509.ExtKeyUsage) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	cert := a.issue(t, key, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour - late), NotAfter: time.Now().Add(time.Hour - late),
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// world is what stands behind the server in a test: it has all of its parts.
type world struct {
	mu       sync.Mutex // guards all below
	nodes    map[string]*node
	lists    map[catalog.Digest][]byte
	layers   map[string]map[catalog.Digest]Layer
	bodies   sync.Map // of all layers, by digest: a layer may know bodies that are not in its trie
	keys     catalog.Keys
	highest  uint64 // number of trust documents
	shown    error
	heard    []string // what Presence was told, in order
	reports  []*wire.Report
	refusals []Refusal
	changed  chan struct{} // something above
	changes  uint64        // of that
}

// node is one of a world.
type node struct {
	id      Identity
	gone    bool // it was deleted
	head    []byte
	changed chan struct{}
}

func newWorld() *world {
	return &world{nodes: map[string]*node{}, lists: map[catalog.Digest][]byte{}, layers: map[string]map[catalog.Digest]Layer{}, changed: make(chan struct{})}
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.changes++
	close(w.changed)
	w.changed = make(chan struct{})
}

// wait waits until something is so.
func (w *world) wait(t testing.TB, what string, so func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		w.mu.Lock()
		done, changed := so(), w.changed
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-late:
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Fatalf("not so within a minute: %s; heard %v, refusals %+v", what, w.heard, w.refusals)
		}
	}
}

// add makes a node.
func (w *world) add(name string) Identity {
	id := Identity{Name: name, UID: "uid-of-" + name}
	w.change(func() { w.nodes[name] = &node{id: id, changed: make(chan struct{})} })
	return id
}

// give sets the head of a node, and wakes its watches.
func (w *world) give(name string, head []byte) {
	w.change(func() {
		n := w.nodes[name]
		n.head = head
		close(n.changed)
		n.changed = make(chan struct{})
	})
}

func (w *world) remove(name string) {
	w.change(func() {
		close(w.nodes[name].changed)
		delete(w.nodes, name)
	})
}

func gone(name string) error {
	return &reason.Error{Code: reason.ObjectUnknown, Doing: "find node " + name}
}

func (w *world) Head(id Identity) ([]byte, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[id.Name]
	if n == nil {
		return nil, nil, gone(id.Name)
	}
	return n.head, n.changed, nil
}

func (w *world) Shown(context.Context, Identity, catalog.Mark) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shown
}

func (w *world) HeadKeys(time.Time) catalog.Keys {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys
}

func (w *world) List(root catalog.Digest) ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, found := w.lists[root]
	return l, found
}

func (w *world) Layer(id string, root catalog.Digest) (Layer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, found := w.layers[id][root]
	return l, found
}

func (w *world) Join(_ context.Context, from netip.Addr, r wire.JoinRequest) (wire.Credentials, error) {
	if r.Token != "good" {
		return wire.Credentials{}, &reason.Error{Code: reason.TokenRefused, Doing: "join from " + from.String()}
	}
	return wire.Credentials{Protocol: wire.Protocol, Name: r.Name}, nil
}

func (w *world) Renew(_ context.Context, who Identity, _ wire.RenewRequest) (wire.Credentials, error) {
	if who.Name == "swapped" {
		return wire.Credentials{}, &reason.Error{Code: reason.JoinRequestInvalid, Doing: "renew the certificate of node " + who.Name}
	}
	return wire.Credentials{Protocol: wire.Protocol, Name: who.Name, UID: who.UID}, nil
}

func (w *world) Identify(cert *x509.Certificate) (Identity, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := cert.Subject.CommonName; strings.HasPrefix(name, "server-") {
		return Identity{Name: name, UID: name, Relay: true, Server: name}, nil
	}
	if strings.HasPrefix(cert.Subject.CommonName, "relay-") {
		return Identity{Name: cert.Subject.CommonName, UID: "uid-of-" + cert.Subject.CommonName, Relay: true}, nil
	}
	n := w.nodes[cert.Subject.CommonName]
	if n == nil {
		return Identity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "recognize a host", Cause: errors.New("there is no such node")}
	}
	if n.gone {
		return n.id, &reason.Error{Code: reason.IdentityGone, Doing: "recognize a host"}
	}
	return n.id, nil
}

func (w *world) Remains(who Identity) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[who.Name]; !who.Relay && (n == nil || n.gone) {
		return &reason.Error{Code: reason.IdentityGone, Doing: "recognize a host"}
	}
	return nil
}

// Changes is part of Members: after whatever happens there may be some.
func (w *world) Changes() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes
}

func (w *world) Trust(after uint64) ([]byte, uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if after >= w.highest {
		return nil, w.highest, nil
	}
	return fmt.Appendf(nil, "documents after %d", after), w.highest, nil
}

func (w *world) say(format string, args ...any) {
	w.change(func() { w.heard = append(w.heard, fmt.Sprintf(format, args...)) })
}

func (w *world) Opened(who Identity, conn uint64) { w.say("opened %s %d", who.Name, conn) }
func (w *world) Asked(who Identity, conn uint64)  { w.say("asked %s %d", who.Name, conn) }
func (w *world) Closed(who Identity, conn uint64, dead bool) {
	w.say("closed %s %d %t", who.Name, conn, dead)
}

func (w *world) Heard(who Identity, conn uint64, r *wire.Report) wire.StatusReply {
	w.change(func() { w.reports = append(w.reports, r) })
	w.say("heard %s %d %d", who.Name, conn, r.Number)
	return wire.StatusReply{RetryAfter: uint32(r.Number), Echo: r.Echo}
}

func (w *world) Refused(r Refusal) { w.change(func() { w.refusals = append(w.refusals, r) }) }

// rig is a server on a real socket.
type rig struct {
	*world
	t       testing.TB
	server  *Server
	cluster trust.ClusterID
	key     *trust.SigningKey
	ca      *authority
	addr    string
	stop    func() // and wait until it has ended
}

// quick are times that a test can wait for.
func quick() Times {
	hour := Between{time.Hour, time.Hour}
	return Times{Heartbeat: hour, Watch: hour, Again: Between{0, time.Millisecond}, Sweep: 20 * time.Millisecond}
}

// newRig starts a server. The change may set what is not as in every test.
func newRig(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	r := &rig{world: newWorld(), t: t, cluster: trust.NewClusterID(), key: trust.NewSigningKey(), ca: newAuthority(t)}
	r.keys = catalog.Keys{r.key.Public()}
	key := newKey(t)
	own := r.ca.issue(t, key, &x509.Certificate{
		DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	certificate := &tls.Certificate{Certificate: [][]byte{own.Raw}, PrivateKey: key, Leaf: own}
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.cert)
	opts := Options{
		Cluster: r.cluster, Catalogs: r.world, Members: r.world, Presence: r.world, Audit: r.world, Times: quick(),
		Certificate: func() (*tls.Certificate, error) { return certificate, nil }, Authorities: func() *x509.CertPool { return pool },
	}
	if change != nil {
		change(&opts)
	}
	var err error
	if r.server, err = New(opts); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Run(ctx, l) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// host is a client with its own connection.
type host struct {
	*http.Client
	rig *rig
}

func (r *rig) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.cert)
	return pool
}

// dial makes a client with a certificate, or none.
func (r *rig) dial(cert *tls.Certificate) *host {
	r.t.Helper()
	config := &tls.Config{RootCAs: r.pool(), ServerName: "localhost", MinVersion: tls.VersionTLS13}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: config, Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10}}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &host{&http.Client{Transport: transport}, r}
}

// as makes a client of a node that there is, or is to be.
func (r *rig) as(name string) *host {
	r.t.Helper()
	return r.dial(r.ca.client(r.t, name, 0, x509.ExtKeyUsageClientAuth))
}

func encode(t testing.TB, message any) []byte {
	t.Helper()
	data, err := wire.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// post sends bytes, and returns the answer with its body to be read.
func (h *host) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+h.rig.addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return h.Do(req)
}

// call sends a message and reads the answer into another. The result is the problem when there is one.
func (h *host) call(path string, message, into any) (int, *wire.Problem) {
	h.rig.t.Helper()
	return h.send(path, encode(h.rig.t, message), into)
}

func (h *host) send(path string, body []byte, into any) (int, *wire.Problem) {
	h.rig.t.Helper()
	resp, err := h.post(h.rig.t.Context(), path, body)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, problemOf(h.rig.t, resp)
	}
	if err := wire.ReadAll(resp.Body, wire.ReplyMax, into); err != nil {
		h.rig.t.Fatal(err)
	}
	return resp.StatusCode, nil
}

func problemOf(t testing.TB, resp *http.Response) *wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := wire.ReadAll(resp.Body, 16<<10, &p); err != nil {
		t.Fatalf("HTTP %d with something that is no problem: %v", resp.StatusCode, err)
	}
	return &p
}

// watching is a watch of a host.
type watching struct {
	t    testing.TB
	body io.ReadCloser
}

// watch opens one.
func (h *host) watch(ctx context.Context, r wire.Report) *watching {
	h.rig.t.Helper()
	resp, err := h.post(ctx, wire.PathWatch, encode(h.rig.t, wire.WatchRequest{Protocol: wire.Protocol, Report: r}))
	if err != nil {
		h.rig.t.Fatal(err)
	}
	h.rig.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		h.rig.t.Fatalf("a watch is refused: %+v", problemOf(h.rig.t, resp))
	}
	return &watching{h.rig.t, resp.Body}
}

func (w *watching) next() wire.Frame {
	w.t.Helper()
	var f wire.Frame
	if err := wire.ReadFrame(w.body, &f); err != nil {
		w.t.Fatalf("the watch has ended: %v", err)
	}
	return f
}

// head signs a head for a node.
func (r *rig) head(id Identity, version uint64, list catalog.List) []byte {
	r.t.Helper()
	return r.sign(catalog.Head{Node: id.Name, UID: id.UID, Version: version}, list, r.key)
}

// sign signs a head of a list, and has the list known.
func (r *rig) sign(h catalog.Head, list catalog.List, key *trust.SigningKey) []byte {
	r.t.Helper()
	data, err := list.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	root := catalog.ListRoot(data)
	r.change(func() { r.lists[root] = data })
	h.Roots = []catalog.FormatRoot{{Format: catalog.FormatV1, Root: root}}
	h.Epoch, h.Issued, h.Expires = 1, 1000, 2000 // long ago: that does not matter here
	if h.Cluster == "" {
		h.Cluster = r.cluster
	}
	signed, err := h.Sign(key)
	if err != nil {
		r.t.Fatal(err)
	}
	encoded, err := signed.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	return encoded
}

// layer makes a layer of so many entries, of which the first ones have a body of another time, and has it known.
func (r *rig) layer(id string, entries, changed, size int) catalog.Trie {
	rows := make([]catalog.Row, entries)
	for i := range entries {
		text := fmt.Appendf(nil, "%s %d %t ", id, i, i < changed)
		body := append(text, make([]byte, max(0, size-len(text)))...)
		_, _ = mathrand.NewChaCha8(sha256.Sum256(text)).Read(body[len(text):]) // never fails; what repeats itself would be packed
		rows[i] = catalog.Row{Key: catalog.KeyOf(fmt.Sprint("claim ", i)), Digest: sha256.Sum256(body)}
		r.bodies.Store(rows[i].Digest, body)
	}
	trie := catalog.Build(rows)
	r.change(func() {
		if r.layers[id] == nil {
			r.layers[id] = map[catalog.Digest]Layer{}
		}
		r.layers[id][trie.Root()] = Layer{Trie: trie, Body: r.body}
	})
	return trie
}

func (w *world) body(digest catalog.Digest) ([]byte, bool) {
	b, found := w.bodies.Load(digest)
	if !found {
		return nil, false
	}
	return b.([]byte), true
}

func listOf(t testing.TB, layers ...catalog.Layer) catalog.List {
	t.Helper()
	l, err := catalog.NewList(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noLeak fails when there are more goroutines at the end of the test than now.
func noLeak(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		late := time.After(time.Minute)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for runtime.NumGoroutine() > before {
			select {
			case <-tick.C:
			case <-late:
				stacks := make([]byte, 64<<10)
				t.Fatalf("%d goroutines before, %d now:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}
