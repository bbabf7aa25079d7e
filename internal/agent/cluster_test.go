package agent

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// centre is a server of one host, and the cluster that it belongs to.
type centre struct {
	t     *testing.T
	id    trust.ClusterID
	ca    *trust.CA
	heads *trust.SigningKey
	// operator signs statements.
	operator *trust.SigningKey
	chain    *trust.Chain
	sealing  []byte
	http     *httptest.Server

	mu      sync.Mutex // guards what follows
	version uint64
	head    []byte
	news    chan struct{} // closed when the head is another one
	lists   map[catalog.Digest][]byte
	layers  map[catalog.Digest]shelf
	report  wire.Report
	fetched int                     // calls for content
	asked   chan wire.Question      // to be put to the host
	answers map[uint64]func([]byte) // by question
	away    bool
}

// shelf is a layer with its bodies.
type shelf struct {
	trie   catalog.Trie
	bodies map[catalog.Digest][]byte
}

const nodeUID = "3b1f6c1e-0000-4000-8000-000000000001"

// newCentre starts a server, and makes the host of a site a node of it.
func newCentre(t *testing.T, stateDir string) *centre {
	t.Helper()
	c := &centre{t: t, id: trust.NewClusterID(), heads: trust.NewSigningKey(), operator: trust.NewSigningKey(), news: make(chan struct{}), lists: map[catalog.Digest][]byte{},
		layers: map[catalog.Digest]shelf{}, asked: make(chan wire.Question, 1), answers: map[uint64]func([]byte){}}
	var err error
	now := time.Now()
	c.ca, err = trust.NewCA(c.id, now)
	must(t, err)
	root := trust.NewSigningKey()
	c.chain, err = trust.NewChain(trust.Genesis{Cluster: c.id, CA: c.ca, Root: root, Heads: c.heads.Public()}, now, time.Time{})
	must(t, err)
	next, err := c.chain.Next(now, trust.SetKey(trust.RoleOperator, c.operator.Public(), now.Add(time.Hour)))
	must(t, err)
	next, err = next.Sign(root)
	must(t, err)
	c.chain, err = c.chain.Extend([]trust.Signed{next})
	must(t, err)
	own, err := c.ca.IssueServer(trust.ServerRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, now)
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc(wire.PathWatch, c.watch)
	mux.HandleFunc(wire.PathSync, c.sync)
	mux.HandleFunc(wire.PathNodes, c.nodes)
	mux.HandleFunc(wire.PathStatus, c.status)
	mux.HandleFunc(wire.PathAnswer, c.answer)
	c.http = httptest.NewUnstartedServer(mux)
	c.http.TLS = &tls.Config{Certificates: []tls.Certificate{own.TLS()}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}
	c.http.EnableHTTP2 = true
	c.http.StartTLS()
	t.Cleanup(func() {
		c.http.CloseClientConnections()
		c.http.Close()
	})
	must(t, c.join(stateDir))
	return c
}

func (c *centre) join(stateDir string) error {
	keys, err := held.Prepare(stateDir)
	if err != nil {
		return err
	}
	c.sealing = keys.Sealing.Public()
	request, err := trust.NodeRequest(keys.Host, c.sealing)
	if err != nil {
		return err
	}
	parsed, err := trust.ParseNodeRequest(request)
	if err != nil {
		return err
	}
	der, err := c.ca.IssueNode(parsed, trust.NodeCertificate{Cluster: c.id, Name: "web-1", UID: nodeUID}, time.Now())
	if err != nil {
		return err
	}
	text, err := c.chain.Encode()
	if err != nil {
		return err
	}
	_, err = held.Join(stateDir, held.Membership{Credentials: wire.Credentials{Certificate: der, Name: "web-1", UID: nodeUID, Trust: text}, Pin: c.chain.Pin(),
		Servers: []string{c.http.Listener.Addr().String()}}, time.Time{})
	return err
}

// config is a layer of resources.
func (c *centre) config(id string, priority int, resources ...declare.Resource) catalog.Layer {
	c.t.Helper()
	items, err := catalog.Compile(resources)
	must(c.t, err)
	return c.shelve(id, priority, items)
}

func (c *centre) shelve(id string, priority int, items []catalog.Item) catalog.Layer {
	s := shelf{trie: catalog.TrieOf(items), bodies: map[catalog.Digest][]byte{}}
	for i := range items {
		s.bodies[items[i].Row().Digest] = items[i].Body
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.layers[s.trie.Root()] = s
	return catalog.Layer{Priority: priority, ID: id, Root: s.trie.Root()}
}

// own is the node's own layer.
func (c *centre) own(o catalog.Own) catalog.Layer {
	c.t.Helper()
	items, err := o.Items()
	must(c.t, err)
	return c.shelve(wire.OwnLayer, catalog.OwnPriority, items)
}

// assign gives the host a catalog, and returns its mark. change may be nil.
func (c *centre) assign(change func(*catalog.Head), layers ...catalog.Layer) catalog.Mark {
	c.t.Helper()
	list, err := catalog.NewList(layers...)
	must(c.t, err)
	encoded, err := list.Encode()
	must(c.t, err)
	root := catalog.ListRoot(encoded)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists[root] = encoded
	c.version++
	now := time.Now().Unix()
	h := catalog.Head{Cluster: c.id, Node: "web-1", UID: nodeUID, Epoch: 1, Version: c.version, Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: root}},
		Issued: now, Expires: now + 3600}
	if change != nil {
		change(&h)
	}
	signed, err := h.Sign(c.heads)
	must(c.t, err)
	c.head, err = signed.Encode()
	must(c.t, err)
	close(c.news)
	c.news = make(chan struct{})
	return catalog.Mark{Epoch: 1, Version: h.Version, Root: root, Issued: h.Issued, Expires: h.Expires}
}

