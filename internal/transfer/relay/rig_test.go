package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// origin is what stands behind a server: all of its parts.
type origin struct {
	cluster trust.ClusterID
	ca      *trust.CA
	root    *trust.SigningKey
	signing *trust.SigningKey
	chain   *trust.Chain

	mu      sync.Mutex // guards all below
	nodes   map[string]*node
	lists   map[catalog.Digest][]byte
	layers  map[catalog.Digest]server.Layer
	latest  map[string]catalog.Digest // roots of layers that there are now, by ID
	version uint64
	relays  map[string]bool // UIDs of those that were removed
	reports map[string]*wire.Report
	open    map[uint64]string // watches, and through which relay
	lost    int
	asked   int
	joins   int
	spoils  func(digest catalog.Digest, body []byte) []byte // what is served of a body
	objects map[string][]byte
	window  time.Duration // over which hosts fetch what is published
}

type node struct {
	id      server.Identity
	own     catalog.Digest
	head    []byte
	changed chan struct{}
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	now := time.Now()
	o := &origin{
		cluster: trust.NewClusterID(), root: trust.NewSigningKey(), signing: trust.NewSigningKey(), nodes: map[string]*node{}, lists: map[catalog.Digest][]byte{},
		layers: map[catalog.Digest]server.Layer{}, latest: map[string]catalog.Digest{}, relays: map[string]bool{}, reports: map[string]*wire.Report{}, open: map[uint64]string{},
		objects: map[string][]byte{},
	}
	var err error
	if o.ca, err = trust.NewCA(o.cluster, now.Add(-90*24*time.Hour)); err == nil {
		o.chain, err = trust.NewChain(trust.Genesis{Cluster: o.cluster, CA: o.ca, Root: o.root, Heads: o.signing.Public()}, now, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *origin) with(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// layer makes a layer of bodies, and has it known. It returns its root.
func (o *origin) layer(bodies ...string) catalog.Digest {
	var rows []catalog.Row
	all := map[catalog.Digest][]byte{}
	for i, b := range bodies {
		d := catalog.Digest(sha256.Sum256([]byte(b)))
		all[d] = []byte(b)
		rows = append(rows, catalog.Row{Key: catalog.KeyOf(fmt.Sprint("claim ", i)), Digest: d})
	}
	trie := catalog.Build(rows)
	o.layers[trie.Root()] = server.Layer{Trie: trie, Body: func(d catalog.Digest) ([]byte, bool) {
		b, found := all[d]
		if found && o.spoils != nil {
			b = o.spoils(d, b)
		}
		return b, found
	}}
	return trie.Root()
}

const sharedLayer = "NodeConfig/default/web"

// publish makes another state of all nodes: what they share, and what each has of its own.
func (o *origin) publish(t testing.TB, bodies ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version++
	o.latest[sharedLayer] = o.layer(bodies...)
	for _, n := range o.nodes {
		o.sign(t, n)
	}
}

func (o *origin) sign(t testing.TB, n *node) {
	t.Helper()
	list, err := catalog.NewList(
		catalog.Layer{Priority: 1000, ID: sharedLayer, Root: o.latest[sharedLayer]}, catalog.Layer{Priority: 0, ID: wire.OwnLayer, Root: n.own},
	)
	var data []byte
	if err == nil {
		data, err = list.Encode()
	}
	if err != nil {
		t.Fatal(err)
	}
	root := catalog.ListRoot(data)
	o.lists[root] = data
	now := time.Now()
	signed, err := catalog.Head{
		Cluster: o.cluster, Node: n.id.Name, UID: n.id.UID, Epoch: 1, Version: o.version, Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: root}},
		Issued: now.Unix(), Expires: now.Add(24 * time.Hour).Unix(), MinProtocol: 1, Bytes: 64 << 20,
		Window: uint32(o.window / time.Second),
	}.Sign(o.signing)
	if err == nil {
		n.head, err = signed.Encode()
	}
	if err != nil {
		t.Fatal(err)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// resign signs the newest heads again. Nobody is told: they follow from the time.
func (o *origin) resign(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.nodes {
		_, h, err := catalog.DecodeHead(n.head)
		if err != nil {
			t.Fatal(err)
		}
		h.Issued, h.Expires = time.Now().Unix(), time.Now().Add(24*time.Hour).Unix()
		signed, err := h.Sign(o.signing)
		if err == nil {
			n.head, err = signed.Encode()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (o *origin) Head(who server.Identity) ([]byte, <-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.nodes[who.Name]
	if n == nil || n.id.UID != who.UID {
		return nil, nil, &reason.Error{Code: reason.ObjectUnknown, Doing: "find node " + who.Name}
	}
	return n.head, n.changed, nil
}

func (o *origin) Shown(context.Context, server.Identity, catalog.Mark) error { return nil }
func (o *origin) HeadKeys(time.Time) catalog.Keys                            { return catalog.Keys{o.signing.Public()} }

func (o *origin) List(root catalog.Digest) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, found := o.lists[root]
	return l, found
}

func (o *origin) Layer(_ string, root catalog.Digest) (server.Layer, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, found := o.layers[root]
	return l, found
}

func (o *origin) Join(_ context.Context, _ netip.Addr, r wire.JoinRequest) (wire.Credentials, error) {
	if r.Token == "" {
		return wire.Credentials{}, &reason.Error{Code: reason.TokenRefused, Doing: "join"}
	}
	o.with(func() { o.joins++ })
	return o.credentials(r.Name, r.Request, 0)
}

// credentials are those of a host, with a certificate of some age.
func (o *origin) credentials(name string, request []byte, age time.Duration) (wire.Credentials, error) {
	parsed, err := trust.ParseNodeRequest(request)
	if err != nil {
		return wire.Credentials{}, err
	}
	cert, err := o.ca.IssueNode(parsed, trust.NodeCertificate{Cluster: o.cluster, Name: name, UID: "uid-of-" + name}, time.Now().Add(-age))
	if err != nil {
		return wire.Credentials{}, err
	}
	documents, err := o.chain.Encode()
	return wire.Credentials{Protocol: wire.Protocol, Certificate: cert, Name: name, UID: "uid-of-" + name, Trust: documents}, err
}

func (o *origin) Renew(_ context.Context, who server.Identity, r wire.RenewRequest) (wire.Credentials, error) {
	if who.Relay {
		return o.relayCredentials(who.Name, r.Request)
	}
	return o.credentials(who.Name, r.Request, 0)
}

func (o *origin) relayCredentials(name string, request []byte) (wire.Credentials, error) {
	parsed, err := trust.ParseRelayRequest(request)
	if err != nil {
		return wire.Credentials{}, err
	}
	cert, err := o.ca.IssueRelay(parsed, trust.RelayCertificate{Cluster: o.cluster, Name: name, UID: "uid-of-" + name}, time.Now())
	if err != nil {
		return wire.Credentials{}, err
	}
	documents, err := o.chain.Encode()
	return wire.Credentials{Protocol: wire.Protocol, Certificate: cert, Name: name, UID: "uid-of-" + name, Trust: documents}, err
}

func (o *origin) Remains(who server.Identity) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.remainsLocked(who)
}

// Changes is part of server.Members: there may be some at any time.
func (o *origin) Changes() uint64 { return uint64(time.Now().UnixNano()) }

func (o *origin) remainsLocked(who server.Identity) error {
	if who.Relay && o.relays[who.UID] {
		return &reason.Error{Code: reason.IdentityGone, Doing: "identify relay " + who.Name}
	}
	if n := o.nodes[who.Name]; !who.Relay && (n == nil || n.id.UID != who.UID) {
		return &reason.Error{Code: reason.IdentityGone, Doing: "identify node " + who.Name}
	}
	return nil
}

func (o *origin) Identify(cert *x509.Certificate) (server.Identity, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if trust.IsRelay(cert) {
		shown, err := trust.ParseRelay(cert)
		who := server.Identity{Name: shown.Name, UID: shown.UID, Key: shown.Key, Relay: true}
		if err == nil {
			err = o.remainsLocked(who)
		}
		return who, err
	}
	shown, err := trust.ParseNode(cert)
	if err != nil {
		return server.Identity{}, err
	}
	who := server.Identity{Name: shown.Name, UID: shown.UID, Key: shown.Key}
	return who, o.remainsLocked(who)
}

func (o *origin) Trust(after uint64) ([]byte, uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	later := o.chain.After(after)
	if len(later) == 0 {
		return nil, o.chain.Current().Number, nil
	}
	documents, err := trust.EncodeDocuments(later)
	return documents, o.chain.Current().Number, err
}

func (o *origin) Opened(who server.Identity, conn uint64) {
	o.with(func() { o.open[conn] = who.Through })
}
func (o *origin) Asked(server.Identity, uint64) { o.with(func() { o.asked++ }) }
func (o *origin) Refused(server.Refusal)        {}

func (o *origin) Closed(_ server.Identity, conn uint64, dead bool) {
	o.with(func() {
		if delete(o.open, conn); dead {
			o.lost++
		}
	})
}

func (o *origin) Heard(who server.Identity, _ uint64, r *wire.Report) wire.StatusReply {
	o.with(func() { o.reports[who.Name] = r })
	return wire.StatusReply{Echo: r.Echo}
}

// scene is servers, relays and hosts in a bubble of their own time.
type scene struct {
	*network
	*origin
	t       *testing.T
	servers map[string]*running
	log     bytes.Buffer
	logging sync.Mutex
	hosts   []*host
	relayed []*relaying
	tune    func(*host, *client.Options) // of hosts that begin to run; nil: nothing
	fresh   bool                         // certificates of hosts are new
}

// running is a server that runs.
type running struct {
	server  *server.Server
	metrics *prometheus.Registry
	stop    func()
}

// relaying is a relay that runs.
type relaying struct {
	*Relay
	address string
	metrics *prometheus.Registry
	state   string
	stop    func()
	die     func() // as by SIGKILL: all connections end, and nothing is said
}

// Write makes the log of all a writer.
func (s *scene) Write(p []byte) (int, error) {
	s.logging.Lock()
	defer s.logging.Unlock()
	return s.log.Write(p)
}

func (s *scene) logger(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(s, nil)).With("who", who)
}

// play runs a test in a bubble.
func play(t *testing.T, test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * 24 * time.Hour) // a bubble begins with the first second that a certificate may have
		s := &scene{network: &network{listeners: map[string]*listener{}}, origin: newOrigin(t), t: t, servers: map[string]*running{}}
		defer s.end()
		test(s)
	})
}

