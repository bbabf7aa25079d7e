package load

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	tokensPath = "/apis/tako.dev/v1alpha1/tokens"
	nodesPath  = "/apis/tako.dev/v1alpha1/nodes"
)

const (
	// JoinersMax is how many hosts join at once. A server counts the uses of a token one
	// after the other.
	JoinersMax = 16
	// joinAgain is how often a host that was told to come later does.
	joinAgain = 20
	// work is what a simulated host takes to do what it was told: a durable write of one small file.
	work = 3 * time.Millisecond
)

// Hosts are simulated hosts that have joined a server: each one has keys, a certificate and a connection of its own and talks to the server
// as an agent does, with the agent's client. It keeps its state in memory, and does nothing with it.
type Hosts struct {
	server *Server
	all    []*host
	stop   context.CancelFunc
	tasks  sync.WaitGroup
	acted  chan struct{} // something whenever a host has acted
}

// Join lets so many hosts join with one token, and starts them. The caller ends them with Leave.
func (s *Server) Join(ctx context.Context, count int) (*Hosts, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	line, err := s.Token(ctx, count)
	if err != nil {
		return nil, err
	}
	live, stop := context.WithCancel(context.Background())
	h := &Hosts{server: s, all: make([]*host, count), stop: stop, acted: make(chan struct{}, 1)}
	err = each(ctx, count, JoinersMax, func(ctx context.Context, i int) (err error) {
		if h.all[i], err = join(ctx, line, fmt.Sprintf("host-%04d", i), h.acted); err != nil {
			return err
		}
		h.tasks.Go(func() { h.all[i].work(live) })
		return h.all[i].start(live, &h.tasks)
	})
	if err != nil {
		h.Leave()
		return nil, err
	}
	return h, nil
}

// Leave ends the hosts.
func (h *Hosts) Leave() {
	h.stop()
	h.tasks.Wait()
}

// Token makes a token for so many hosts, once for a server.
func (s *Server) Token(ctx context.Context, count int) (trust.JoinLine, error) {
	uses := int32(count)
	line, err := s.token(ctx, "bench", v1alpha1.JoinToken{Environment: "default", Count: &uses})
	if err != nil {
		return trust.JoinLine{}, err
	}
	return trust.ParseJoinLine(line)
}

// token makes a token, and returns the line with which somebody joins.
func (s *Server) token(ctx context.Context, name string, join v1alpha1.JoinToken) (line string, err error) {
	c := s.Client()
	defer c.Leave()
	body, err := json.Marshal(&v1alpha1.Token{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindToken},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TokenSpec{Type: v1alpha1.TokenJoin, Join: &join},
	})
	if err != nil {
		return "", err
	}
	resp, err := c.send(ctx, http.MethodPost, tokensPath, body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var made v1alpha1.Token
	err = json.NewDecoder(resp.Body).Decode(&made)
	return made.Status.JoinLine, err
}

// host is one simulated host. It is a client.Host and a client.Identity.
type host struct {
	node    catalog.Node
	servers []string
	key     *trust.HostKey
	sealing *trust.SealingKey
	news    chan struct{} // there is something to report
	todo    chan struct{} // there is something to do
	acted   chan<- struct{}
	done    atomic.Uint64 // the version that it acts on

	mu    sync.Mutex // guards what follows
	cert  tls.Certificate
	chain *trust.Chain
	state core.State // handed over last
	since time.Time
}

var (
	_ client.Host     = (*host)(nil)
	_ client.Identity = (*host)(nil)
)

