package swarm

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Command is what the process is told.
type Command struct {
	Do     Do
	Server string `json:",omitempty"` // address, of Connect
}

// Do is what a command is about.
type Do string

// The commands.
const (
	Connect Do = "connect" // all hosts, at once, and again whenever a connection ends
	Drop    Do = "drop"    // all connections end at once, and the hosts come back at once
	Mark    Do = "mark"    // counters of the Standing begin anew
	Tell    Do = "tell"    // nothing but the answer
)

// Standing is how the hosts stand, and what they have done since the last Mark.
type Standing struct {
	Watching int // have a watch open, and were sent a head over it
	Acted    int // have acted on another state since
	Running  int // instances that the server has been told run
	// What all hosts together have done.
	Dials, Heads, Reports, Syncs, Nodes, Snapshots int
	// The most that one host has done.
	SyncsMax, NodesMax int
	Fails              int
	Fail               string `json:",omitempty"` // the last of them
}

// Failure is the last failure, in words that go on after others.
func (s Standing) Failure() string {
	if s.Fail == "" {
		return ""
	}
	return ", the last " + s.Fail
}

// Options say who runs.
type Options struct {
	File  string // that Join has written
	Count int
	Net   netip.Prefix // that the hosts' addresses are of; the zero prefix: they have that of the machine
}

// Serve runs hosts, and does what it is told until there are no more commands.
func Serve(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	hosts, err := read(o.File, o.Count, o.Net)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	gate := &gate{opened: make(chan struct{})}
	for _, h := range hosts {
		g.Go(func() error { return h.run(ctx, gate) })
	}
	err = follow(hosts, gate, in, out)
	cancel()
	err = errors.Join(err, g.Wait())
	gate.tasks.Wait()
	return err
}

// follow does what commands say.
func follow(hosts []*host, g *gate, in io.Reader, out io.Writer) error {
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	marks := make([]counts, len(hosts))
	if err := answers.Encode(Standing{}); err != nil { // it is ready
		return err
	}
	for lines.Scan() {
		var c Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		switch c.Do {
		case Connect:
			g.to(c.Server)
		case Drop:
			g.to("")
		case Mark:
			for i, h := range hosts {
				marks[i] = h.tally.counts()
			}
		case Tell:
		default:
			return fmt.Errorf("there is no command %q", c.Do)
		}
		if err := answers.Encode(standing(hosts, marks)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// tally is what a host has done. Others than its goroutine read it.
type tally struct {
	watching                                              atomic.Bool
	done                                                  atomic.Uint64 // the version that it has acted on
	running                                               atomic.Int64  // instances, in the last report that was answered
	dials, heads, reports, syncs, nodes, snapshots, fails atomic.Int64
	last                                                  atomic.Pointer[string]
}

func (t *tally) fail(err error) {
	text := err.Error()
	t.last.Store(&text)
	t.fails.Add(1)
}

// counts are the counters of a tally at one moment.
type counts struct {
	done                                                  uint64
	dials, heads, reports, syncs, nodes, snapshots, fails int
}

func (t *tally) counts() counts {
	return counts{
		done: t.done.Load(), dials: int(t.dials.Load()), heads: int(t.heads.Load()), reports: int(t.reports.Load()), syncs: int(t.syncs.Load()),
		nodes: int(t.nodes.Load()), snapshots: int(t.snapshots.Load()), fails: int(t.fails.Load()),
	}
}

func standing(hosts []*host, marks []counts) Standing {
	var s Standing
	for i, h := range hosts {
		is, was := h.tally.counts(), marks[i]
		if h.tally.watching.Load() {
			s.Watching++
		}
		if is.done > was.done {
			s.Acted++
		}
		s.Running += int(h.tally.running.Load())
		s.Dials += is.dials - was.dials
		s.Heads += is.heads - was.heads
		s.Reports += is.reports - was.reports
		s.Syncs += is.syncs - was.syncs
		s.Nodes += is.nodes - was.nodes
		s.Snapshots += is.snapshots - was.snapshots
		s.SyncsMax, s.NodesMax = max(s.SyncsMax, is.syncs-was.syncs), max(s.NodesMax, is.nodes-was.nodes)
		if is.fails > was.fails {
			s.Fails += is.fails - was.fails
			s.Fail = h.node.Name + ": " + *h.tally.last.Load()
		}
	}
	return s
}

// gate is where all hosts are told of the server.
type gate struct {
	tasks sync.WaitGroup // what reads connections

	mu     sync.Mutex // guards what follows
	opened chan struct{}
	target *target
}

// target is where hosts connect to, until it is dropped.
type target struct {
	address string
	tasks   *sync.WaitGroup
	drop    chan struct{} // closed when all connections are to end
	known   *sync.Map     // certificates of servers that were verified, by their SHA-256
}

// to sends all hosts to an address, and ends the connections that there are; the empty address is the one from before.
func (g *gate) to(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.target
	if address == "" && was != nil {
		address = was.address
	}
	g.target = &target{address: address, tasks: &g.tasks, drop: make(chan struct{}), known: &sync.Map{}}
	if was == nil {
		close(g.opened)
		return
	}
	g.target.known = was.known
	close(was.drop)
}

// open waits until there is a server.
func (g *gate) open(ctx context.Context) (*target, error) {
	select {
	case <-g.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.target, nil
}

// config is TLS for a host. A server's certificate is verified by the first host that sees it: the others would find the same, and each is
// to have the processor for itself that they share here.
func (t *target) config(h *host) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, // verified below, as an agent does it
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("the server shows no certificate")
			}
			leaf := s.PeerCertificates[0]
			digest := sha256.Sum256(leaf.Raw)
			if _, known := t.known.Load(digest); known {
				return nil
			}
			_, err := leaf.Verify(x509.VerifyOptions{Roots: h.chain.Pool(), CurrentTime: h.chain.Time(time.Now()), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if err == nil {
				t.known.Store(digest, true)
			}
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &h.certificate, nil },
	}
}
