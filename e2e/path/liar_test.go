package path

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/state"
	"tako.dev/tako/internal/catalog"
	transferserver "tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// keys are those of the cluster, as whoever has its server's disk has them. The server must not run.
func (g *ground) keys() *trust.Keys {
	g.Helper()
	must := func(err error) {
		g.Helper()
		if err != nil {
			g.Fatal(err)
		}
	}
	dir, err := state.Open(g.Server.Dir)
	must(err)
	defer func() { must(dir.Close()) }()
	member, err := etcd.Start(g.Context(), etcd.Options{Dir: dir.Join("etcd")})
	must(err)
	defer member.Close()
	client, err := etcd.Connect(g.Context(), etcd.Connection{Endpoints: member.Endpoints()})
	must(err)
	defer client.Close()
	secret, _, err := state.MachineSecret(g.Context(), client.Client, dir)
	must(err)
	keys, err := state.ClusterKeys(g.Context(), client.Client, secret, time.Now())
	must(err)
	return keys
}

// liar is a server with a certificate of the cluster that says what it likes. It is the catalogs, members and presence of the real
// server of the transfer.
type liar struct {
	who  transferserver.Identity
	keys catalog.Keys

	mu      sync.Mutex // guards what follows
	head    []byte
	changed chan struct{}
	lists   map[catalog.Digest][]byte
	layers  map[catalog.Digest]transferserver.Layer
	reports []*wire.Report
	content int // how often content was asked for
}

// lie puts a liar in the place of the server, which must not run, for one host.
func (g *ground) lie(s *sandbox, keys *trust.Keys) (l *liar, stop func()) {
	g.Helper()
	identity, err := held.LoadIdentity(s.State(), time.Now())
	if err != nil {
		g.Fatal(err)
	}
	node := identity.Node()
	l = &liar{who: transferserver.Identity{Name: node.Name, UID: node.UID}, keys: catalog.Keys{keys.Heads().Public()}, changed: make(chan struct{}),
		lists: map[catalog.Digest][]byte{}, layers: map[catalog.Digest]transferserver.Layer{}}
	credential, err := keys.CA().IssueServer(trust.ServerRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, time.Now())
	if err != nil {
		g.Fatal(err)
	}
	certificate := credential.TLS()
	pool := x509.NewCertPool()
	pool.AddCert(keys.CA().Certificate())
	srv, err := transferserver.New(transferserver.Options{
		// A head that is repeated would be counted once more, while a test looks.
		Times:   transferserver.Times{Heartbeat: transferserver.Between{Min: 2 * time.Minute, Max: 2 * time.Minute}},
		Cluster: keys.Cluster(), Catalogs: l, Members: l, Presence: l, Audit: l,
		Certificate: func() (*tls.Certificate, error) { return &certificate, nil }, Authorities: func() *x509.CertPool { return pool },
	})
	if err != nil {
		g.Fatal(err)
	}
	listener, err := net.Listen("tcp", g.Transfer)
	if err != nil {
		g.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // it is ended below
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			g.Errorf("the lying server ended with %v", err)
		}
	})
	g.Cleanup(stop)
	return l, stop
}

// say makes it the newest head.
func (l *liar) say(head []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = head
	close(l.changed)
	l.changed = make(chan struct{})
}

// last is the last report.
func (l *liar) last() wire.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reports) == 0 {
		return wire.Report{}
	}
	return *l.reports[len(l.reports)-1]
}

func (l *liar) Head(transferserver.Identity) ([]byte, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head, l.changed, nil
}

func (l *liar) Shown(context.Context, transferserver.Identity, catalog.Mark) error { return nil }
func (l *liar) HeadKeys(time.Time) catalog.Keys                                    { return l.keys }

func (l *liar) List(root catalog.Digest) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.content++
	list, found := l.lists[root]
	return list, found
}

func (l *liar) Layer(_ string, root catalog.Digest) (transferserver.Layer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	layer, found := l.layers[root]
	return layer, found
}

func (l *liar) Join(context.Context, netip.Addr, wire.JoinRequest) (wire.Credentials, error) {
	return wire.Credentials{}, nil
}

func (l *liar) Renew(context.Context, transferserver.Identity, wire.RenewRequest) (wire.Credentials, error) {
	return wire.Credentials{}, nil
}
func (l *liar) Identify(*x509.Certificate) (transferserver.Identity, error) { return l.who, nil }
func (l *liar) Remains(transferserver.Identity) error                       { return nil }
func (l *liar) Changes() uint64                                             { return 0 }
func (l *liar) Trust(uint64) ([]byte, uint64, error)                        { return nil, 1, nil }
func (l *liar) Opened(transferserver.Identity, uint64)                      {}
func (l *liar) Closed(transferserver.Identity, uint64, bool)                {}
func (l *liar) Asked(transferserver.Identity, uint64)                       {}
func (l *liar) Refused(transferserver.Refusal)                              {}

