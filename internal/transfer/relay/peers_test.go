package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/peer"
	peers "tako.dev/tako/internal/transfer/peer/core"
	"tako.dev/tako/internal/transfer/place"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// street is hosts that ask each other while there is no server.
type street struct {
	*scene
	operator *trust.SigningKey
	homes    map[string]*home
	names    []string    // in the order of the lists
	quiet    atomic.Bool // nobody asks anybody
}

// home is what one of them has beside its agent's end of the transfer.
type home struct {
	*host
	deposits *peer.Deposits
	server   *peer.Server
	links    client.Links
	line     *wires
	stop     func()
}

const peerPort = ":6445"

// playStreet runs a test with a server that leaves heads with hosts, and an operator.
func playStreet(t *testing.T, test func(s *street)) {
	t.Helper()
	play(t, func(s *scene) {
		x := &street{scene: s, operator: trust.NewSigningKey(), homes: map[string]*home{}}
		defer func() {
			for _, h := range x.homes {
				h.stop()
			}
		}()
		next, err := s.chain.Next(time.Now(), trust.SetKey(trust.RoleOperator, x.operator.Public(), time.Now().Add(365*24*time.Hour)))
		if err == nil {
			next, err = next.Sign(s.root)
		}
		if err == nil {
			s.chain, err = s.chain.Extend([]trust.Signed{next})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.tune, s.fresh = x.settle, true
		s.serve("server:6444", func(o *server.Options) { o.Entrusted = x.entrusted })
		test(x)
	})
}

// list is whom a host asks: all others, in order.
func (x *street) list(name string) (list []catalog.Peer) {
	for _, other := range x.names {
		if other != name {
			list = append(list, catalog.Peer{Name: other, UID: "uid-of-" + other, Address: other + peerPort})
		}
	}
	return list
}

// entrusted are those that have a host among the first three of their peers.
func (x *street) entrusted(holder server.Identity) (of []server.Identity) {
	for _, name := range x.names {
		list := x.list(name)
		if slices.ContainsFunc(list[:min(3, len(list))], func(p catalog.Peer) bool { return p.UID == holder.UID }) {
			of = append(of, server.Identity{Name: name, UID: "uid-of-" + name})
		}
	}
	return of
}

// settle gives a host that begins what it needs.
func (x *street) settle(h *host, o *client.Options) {
	m := &home{host: h, deposits: peer.NewDeposits(), line: &wires{network: x.network}}
	x.homes[h.name] = m
	o.Dial, o.Links = m.line.dial, &m.links
	o.Peers = func() []catalog.Peer {
		if x.quiet.Load() {
			return nil
		}
		return x.list(h.name)
	}
	o.Deposit = func(d wire.Deposit) {
		if err := m.deposits.Put(d, h.Node(), h.Trust(), time.Now()); err != nil {
			x.t.Errorf("%s keeps nothing: %v", h.name, err)
		}
	}
	var err error
	if m.server, err = peer.New(peer.Options{Store: &h.store, Identity: h, Deposits: m.deposits, Log: x.logger(h.name + " as peer")}); err != nil {
		x.t.Fatal(err)
	}
	l := x.listen(h.name + peerPort)
	stop := stopper(x.t, func(ctx context.Context) error { return m.server.Run(ctx, l) })
	m.stop = func() {
		x.cut(h.name + peerPort)
		stop()
	}
}

// settled starts hosts, each with so many others.
func (x *street) settled(names ...string) {
	x.names = names
	for _, name := range names {
		x.host(name, "server:6444")
	}
}

// control kills the control plane, or brings it back.
func (x *street) control(alive bool) {
	if alive {
		x.serve("server:6444", func(o *server.Options) { o.Entrusted = x.entrusted })
		return
	}
	x.servers["server:6444"].stop()
	delete(x.servers, "server:6444")
}

// statement signs what a layer is to be for all that have it, and puts its content where the first host finds it.
func (x *street) statement(number uint64, key *trust.SigningKey, bodies ...string) ([]byte, []catalog.Item) {
	x.t.Helper()
	var items []catalog.Item
	size := 0
	for i, b := range bodies {
		items = append(items, catalog.Item{Claim: fmt.Sprint("claim ", i), Body: []byte(b)})
		size += len(b)
	}
	now := time.Now()
	s, err := catalog.Statement{Protocol: catalog.StatementProtocol, Cluster: x.cluster, Layer: sharedLayer, Epoch: 1, Number: number, Root: catalog.TrieOf(items).Root(),
		Issued: now.Unix(), Expires: now.Add(48 * time.Hour).Unix(), Bytes: uint64(size)}.Sign(key)
	var signed []byte
	if err == nil {
		signed, err = s.Encode()
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return signed, items
}

// enforces is the root of the shared layer of what a host was handed last.
func (h *host) enforces() (root catalog.Digest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.states); n > 0 {
		for _, l := range h.states[n-1].List {
			if l.ID == sharedLayer {
				root = l.Root
			}
		}
	}
	return root
}

// mortal is the place of the entry that has a TTL.
const mortal = 7

func mortalBody(t *testing.T) string {
	t.Helper()
	items, err := catalog.Compile([]declare.Resource{{Name: "rescue", TTL: "6h", OnRemove: declare.OnRemoveDelete, File: &declare.File{Path: "/etc/rescue"}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(items[0].Body)
}

// expired checks on how many hosts the entry with a TTL has, by what they hold of the shared layer and of heads.
func (x *street) expired(c *casetest.Case, when string, want int) {
	x.t.Helper()
	n := 0
	for _, h := range x.hosts {
		kept, err := h.store.Kept()
		c.NoError(err, "read what "+h.name+" has kept")
		body, err := h.store.Body(h.enforces(), catalog.KeyOf(fmt.Sprint("claim ", mortal)))
		c.NoError(err, "read the entry of "+h.name)
		d, err := catalog.DecodeBody(catalog.KeyOf(catalog.ClaimOf(body)), body)
		c.NoError(err, "decode the entry of "+h.name)
		living := catalog.Alive([]catalog.DecodedLayer{{ID: sharedLayer, Entries: []catalog.Desired{d}}},
			catalog.Proof{Issued: time.Unix(kept.Mark.Issued, 0), Now: time.Now()})
		n += len(living.Expired)
	}
	c.Equal(n, want, "hosts on which the entry with a TTL has expired "+when)
}

// TestTransferCase48_WithoutControlPlane: for a day there is no server and no relay. Every host keeps what it has; one that was cut off when the newest
// version came gets it from its neighbours within five minutes of its line coming back, and so does what an operator has signed and given to one host; nothing that
// nobody has signed goes anywhere; an entry with a TTL expires everywhere, whatever neighbours repeat and operators order; and when there is a server
// again, all are with it at once. That drift is repaired meanwhile is seen on booted hosts (TestPeers of e2e/path): hosts have no files here.
func TestTransferCase48_WithoutControlPlane(t *testing.T) {
	c := casetest.Start(t)
	playStreet(t, func(x *street) {
		var bodies []string
		for i := range 400 {
			bodies = append(bodies, fmt.Sprintf("entry %d %s", i, strings.Repeat("x", 100)))
		}
		bodies[mortal] = mortalBody(t)
		x.publish(t, bodies...)
		var names []string
		for i := range 6 {
			names = append(names, fmt.Sprint("web-", i))
		}
		x.settled(names...)
		x.all(time.Minute, 1)

		// The line of one is cut while a version comes: it has not even heard that there is one.
		lost := x.homes["web-5"]
		lost.line.cut()
		pass(time.Minute)
		bodies[3], bodies[300] = "changed", "changed too"
		x.publish(t, bodies...)
		x.eventually(time.Minute, "the others are at version 2", func() bool {
			return !slices.ContainsFunc(x.hosts, func(h *host) bool { return h.name != "web-5" && !h.isAt(2) })
		})
		pass(2 * time.Minute) // in which the server leaves its head with others
		x.control(false)
		x.hours(5)
		x.expired(c, "before its TTL is over", 0)
		x.hours(5)
		x.expired(c, "after ten hours", len(x.hosts))
		for _, h := range x.hosts {
			want := uint64(2)
			if h == lost.host {
				want = 1
			}
			c.Check(h.isAt(want), "%s is at %v without a server", h.name, h.versions())
		}

		lost.line.mend()
		began := time.Now()
		x.eventually(5*time.Minute, "the host that was cut off is at version 2", func() bool { return lost.isAt(2) })
		t.Logf("it has caught up after %s", time.Since(began))
		c.Check(time.Since(began) <= 5*time.Minute, "it has caught up after %s", time.Since(began))
		c.Equal(lost.enforces(), x.homes["web-0"].enforces(), "the shared layer of the host that has caught up")
		x.expired(c, "when a neighbour has repeated the newest head", len(x.hosts))
		state := lost.links.State()
		c.Check(!state.Connected && state.Peers != nil && state.Peers.From != "", "it says of its peers: %+v", state.Peers)

		// An order is brought to one host.
		bodies[5] = "ordered"
		signed, items := x.statement(7, x.operator, bodies...)
		root := catalog.TrieOf(items).Root()
		first := x.homes["web-3"]
		c.NoError(first.give(t, signed, items), "give the order to a host")
		began = time.Now()
		x.eventually(10*time.Minute, "the order is with all", func() bool {
			return !slices.ContainsFunc(x.hosts, func(h *host) bool { return h.enforces() != root })
		})
		t.Logf("the order was with all after %s", time.Since(began))
		c.Check(time.Since(began) <= 5*time.Minute, "the order was with all after %s", time.Since(began))

		x.expired(c, "when an operator has ordered it", len(x.hosts))

		// What a stranger has signed goes nowhere, not even to where it is brought.
		forged, items := x.statement(9, trust.NewSigningKey(), "forged")
		c.Check(first.give(t, forged, items) != nil, "a host takes what a stranger has signed")
		pass(5 * time.Minute)
		x.hours(13)
		for _, h := range x.hosts {
			c.Equal(h.enforces(), root, "what "+h.name+" enforces after a day")
			c.Check(h.isAt(2), "%s was handed %v", h.name, h.versions())
			c.Check(len(h.versions()) <= 3, "%s was handed %d states", h.name, len(h.versions()))
		}

		// A new server is noticed as soon as it answers, and nobody asks a neighbour any more.
		x.control(true)
		bodies[9] = "after that"
		x.publish(t, bodies...)
		x.eventually(2*time.Minute, "all are at version 3", func() bool {
			return !slices.ContainsFunc(x.hosts, func(h *host) bool { return !h.isAt(3) })
		})
		x.expired(c, "when there is a server again", 0)
		pass(time.Minute)
		answered := x.answered()
		pass(time.Hour)
		c.Equal(x.answered(), answered, "questions to neighbours while there is a server")
	})
}

// TestPeersBehindRelay: at a site that reaches the server through a relay alone, a host that was cut off while a version came gets it from a neighbour when
// server and relay are dead.
func TestPeersBehindRelay(t *testing.T) {
	playStreet(t, func(x *street) {
		x.publish(t, "one", "two")
		edge := x.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		x.names = []string{"web-0", "web-1", "web-2"}
		for _, name := range x.names {
			x.host(name, "edge-1:6444")
		}
		x.all(time.Minute, 1)
		lost := x.homes["web-2"]
		lost.line.cut()
		x.eventually(5*time.Minute, "the server has noticed", func() bool { return x.watches("edge-1") == 2 })
		x.publish(t, "one", "changed")
		x.eventually(time.Minute, "the others are at version 2", func() bool { return x.hosts[0].isAt(2) && x.hosts[1].isAt(2) })
		x.eventually(3*time.Minute, "its head is left with them", func() bool { return x.homes["web-0"].deposits.Len() == 1 && x.homes["web-1"].deposits.Len() == 1 })
		x.control(false)
		edge.stop()
		pass(5 * time.Minute)
		if !lost.isAt(1) {
			t.Errorf("it has %v while it is cut off", lost.versions())
		}
		lost.line.mend()
		x.eventually(5*time.Minute, "the host that was cut off is at version 2", func() bool { return lost.isAt(2) })
		if state := lost.links.State(); state.Connected || state.Peers == nil || state.Peers.From == "" {
			t.Errorf("it says of its peers: %+v", state.Peers)
		}
	})
}

// answered is how many calls hosts have answered.
func (x *street) answered() (n uint64) {
	for _, h := range x.homes {
		n += h.server.Counts().Answered
	}
	return n
}

// hours pass. Nobody asks anybody in them but in a long run: a day of all that asking is a hundred thousand handshakes, and minutes of the test.
func (x *street) hours(n int) {
	x.quiet.Store(os.Getenv("TAKO_SOAK") == "")
	pass(time.Duration(n) * time.Hour)
	x.quiet.Store(false)
}

// mend lets connections be made again.
func (w *wires) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// give brings an order to a host, as tako-agent accept does.
func (m *home) give(t *testing.T, signed []byte, items []catalog.Item) error {
	t.Helper()
	var file bytes.Buffer
	if err := catalog.WriteOrder(&file, signed, items); err != nil {
		t.Fatal(err)
	}
	o, err := place.NewOrder(t.TempDir(), "an order", &file)
	if err != nil {
		t.Fatal(err)
	}
	return m.client.TakeOrder(m.scene.t.Context(), o)
}

// intruder is a host whose certificate somebody else uses now: it says what it likes.
type intruder struct {
	*home
	asked  atomic.Uint64
	mu     sync.Mutex // guards what follows
	says   func(path string) []byte
	recent map[string][]time.Time // when each has asked it for news
}

// intrude has somebody else answer in place of a host.
func (x *street) intrude(name string) *intruder {
	x.t.Helper()
	i := &intruder{home: x.homes[name]}
	i.say(func(string) []byte { return nil })
	i.host.stop()
	i.home.stop()
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	s := &http.Server{Handler: i, Protocols: &protocols, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.Certificate() }}}
	l := x.listen(name + peerPort)
	var all sync.WaitGroup
	all.Go(func() { _ = s.ServeTLS(l, "", "") })
	i.home.stop = func() {
		_ = s.Close()
		x.cut(name + peerPort)
		_ = l.Close()
		all.Wait()
	}
	return i
}

func (i *intruder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.asked.Add(1)
	i.mu.Lock()
	says := i.says
	if r.URL.Path == wire.PathNews {
		who := r.TLS.PeerCertificates[0].URIs[0].Path
		i.recent[who] = append(i.recent[who], time.Now())
	}
	i.mu.Unlock()
	_, _ = w.Write(says(r.URL.Path))
}

// say has it say something from now on.
func (i *intruder) say(what func(path string) []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.says, i.recent = what, map[string][]time.Time{}
}

// times is how many have asked it since it says that, how often in all, and the shortest time between two questions of one of them.
func (i *intruder) times() (who, all int, shortest time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	shortest = 24 * time.Hour
	for _, times := range i.recent {
		all += len(times)
		for j := 1; j < len(times); j++ {
			shortest = min(shortest, times[j].Sub(times[j-1]))
		}
	}
	return len(i.recent), all, shortest
}

// forge signs a head for a node as it likes.
func (x *street) forge(key *trust.SigningKey, change func(*catalog.Head), layers ...catalog.Layer) (head, list []byte) {
	x.t.Helper()
	l, err := catalog.NewList(layers...)
	if err == nil {
		list, err = l.Encode()
	}
	now := time.Now()
	h := catalog.Head{Cluster: x.cluster, Node: "web-0", UID: "uid-of-web-0", Epoch: 1, Version: 99, Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.ListRoot(list)}},
		Issued: now.Unix(), Expires: now.Add(24 * time.Hour).Unix(), MinProtocol: 1, Bytes: 64 << 20}
	change(&h)
	var signed catalog.SignedHead
	if err == nil {
		signed, err = h.Sign(key)
	}
	if err == nil {
		head, err = signed.Encode()
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return head, list
}

func encoded(t testing.TB, message any) []byte {
	t.Helper()
	data, err := wire.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTransferCase49_CompromisedPeer: while there is no server, somebody who has the certificate and the key of a neighbour says what he likes. Nothing of it
// is believed, each lie costs him ten minutes of silence, and what he asks is bounded: the other hosts are answered all the while.
func TestTransferCase49_CompromisedPeer(t *testing.T) {
	c := casetest.Start(t)
	playStreet(t, func(x *street) {
		x.publish(t, "one", "two", "three")
		x.settled("web-0", "web-1", "web-2")
		x.all(time.Minute, 1)
		old, oldList := x.nodes["web-0"].head, x.lists[func() catalog.Digest {
			_, h, _ := catalog.DecodeHead(x.nodes["web-0"].head)
			r, _ := h.Root()
			return r
		}()]
		x.publish(t, "one", "two", "four")
		x.all(time.Minute, 2)
		x.control(false)
		liar, target := x.intrude("web-1"), x.homes["web-0"]
		before := target.enforces()
		stranger := trust.NewSigningKey()
		evil := catalog.Layer{Priority: 1000, ID: sharedLayer, Root: x.layer("evil")}
		heads := func(key *trust.SigningKey, change func(*catalog.Head)) []byte {
			head, list := x.forge(key, change, evil)
			return encoded(t, wire.NewsReply{Head: head, List: list})
		}
		order := func(key *trust.SigningKey, change func(*catalog.Statement)) []byte {
			st := catalog.Statement{Protocol: catalog.StatementProtocol, Cluster: x.cluster, Layer: sharedLayer, Epoch: 1, Number: 5, Root: evil.Root,
				Issued: time.Now().Unix(), Expires: time.Now().Add(time.Hour).Unix(), Bytes: 4}
			change(&st)
			s, err := st.Sign(key)
			c.NoError(err, "sign")
			data, err := s.Encode()
			c.NoError(err, "encode")
			return encoded(t, wire.NewsReply{Statements: [][]byte{data}})
		}
		same, sameStatement := func(*catalog.Head) {}, func(*catalog.Statement) {}
		foreign, err := trust.NewChain(trust.Genesis{Cluster: x.cluster, CA: x.ca, Root: stranger, Heads: trust.NewSigningKey().Public()}, time.Now(), time.Now())
		c.NoError(err, "make another chain")
		documents, err := foreign.Encode()
		c.NoError(err, "encode it")
		pass(peers.SilentFor + time.Minute)
		for what, said := range map[string][]byte{
			"a head signed by a stranger":         heads(stranger, same),
			"a head signed by an operator":        heads(x.operator, same),
			"a head for another node":             heads(x.signing, func(h *catalog.Head) { h.Node, h.UID = "web-9", "uid-of-web-9" }),
			"a head of another cluster":           heads(x.signing, func(h *catalog.Head) { h.Cluster = trust.NewClusterID() }),
			"an old head, validly signed":         encoded(t, wire.NewsReply{Head: old, List: oldList}),
			"a list that is not that of the head": encoded(t, wire.NewsReply{Head: old, List: []byte{0x80}}),
			"a list out of nowhere":               encoded(t, wire.NewsReply{List: []byte{0x80}}),
			"a statement of a stranger":           order(stranger, sameStatement),
			"a statement signed as a head is":     order(x.signing, sameStatement),
			"a statement of another cluster":      order(x.operator, func(s *catalog.Statement) { s.Cluster = trust.NewClusterID() }),
			"trust documents of its own":          encoded(t, wire.NewsReply{Trust: documents}),
			"too many statements":                 encoded(t, wire.NewsReply{Statements: make([][]byte, wire.NewsStatementsMax+1)}),
			"nothing that can be read":            bytes.Repeat([]byte{0xff}, 1000),
			"more than there may be":              make([]byte, wire.NewsMax+1),
		} {
			liar.say(func(string) []byte { return said })
			x.eventually(30*time.Minute, what+" is heard by both", func() bool {
				who, _, _ := liar.times()
				return who == 2
			})
			pass(5 * time.Second)
			c.Equal(target.enforces(), before, "what the host enforces after "+what)
			c.Check(target.isAt(2), "after %s it is at %v", what, target.versions())
			_, _, shortest := liar.times()
			unread := what == "nothing that can be read" || what == "more than there may be" // as if nobody answered
			c.Check(unread || shortest >= 10*time.Minute, "after %s it was asked again after %s", what, shortest)
		}
		// Hours of lies cost each of the two hosts that hear them some questions an hour.
		liar.say(func(string) []byte { return heads(stranger, same) })
		const hours = 1
		pass(hours * time.Hour)
		_, n, _ := liar.times()
		c.Check(n > 0 && n <= 2*hours*6+4, "in %d hours two hosts have asked it %d times", hours, n)
		kept, err := target.store.Kept()
		c.NoError(err, "read what is kept")
		c.Check(kept.Refused.Forged <= 2 && len(kept.Statements) == 0, "what was not signed has reached what the host keeps: %+v", kept.Refused)

		// It has the host serve it as much as it can.
		flood := newFlood(x, liar, target)
		defer flood.end()
		began := target.server.Counts()
		for range 10 {
			for range 200 {
				flood.ask()
			}
			pass(time.Second)
		}
		is := target.server.Counts()
		t.Logf("of %d questions %d were answered and %d refused, %d connections shut", flood.sent, is.Answered-began.Answered, is.Refused-began.Refused, is.Shut-began.Shut)
		c.Check(is.Answered-began.Answered <= 10*10+40+1, "of %d questions within ten seconds %d were answered", flood.sent, is.Answered-began.Answered)
		c.Check(flood.busy > 0 && flood.early == 0, "%d were told to come later, %d without saying when", flood.busy, flood.early)
		from := target.server.Counts().Answered
		pass(5 * time.Minute)
		c.Check(target.server.Counts().Answered > from, "the other host is not answered any more")
		c.Equal(flood.stolen, []string(nil), "what it was not to get")
	})
}

// flood asks one host for all that there is, as fast as it can.
type flood struct {
	x                     *street
	asked                 *home
	http                  *http.Transport
	head, list, otherHead []byte
	shared, own           catalog.Digest
	sent, busy, early     int
	stolen                []string
}

func newFlood(x *street, who *intruder, asked *home) *flood {
	x.t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	node := x.nodes[who.name]
	_, h, err := catalog.DecodeHead(node.head)
	if err != nil {
		x.t.Fatal(err)
	}
	root, _ := h.Root()
	return &flood{x: x, asked: asked, head: node.head, list: x.lists[root], otherHead: x.nodes[asked.name].head, shared: x.latest[sharedLayer], own: x.nodes[asked.name].own,
		http: &http.Transport{DialContext: x.dial, Protocols: &protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return who.Certificate() }}}}
}