// end stops all that runs, whatever has become of the test.
func (s *scene) end() {
	for _, h := range s.hosts {
		h.stop()
	}
	for _, r := range s.relayed {
		r.stop()
	}
	for _, r := range s.servers {
		r.stop()
	}
	if s.t.Failed() {
		s.t.Logf("log:\n%s", s.log.String())
	}
}

// stopper runs something until stop is called, which waits for its end.
func stopper(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}

// serve starts a server at an address. The change may set what is not as in every test.
func (s *scene) serve(address string, change func(*server.Options)) *running {
	s.t.Helper()
	credential, err := s.ca.IssueServer(trust.ServerRequest{DNSNames: []string{"localhost"}}, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	certificate := credential.TLS()
	r := &running{metrics: prometheus.NewRegistry()}
	opts := server.Options{
		Cluster: s.cluster, Catalogs: s.origin, Members: s.origin, Presence: s.origin, Audit: s.origin, Metrics: r.metrics, Log: s.logger(address),
		Certificate: func() (*tls.Certificate, error) { return &certificate, nil }, Authorities: func() *x509.CertPool { return s.ca.Pool() },
	}
	if change != nil {
		change(&opts)
	}
	if r.server, err = server.New(opts); err != nil {
		s.t.Fatal(err)
	}
	l := s.listen(address)
	stop := stopper(s.t, func(ctx context.Context) error { return r.server.Run(ctx, l) })
	r.stop = func() {
		s.cut(address)
		stop()
	}
	s.servers[address] = r
	return r
}

// relay starts a relay at an address, for servers. Its state is that of an earlier one where that is given.
func (s *scene) relay(address, state string, change func(*Options), servers ...string) *relaying {
	s.t.Helper()
	r := &relaying{address: address, metrics: prometheus.NewRegistry(), state: state}
	var id *Identity
	var err error
	if state == "" {
		r.state = s.t.TempDir()
		key, prepareErr := Prepare(r.state)
		if prepareErr != nil {
			s.t.Fatal(prepareErr)
		}
		request, requestErr := trust.RelayRequest(key)
		c, issueErr := s.relayCredentials(address[:len(address)-len(":6444")], request)
		if err := errors.Join(requestErr, issueErr); err != nil {
			s.t.Fatal(err)
		}
		id, err = Join(r.state, key, &c, s.chain.Pin(), servers, time.Now())
	} else {
		id, err = LoadIdentity(state, time.Now())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	up := &wires{network: s.network}
	opts := Options{Identity: id, Servers: servers, CacheDir: r.state + "/cache", Metrics: r.metrics, Log: s.logger(address), Dial: up.dial, Random: rand.New(rand.NewPCG(1, 2))}
	if change != nil {
		change(&opts)
	}
	if r.Relay, err = New(opts); err != nil {
		s.t.Fatal(err)
	}
	l := s.listen(address)
	stop := stopper(s.t, func(ctx context.Context) error { return r.Run(ctx, l) })
	r.stop = func() {
		s.cut(address)
		stop()
	}
	r.die = func() {
		up.cut()
		s.cut(address)
	}
	s.relayed = append(s.relayed, r)
	return r
}

// host is a host with its agent's end of the transfer.
type host struct {
	scene   *scene
	name    string
	key     *trust.HostKey
	sealing *trust.SealingKey
	at      []string
	store   clienttest.Memory
	changed chan struct{}
	client  *client.Client
	stop    func()

	mu     sync.Mutex // guards what follows
	cert   tls.Certificate
	states []core.State
	handed []time.Time // when, one for each state
}

var (
	_ client.Host     = (*host)(nil)
	_ client.Identity = (*host)(nil)
)

// host makes a node with a host that finds servers or relays at some addresses, and runs it.
func (s *scene) host(name string, at ...string) *host {
	s.t.Helper()
	s.node(name)
	h := &host{scene: s, name: name, key: trust.NewHostKey(), sealing: trust.NewSealingKey(), at: at, changed: make(chan struct{}, 1)}
	request, err := h.Request()
	if err == nil {
		var c wire.Credentials
		age := certificateAge
		if s.fresh {
			age = 0
		}
		if c, err = s.credentials(name, request, age); err == nil {
			h.cert, err = h.key.TLS(c.Certificate)
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	h.run()
	s.hosts = append(s.hosts, h)
	return h
}

// certificateAge is how old certificates of hosts are: some hours before they are renewed.
const certificateAge = trust.NodeLifetime/3*2 - 2*time.Hour

// node makes a node, with a layer of its own.
func (s *scene) node(name string) {
	s.with(func() {
		n := &node{id: server.Identity{Name: name, UID: "uid-of-" + name}, own: s.layer("own of " + name), changed: make(chan struct{})}
		s.nodes[name] = n
		if s.version > 0 {
			s.sign(s.t, n)
		}
	})
}

func (h *host) run() {
	h.scene.t.Helper()
	opts := client.Options{
		Store: &h.store, Host: h, Identity: h, Session: wire.Session{ID: h.name, Start: 1}, Dial: h.scene.dial, Log: h.scene.logger(h.name),
		Random: rand.New(rand.NewPCG(uint64(len(h.scene.hosts)), 7)),
	}
	if h.scene.tune != nil {
		h.scene.tune(h, &opts)
	}
	c, err := client.New(opts)
	h.client = c
	if err != nil {
		h.scene.t.Fatal(err)
	}
	h.stop = stopper(h.scene.t, c.Run)
}

func (h *host) Node() catalog.Node {
	return catalog.Node{Cluster: h.scene.cluster, Name: h.name, UID: "uid-of-" + h.name}
}
func (h *host) Servers() []string { return h.at }

func (h *host) Certificate() (*tls.Certificate, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cert := h.cert
	return &cert, nil
}

func (h *host) Trust() *trust.Chain       { return h.scene.chain }
func (h *host) Extend(*trust.Chain) error { return nil }
func (h *host) Request() ([]byte, error)  { return trust.NodeRequest(h.key, h.sealing.Public()) }
func (h *host) Changed() <-chan struct{}  { return h.changed }
func (h *host) Renewed(certificate []byte) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cert, err = h.key.TLS(certificate)
	return err
}

func (h *host) Activate(_ context.Context, s core.State) (wire.Verdict, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states, h.handed = append(h.states, s), append(h.handed, time.Now())
	select {
	case h.changed <- struct{}{}:
	default:
	}
	return wire.Verdict{Type: wire.Applied}, nil
}

func (h *host) Report() wire.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := wire.Report{Host: &wire.Host{Version: "test"}, Exchange: wire.Exchange{Echo: uint64(time.Now().UnixNano())}} // of the bubble
	if n := len(h.states); n > 0 {
		m := h.states[n-1].Mark
		r.Enforced, r.Verdict = m, wire.Verdict{Type: wire.Applied, Epoch: m.Epoch, Version: m.Version, Root: m.Root}
	}
	return r
}

func (h *host) Answer(_ context.Context, q wire.Question, w io.Writer) error {
	if q.What == wire.AskLogs {
		return &reason.Error{Code: reason.ResourceUnknown, Doing: "read the log of " + q.Subject}
	}
	_, err := io.WriteString(w, h.name+" about "+q.What)
	return err
}

// versions are those that the host was handed.
func (h *host) versions() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []uint64
	for _, s := range h.states {
		all = append(all, s.Mark.Version)
	}
	return all
}

// came counts the hosts that were handed the newest version since a moment, by quarters of a time; what came later counts as of the last one.
func (s *scene) came(since time.Time, within time.Duration) (n [4]int) {
	for _, h := range s.hosts {
		h.mu.Lock()
		after := h.handed[len(h.handed)-1].Sub(since)
		h.mu.Unlock()
		n[min(int(4*after/within), 3)]++
	}
	return n
}

// at says whether the last version that a host was handed is that one.
func (h *host) isAt(version uint64) bool {
	all := h.versions()
	return len(all) > 0 && all[len(all)-1] == version
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// eventually lets time go by until something is so, at most that long.
func (s *scene) eventually(most time.Duration, what string, so func() bool) {
	s.t.Helper()
	for end := time.Now().Add(most); !so(); pass(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not so after %s: %s\nlog:\n%s", most, what, s.log.String())
		}
	}
}

// all waits until all hosts have been handed a version.
func (s *scene) all(most time.Duration, version uint64) {
	s.t.Helper()
	s.eventually(most, fmt.Sprintf("all hosts are at version %d", version), func() bool {
		return !slices.ContainsFunc(s.hosts, func(h *host) bool { return !h.isAt(version) })
	})
}

// counted sums a metric, over all labels or those with a value.
func counted(t testing.TB, from *prometheus.Registry, name string, values ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			matches := len(values) == 0
			for _, l := range m.GetLabel() {
				matches = matches || slices.Contains(values, l.GetValue())
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// report is what the servers have heard of a host last.
func (s *scene) report(name string) (r wire.Report) {
	s.with(func() {
		if s.reports[name] != nil {
			r = *s.reports[name]
		}
	})
	return r
}

// watches is how many watches servers have open through a relay.
func (s *scene) watches(through string) (n int) {
	s.with(func() {
		for _, t := range s.open {
			if t == through {
				n++
			}
		}
	})
	return n
}

// credential is a client.Credential of a test.
type credential struct {
	cert  *tls.Certificate
	chain *trust.Chain
}

func (c credential) Certificate() (*tls.Certificate, error) { return c.cert, nil }
func (c credential) Trust() *trust.Chain                    { return c.chain }

// impostor is a host with the certificate of somebody else.
type impostor struct {
	*host
	as credential
}

func (i impostor) Certificate() (*tls.Certificate, error) { return i.as.cert, nil }

func mustCert(t testing.TB, h *host) *tls.Certificate {
	t.Helper()
	cert, err := h.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