func (c *centre) current() ([]byte, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head, c.news
}

// gone makes the server refuse everything, or serve again.
func (c *centre) gone(away bool) {
	c.mu.Lock()
	c.away = away
	c.mu.Unlock()
	if away {
		c.http.CloseClientConnections()
	}
}

func (c *centre) take(w http.ResponseWriter, r *http.Request, max int64, message any) bool {
	c.mu.Lock()
	away := c.away
	c.mu.Unlock()
	if away {
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	}
	if err := wire.ReadAll(r.Body, max, message); err != nil {
		c.breaks(r, err)
		return false
	}
	return true
}

// breaks is for a call that breaks off: the agent may have been stopped in the middle of it.
func (c *centre) breaks(r *http.Request, err error) {
	select {
	case <-r.Context().Done():
	case <-time.After(5 * time.Second):
		c.t.Errorf("%s: %v", r.URL.Path, err)
	}
}

func (c *centre) put(w io.Writer, message any) {
	data, err := wire.Encode(message)
	if err != nil {
		c.t.Error(err)
	}
	_, _ = w.Write(data) // the host may have gone
}

func (c *centre) watch(w http.ResponseWriter, r *http.Request) {
	var q wire.WatchRequest
	if !c.take(w, r, wire.RequestMax, &q) {
		return
	}
	c.heard(q.Report)
	w.WriteHeader(http.StatusOK)
	for {
		head, news := c.current()
		if head != nil && wire.WriteFrame(w, wire.Frame{Head: head}) != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case q := <-c.asked:
			if wire.WriteFrame(w, wire.Frame{Question: &q}) != nil {
				return
			}
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (c *centre) sync(w http.ResponseWriter, r *http.Request) {
	var q wire.SyncRequest
	if !c.take(w, r, wire.RequestMax, &q) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched++
	base, known := c.layers[q.Base]
	target := c.layers[q.Target]
	part := wire.SyncPart{Kind: wire.SyncDelta, Last: true}
	if !known {
		part.Kind = wire.SyncSnapshot
	}
	for change := range catalog.Difference(base.trie, target.trie, q.Cursor) {
		part.Changes = append(part.Changes, wire.Change{Key: change.Key, Deleted: change.Deleted, Body: target.bodies[change.Digest]})
	}
	if err := wire.WriteFrame(w, part); err != nil {
		c.breaks(r, err)
	}
}

func (c *centre) nodes(w http.ResponseWriter, r *http.Request) {
	var q wire.NodesRequest
	if !c.take(w, r, wire.RequestMax, &q) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched++
	reply := wire.NodesReply{}
	for _, h := range q.Hashes {
		reply.Items = append(reply.Items, c.lists[h])
	}
	c.put(w, reply)
}

func (c *centre) status(w http.ResponseWriter, r *http.Request) {
	var report wire.Report
	if c.take(w, r, wire.RequestMax, &report) {
		c.heard(report)
		c.put(w, wire.StatusReply{})
	}
}

func (c *centre) heard(r wire.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = r
}

func (c *centre) answer(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	take := c.answers[1]
	c.mu.Unlock()
	take(data)
	w.WriteHeader(http.StatusNoContent)
}

// ask puts a question to the host, and returns what it says.
func (c *centre) ask(q wire.Question) string {
	c.t.Helper()
	said := make(chan []byte, 1)
	c.mu.Lock()
	c.answers[1] = func(data []byte) { said <- data }
	c.mu.Unlock()
	q.ID, q.Seconds = 1, 60
	c.asked <- q
	select {
	case data := <-said:
		return string(data)
	case <-time.After(time.Minute):
		c.t.Fatalf("no answer to %+v", q)
		return ""
	}
}

// until waits for a report.
func (c *centre) until(what string, is func(*wire.Report) bool) wire.Report {
	c.t.Helper()
	deadline := time.After(time.Minute)
	for {
		c.mu.Lock()
		r := c.report
		c.mu.Unlock()
		if is(&r) {
			return r
		}
		select {
		case <-deadline:
			c.t.Fatalf("%s: not reached: %+v", what, r)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// settles waits until the host has judged a state.
func (c *centre) settles(m catalog.Mark, verdict wire.VerdictType) wire.Report {
	c.t.Helper()
	return c.until("it is "+verdict.String(), func(r *wire.Report) bool {
		return r.Verdict.Type == verdict && r.Verdict.Version == m.Version && r.Verdict.Root == m.Root
	})
}

func fileOf(name string) declare.Resource {
	return declare.Resource{Name: name, File: &declare.File{Path: "/" + name, Content: "text of " + name}}
}

func textOf(name, text string) declare.Resource {
	return declare.Resource{Name: name, File: &declare.File{Path: "/" + name, Content: text}}
}

func filesOf(names ...string) []declare.Resource {
	var list []declare.Resource
	for _, n := range names {
		list = append(list, fileOf(n))
	}
	return list
}

// joinedSite is a site that has joined.
func joinedSite(t *testing.T) (*site, *centre) {
	t.Helper()
	s := newSite(t)
	must(t, mkdirState(s))
	c := newCentre(t, s.opts.StateDir)
	s.opts.Files, s.opts.Joined = nil, true
	return s, c
}

// namesOf are the names of a numbered set of files.
func namesOf(prefix string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, prefix+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	return slices.Clip(names)
}