func (l *liar) Heard(_ transferserver.Identity, _ uint64, r *wire.Report) wire.StatusReply {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
	return wire.StatusReply{}
}

// forget begins to count anew, and fetched is how often content was asked for since.
func (l *liar) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.content = 0
}

func (l *liar) fetched() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content
}

// content is a layer of resources as every server compiles it.
func content(g *ground, resources ...declare.Resource) (trie catalog.Trie, bodies map[catalog.Digest][]byte) {
	g.Helper()
	items, err := catalog.Compile(resources)
	if err != nil {
		g.Fatal(err)
	}
	bodies = map[catalog.Digest][]byte{}
	for i := range items {
		bodies[items[i].Row().Digest] = items[i].Body
	}
	return catalog.TrieOf(items), bodies
}

// serves has it serve a layer under a root, its own or another one's.
func (l *liar) serves(root catalog.Digest, trie catalog.Trie, body func(catalog.Digest) ([]byte, bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.layers[root] = transferserver.Layer{Trie: trie, Body: body}
}

func bodyOf(bodies map[catalog.Digest][]byte) func(catalog.Digest) ([]byte, bool) {
	return func(d catalog.Digest) ([]byte, bool) { b, found := bodies[d]; return b, found }
}

// impostor calls the server with the credentials of a host, as whoever is root there can.
type impostor struct {
	host   *sandbox
	client http.Client
}

func (s *sandbox) impostor() *impostor {
	s.ground.Helper()
	identity, err := held.LoadIdentity(s.State(), time.Now())
	if err != nil {
		s.ground.Fatal(err)
	}
	certificate, err := identity.Certificate()
	if err != nil {
		s.ground.Fatal(err)
	}
	// Whom it speaks to is nothing that it cares about.
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	s.ground.Cleanup(transport.CloseIdleConnections)
	return &impostor{s, http.Client{Transport: transport}}
}

// post sends a request and returns the answer, which must be good.
func (i *impostor) post(path string, message any) *http.Response {
	g := i.host.ground
	g.Helper()
	body, err := wire.Encode(message)
	if err != nil {
		g.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), inTime)
	g.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+g.Transfer+path, bytes.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	answer, err := i.client.Do(request)
	if err != nil {
		g.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		var p wire.Problem
		_ = wire.ReadAll(answer.Body, wire.RequestMax, &p) // what cannot be read is shown as it is
		g.Fatalf("%s: %s: %+v", path, answer.Status, p)
	}
	return answer
}

// signed is a state as the server gives it to a host: a signed head and its list.
type signed struct {
	bytes []byte
	head  catalog.Head
	list  []byte
	rows  catalog.List
}

// ahead is the next state as the server gives it to a host, which afterwards is as it was before that.
func (s *sandbox) ahead(text string) signed {
	g := s.ground
	g.Helper()
	copied := filepath.Join(g.Dir, "before")
	copyTree(g.T, s.Root, copied)
	s.Start()
	g.Apply(site(text))
	s.Has("etc/motd", text)
	s.converges()
	s.Stop()
	next := signed{bytes: s.kept().Head}
	var err error
	if _, next.head, err = catalog.DecodeHead(next.bytes); err != nil {
		g.Fatal(err)
	}
	root, _ := next.head.Root()
	answer := s.impostor().post(wire.PathNodes, wire.NodesRequest{Head: next.bytes, Layer: wire.CatalogLayer, Hashes: []catalog.Digest{root}})
	defer answer.Body.Close()
	var nodes wire.NodesReply
	if err := wire.ReadAll(answer.Body, wire.ReplyMax, &nodes); err != nil {
		g.Fatal(err)
	}
	next.list = nodes.Items[0]
	if next.rows, err = catalog.DecodeList(next.list); err != nil {
		g.Fatal(err)
	}
	if err = os.RemoveAll(s.Root); err == nil {
		err = os.Rename(copied, s.Root)
	}
	if err != nil {
		g.Fatal(err)
	}
	return next
}

// offers has it offer a state; its layers are served apart.
func (l *liar) offers(s signed) {
	root, _ := s.head.Root()
	l.mu.Lock()
	l.lists[root] = s.list
	l.mu.Unlock()
	l.say(s.bytes)
}

// etcdDir is where the server has its store.
func (g *ground) etcdDir() string { return filepath.Join(g.Server.Dir, "etcd") }
