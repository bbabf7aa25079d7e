package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// cluster is who signs and issues.
type cluster struct {
	id    trust.ClusterID
	ca    *trust.CA
	root  *trust.SigningKey
	heads *trust.SigningKey
	chain *trust.Chain
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	now := time.Now()
	c := &cluster{id: trust.NewClusterID(), root: trust.NewSigningKey(), heads: trust.NewSigningKey()}
	var err error
	if c.ca, err = trust.NewCA(c.id, now); err == nil {
		c.chain, err = trust.NewChain(trust.Genesis{Cluster: c.id, CA: c.ca, Root: c.root, Heads: c.heads.Public()}, now, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// identity is a client.Identity in memory.
type identity struct {
	cluster *cluster
	host    *trust.HostKey
	sealing *trust.SealingKey
	servers []string // empty: one

	mu      sync.Mutex // guards what follows
	cert    tls.Certificate
	chain   *trust.Chain
	renewed int
}

func (c *cluster) newIdentity(t *testing.T) *identity {
	t.Helper()
	id := &identity{cluster: c, host: trust.NewHostKey(), sealing: trust.NewSealingKey(), chain: c.chain}
	request, err := trust.NodeRequest(id.host, id.sealing.Public())
	if err != nil {
		t.Fatal(err)
	}
	der, err := c.issue(request, "web-1")
	if err == nil {
		id.cert, err = id.host.TLS(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (c *cluster) issue(request []byte, name string) ([]byte, error) {
	r, err := trust.ParseNodeRequest(request)
	if err != nil {
		return nil, err
	}
	return c.ca.IssueNode(r, trust.NodeCertificate{Cluster: c.id, Name: name, UID: "uid-1"}, time.Now())
}

func (id *identity) Node() catalog.Node {
	return catalog.Node{Cluster: id.cluster.id, Name: "web-1", UID: "uid-1"}
}

func (id *identity) Servers() []string {
	id.mu.Lock()
	defer id.mu.Unlock()
	if len(id.servers) > 0 {
		return id.servers
	}
	return []string{"tako.test:6444"}
}

// Learn is part of client.Learner.
func (id *identity) Learn(addresses []string) (changed bool, err error) {
	before := id.Servers()
	id.mu.Lock()
	defer id.mu.Unlock()
	id.servers = before
	for _, address := range addresses {
		if !slices.Contains(before, address) {
			id.servers, changed = append(slices.Clip(id.servers), address), true
		}
	}
	return changed, nil
}

func (id *identity) Certificate() (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	cert := id.cert // a handshake reads it while another one is put in its place
	return &cert, nil
}

func (id *identity) Trust() *trust.Chain {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.chain
}

func (id *identity) Extend(longer *trust.Chain) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.chain = longer
	return nil
}

func (id *identity) Request() ([]byte, error) { return trust.NodeRequest(id.host, id.sealing.Public()) }

func (id *identity) Renewed(certificate []byte) error {
	cert, err := id.host.TLS(certificate)
	if err != nil {
		return err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.cert = cert
	id.renewed++
	return nil
}

// host is a client.Host that takes what it is given.
type host struct {
	changed    chan struct{}
	problems   []wire.Resource
	configs    []wire.ConfigReport
	facts      map[string]string
	disks      []wire.Disk
	interfaces []wire.Interface
	answer     func(ctx context.Context, q wire.Question, w io.Writer) error
	takes      time.Duration // to say that a state was taken, which it has reached by then

	mu     sync.Mutex // guards what follows
	states []core.State
	enforced
}

type enforced struct{ mark catalog.Mark }

func newHost() *host { return &host{changed: make(chan struct{}, 1)} }

func (h *host) Activate(_ context.Context, s core.State) (wire.Verdict, error) {
	defer func() { <-time.After(h.takes) }()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, s)
	h.mark = s.Mark
	select {
	case h.changed <- struct{}{}:
	default:
	}
	return wire.Verdict{Type: wire.Pending}, nil
}

func (h *host) Report() wire.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	return wire.Report{Enforced: h.mark, Verdict: wire.Verdict{Type: wire.Applied, Epoch: h.mark.Epoch, Version: h.mark.Version, Root: h.mark.Root}, Problems: h.problems, Configs: h.configs, Host: &wire.Host{Facts: h.facts, Disks: h.disks, Interfaces: h.interfaces}}
}

func (h *host) Changed() <-chan struct{} { return h.changed }

func (h *host) Answer(ctx context.Context, q wire.Question, w io.Writer) error {
	return h.answer(ctx, q, w)
}

func (h *host) versions() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []uint64
	for _, s := range h.states {
		all = append(all, s.Mark.Version)
	}
	return all
}

// scene is a host with a server, in a bubble of its own time.
type scene struct {
	*server
	t        *testing.T
	identity *identity
	host     *host
	store    client.Store
	log      bytes.Buffer
	links    client.Links
	dialing  client.Dial // nil: as the server is reached
	stop     context.CancelFunc
	ended    chan error
}

// play runs a test in a bubble.
func play(t *testing.T, test func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour) // a bubble begins with the first second that a certificate may have
		c := newCluster(t)
		s := &scene{t: t, server: newServer(t, c), identity: c.newIdentity(t), host: newHost(), store: &clienttest.Memory{}}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { s.run(ctx) })
		test(t, s)
		s.halt()
		cancel()
		all.Wait()
		if t.Failed() {
			t.Logf("log of the client:\n%s", s.log.String())
		}
	})
}

// start runs the client.
func (s *scene) start() {
	s.t.Helper()
	dial := s.dialing
	if dial == nil {
		dial = s.dial
	}
	c, err := client.New(client.Options{
		Store: s.store, Host: s.host, Identity: s.identity, Session: wire.Session{ID: "s", Start: 1}, Dial: dial, Spool: s.t.TempDir(), Links: &s.links,
		Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	s.stop, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- c.Run(ctx) }()
}

// halt stops the client.
func (s *scene) halt() {
	if s.stop == nil {
		return
	}
	s.stop()
	if err := <-s.ended; err != nil {
		s.t.Errorf("the client ends with %v", err)
	}
	s.stop = nil
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (s *scene) wantVersions(want ...uint64) {
	s.t.Helper()
	if got := s.host.versions(); !slices.Equal(got, want) {
		s.t.Errorf("the host was handed versions %v, want %v", got, want)
	}
}