// join lets one host join, later where the server says so.
func join(ctx context.Context, line trust.JoinLine, name string, acted chan<- struct{}) (*host, error) {
	h := &host{
		servers: []string{line.Address}, key: trust.NewHostKey(), sealing: trust.NewSealingKey(), acted: acted,
		news: make(chan struct{}, 1), todo: make(chan struct{}, 1),
	}
	var c wire.Credentials
	for try := 0; ; try++ {
		var err error
		if c, err = client.Join(ctx, client.Joining{Line: line, Name: name, Host: h.key, Sealing: h.sealing}); err == nil {
			break
		}
		after := reason.Of(err).After
		if after == 0 || try == joinAgain {
			return nil, fmt.Errorf("join as %s: %w", name, err)
		}
		if err := Pause(ctx, after); err != nil {
			return nil, err
		}
	}
	documents, err := trust.DecodeDocuments(c.Trust)
	if err != nil {
		return nil, err
	}
	if h.chain, err = trust.Verify(documents, line.Trust, time.Time{}); err != nil {
		return nil, err
	}
	h.node = catalog.Node{Cluster: h.chain.Current().Cluster, Name: c.Name, UID: c.UID}
	h.cert, err = h.key.TLS(c.Certificate)
	return h, err
}

// start begins to follow what the host is to have.
func (h *host) start(ctx context.Context, tasks *sync.WaitGroup) error {
	c, err := client.New(client.Options{
		Store: &clienttest.Memory{}, Host: h, Identity: h, Log: slog.New(slog.DiscardHandler), Session: wire.Session{ID: h.node.UID, Start: 1},
	})
	if err != nil {
		return err
	}
	tasks.Go(func() { _ = c.Run(ctx) }) // its only error is that of a store on a disk
	return nil
}

// work acts on what the host was told.
func (h *host) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.todo:
		}
		if Pause(ctx, work) != nil {
			return
		}
		h.mu.Lock()
		h.since = time.Now()
		h.done.Store(h.state.Mark.Version)
		h.mu.Unlock()
		poke(h.acted)
		poke(h.news)
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Activate takes a state.
func (h *host) Activate(_ context.Context, s core.State) (wire.Verdict, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = s
	poke(h.todo)
	return wire.Verdict{Type: wire.Pending}, nil
}

// Report says that all that the host has acted on is as declared.
func (h *host) Report() wire.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.state.Mark
	r := wire.Report{Enforced: m, Verdict: wire.Verdict{Epoch: m.Epoch, Version: m.Version, Root: m.Root}}
	done := h.done.Load() == m.Version
	if done && m.Version > 0 {
		r.Verdict.Type, r.Verdict.Since = wire.Applied, h.since.UnixMilli()
	}
	for _, l := range h.state.List {
		if l.ID != wire.OwnLayer {
			r.Configs = append(r.Configs, wire.ConfigReport{ID: l.ID, Converged: done, Settled: done})
		}
	}
	return r
}

// Changed tells when there is something to report.
func (h *host) Changed() <-chan struct{} { return h.news }

// Answer knows nothing.
func (h *host) Answer(context.Context, wire.Question, io.Writer) error {
	return errors.New("a simulated host")
}

// Node is whom heads must be for.
func (h *host) Node() catalog.Node { return h.node }

// Servers are the addresses to dial.
func (h *host) Servers() []string { return h.servers }

// Certificate is that of the host.
func (h *host) Certificate() (*tls.Certificate, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &h.cert, nil
}

// Trust is the chain that is believed.
func (h *host) Trust() *trust.Chain {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chain
}

// Extend believes a longer chain.
func (h *host) Extend(longer *trust.Chain) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.chain = longer
	return nil
}

// Request asks for another certificate.
func (h *host) Request() ([]byte, error) { return trust.NodeRequest(h.key, h.sealing.Public()) }

// Renewed takes one.
func (h *host) Renewed(certificate []byte) error {
	cert, err := h.key.TLS(certificate)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cert = cert
	return nil
}

// Change is how long one change took to get to all hosts.
type Change struct {
	Answered     time.Duration // the API's answer to whoever made it
	Acted        time.Duration // until the last host had acted
	Acknowledged time.Duration // until the config's status counts all of them as done
}