func (f *flood) end() { f.http.CloseIdleConnections() }

// ask asks one thing after the other: the first may be answered, all others it is not to get.
func (f *flood) ask() {
	f.sent++
	other := catalog.Digest{1}
	switch f.sent % 7 {
	case 0:
		f.post("", wire.PathNews, wire.NewsRequest{Protocol: wire.Protocol, Head: f.head, List: f.list})
	case 1:
		f.post("with the head of another node", wire.PathNews, wire.NewsRequest{Protocol: wire.Protocol, Head: f.otherHead, List: f.list})
	case 2:
		f.post("without a list", wire.PathSync, wire.SyncRequest{Head: f.head, Layer: sharedLayer, Target: f.shared})
	case 3:
		f.post("another root", wire.PathSync, wire.SyncRequest{Head: f.head, List: f.list, Layer: sharedLayer, Target: other})
	case 4:
		f.post("the own layer of another", wire.PathSync, wire.SyncRequest{Head: f.head, List: f.list, Layer: wire.OwnLayer, Target: f.own})
	case 5:
		f.post("a layer that is not listed", wire.PathNodes, wire.NodesRequest{Head: f.head, List: f.list, Layer: "NodeConfig/default/other", Hashes: []catalog.Digest{f.shared}})
	case 6:
		f.post("what is no part of the layer", wire.PathNodes, wire.NodesRequest{Head: f.head, List: f.list, Layer: sharedLayer, Hashes: []catalog.Digest{f.own}})
	}
}

// post makes one call; what says what is wrong with it, empty where nothing is.
func (f *flood) post(what, path string, message any) {
	f.x.t.Helper()
	r, err := http.NewRequestWithContext(f.x.t.Context(), http.MethodPost, "https://"+f.asked.name+peerPort+path, bytes.NewReader(encoded(f.x.t, message)))
	if err != nil {
		f.x.t.Fatal(err)
	}
	answer, err := f.http.RoundTrip(r)
	if err != nil {
		return // it was not let in
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		if what != "" {
			f.stolen = append(f.stolen, what)
		}
	case http.StatusServiceUnavailable:
		if f.busy++; answer.Header.Get("Retry-After") == "" {
			f.early++
		}
	}
}