// Apply makes one change of a config, with the method POST for the first one and PUT for others, and waits until all hosts have it.
func (h *Hosts) Apply(ctx context.Context, method, name string, body []byte) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	c := h.server.Client()
	defer c.Leave()
	before := make([]uint64, len(h.all))
	for i, one := range h.all {
		before[i] = one.done.Load()
	}
	if err := c.do(ctx, http.MethodGet, "/readyz", nil); err != nil { // it is connected
		return Change{}, err
	}
	start := time.Now()
	generation, err := c.Apply(ctx, method, name, body)
	if err != nil {
		return Change{}, err
	}
	took := Change{Answered: time.Since(start)}
	if err := h.awaitActs(ctx, before); err != nil {
		return Change{}, err
	}
	took.Acted = time.Since(start)
	// While it is asked, the server has nothing else to do than to note what the hosts report.
	err = c.Counted(ctx, name, generation, len(h.all))
	took.Acknowledged = time.Since(start)
	return took, err
}

// Apply makes one change of a config, with the method POST for the first one and PUT for others, and returns its generation.
func (c *Client) Apply(ctx context.Context, method, name string, body []byte) (generation int64, err error) {
	path := ConfigsPath
	if method != http.MethodPost {
		path += "/" + name
	}
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return 0, err
	}
	var config v1alpha1.NodeConfig
	err = errors.Join(json.NewDecoder(resp.Body).Decode(&config), resp.Body.Close())
	return config.Generation, err
}

// Counted waits until the status of a config, as of a generation, counts so many nodes as done.
func (c *Client) Counted(ctx context.Context, name string, generation int64, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	for {
		text, err := c.Get(ctx, ConfigsPath+"/"+name)
		if err != nil {
			return err
		}
		var config v1alpha1.NodeConfig
		if err := json.Unmarshal(text, &config); err != nil {
			return err
		}
		s := &config.Status
		if r := s.Rollout; s.ObservedGeneration == generation && r != nil && r.Target == s.Revision && int(r.Done) == nodes {
			return nil
		}
		if err := Pause(ctx, lookPause); err != nil {
			return fmt.Errorf("not all hosts are counted: %+v: %w", s.Rollout, err)
		}
	}
}

// lookPause is between two looks at one config: fine against what is measured, and a hundredth of what the server can answer.
const lookPause = 5 * time.Millisecond

// awaitActs waits until every host acts on another state than before.
func (h *Hosts) awaitActs(ctx context.Context, before []uint64) error {
	at := 0
	for {
		for at < len(h.all) && h.all[at].done.Load() > before[at] {
			at++
		}
		if at == len(h.all) {
			return nil
		}
		select {
		case <-h.acted:
		case <-ctx.Done():
			return fmt.Errorf("host %s has not acted: %w", h.all[at].node.Name, ctx.Err())
		}
	}
}

// Verify reads all Nodes: each must have applied what it is assigned.
func (h *Hosts) Verify(ctx context.Context) error { return h.server.Verify(ctx, len(h.all)) }

// nodesPart is how many Nodes are read at once.
const nodesPart = 500

// Verify reads all Nodes, of which there must be so many: each must have applied what it is assigned.
func (s *Server) Verify(ctx context.Context, nodes int) error {
	c := s.Client()
	defer c.Leave()
	seen := 0
	for next, first := "", true; first || next != ""; first = false {
		query := url.Values{"limit": {strconv.Itoa(nodesPart)}, "continue": {next}}
		text, err := c.Get(ctx, nodesPath+"?"+query.Encode())
		if err != nil {
			return err
		}
		var list v1alpha1.NodeList
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		for i := range list.Items {
			n := &list.Items[i]
			applied, assigned, v := n.Status.AppliedHead, n.Status.AssignedHead, n.Status.Verdict
			if applied == nil || assigned == nil || v == nil || applied.Version != assigned.Version || v.Version != assigned.Version || v.Type != v1alpha1.VerdictApplied {
				return fmt.Errorf("node %s: applied %+v, assigned %+v, verdict %+v", n.Name, applied, assigned, v)
			}
		}
		seen, next = seen+len(list.Items), list.Continue
	}
	if seen != nodes {
		return fmt.Errorf("there are %d nodes, want %d", seen, nodes)
	}
	return nil
}
