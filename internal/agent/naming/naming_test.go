package naming

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"tako.dev/tako/declare/workload"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// centre is a server that signs editions, and the host that believes it.
type centre struct {
	cluster trust.ClusterID
	chain   *trust.Chain
	heads   *trust.SigningKey
	store   *edition.Store
	number  uint64
}

func (c *centre) Node() catalog.Node {
	return catalog.Node{Cluster: c.cluster, Name: "n1", UID: "uid-n1"}
}
func (c *centre) Trust() *trust.Chain { return c.chain }

func newCentre(t *testing.T) *centre {
	t.Helper()
	now := time.Now()
	c := &centre{cluster: trust.NewClusterID(), heads: trust.NewSigningKey()}
	ca, err := trust.NewCA(c.cluster, now)
	if err == nil {
		c.chain, err = trust.NewChain(trust.Genesis{Cluster: c.cluster, CA: ca, Root: trust.NewSigningKey(), Heads: c.heads.Public()}, now, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.store = edition.New(edition.Options{Cluster: c.cluster, Keys: func(time.Time) catalog.Keys { return catalog.Keys{c.heads.Public()} }})
	return c
}

func (c *centre) publish(t *testing.T, put []edition.Row, gone ...string) {
	t.Helper()
	c.number++
	if err := c.store.Publish(edition.Draft{Mark: wire.NamesMark{Epoch: 1, Term: 1, Number: c.number}, Issued: time.Now(), Put: put, Gone: gone}, c.heads); err != nil {
		t.Fatal(err)
	}
}

func ready(name, on string, last byte) *names.Instance {
	return &names.Instance{Namespace: "prod", Workload: "web", Name: name, Node: on, Revision: "web-1", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, last})},
		Endpoints: []names.Endpoint{{Port: names.Port{Name: "http", Protocol: workload.TCP}, Number: 20000 + uint16(last)}}}
}

// rig is a host that answers.
type rig struct {
	*testing.T
	*centre
	n         *Naming
	state     string
	root      *disk.Root
	at        netip.AddrPort
	log       bytes.Buffer
	logging   sync.Mutex
	stop      func()
	endpoints string
}

func (r *rig) Write(p []byte) (int, error) {
	r.logging.Lock()
	defer r.logging.Unlock()
	return r.log.Write(p)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	at := netip.MustParseAddrPort(boots.FreeAddress(t))
	dir := t.TempDir()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	r := &rig{T: t, centre: newCentre(t), state: t.TempDir(), root: root, at: at, endpoints: filepath.Join(dir, "names")}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start is another run of the agent.
func (r *rig) start() {
	r.Helper()
	n, err := New(Options{Where: Where{Addresses: []netip.AddrPort{r.at}, Endpoints: "/names"}, Root: r.root, StateDir: r.state, Identity: r.centre, Log: slog.New(slog.NewTextHandler(r, nil))})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := n.Run(ctx); err != nil {
			r.Error(err)
		}
	}()
	r.n, r.stop = n, func() {
		cancel()
		<-ended
	}
}

// take has what the centre has come.
func (r *rig) take() {
	r.Helper()
	parts, _, _ := r.store.After(r.n.Names().Mark())
	for i := range parts {
		if err := r.n.Names().Take(&parts[i]); err != nil {
			r.Fatal(err)
		}
	}
}

// ask asks once; an error is not fatal, for the address may not be listened at yet.
func (r *rig) ask(name string) (rcode int, addresses []string, err error) {
	q := new(dns.Msg)
	q.SetQuestion(name, dns.TypeA)
	reply, _, err := (&dns.Client{Timeout: 5 * time.Second}).Exchange(q, r.at.String())
	if err != nil {
		return 0, nil, err
	}
	for _, rr := range reply.Answer {
		addresses = append(addresses, rr.(*dns.A).A.String())
	}
	slices.Sort(addresses)
	return reply.Rcode, addresses, nil
}

// until waits for an answer.
func (r *rig) until(what string, rcode int, addresses ...string) {
	r.Helper()
	last := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		is, all, err := r.ask("web.prod.tako.internal.")
		if last = fmt.Sprintln(is, all, err); err == nil && is == rcode && slices.Equal(all, addresses) {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
	r.logging.Lock()
	defer r.logging.Unlock()
	r.Fatalf("%s: %s, want %d %v\n%s", what, last, rcode, addresses, r.log.String())
}

// TestAnswers: a host answers what it was told last, also when it begins again, and of its own instances what it knows itself.
func TestAnswers(t *testing.T) {
	r := newRig(t)
	r.until("before anything is known", dns.RcodeServerFailure)
	if env := r.n.Environment("prod", 0); env != nil {
		t.Errorf("before anything is known there is %v", env)
	}
	r.publish(t, []edition.Row{edition.NamespaceRow("prod"), edition.WorkloadRow(names.Workload{Namespace: "prod", Name: "web"}), edition.InstanceRow(ready("web-0", "n1", 1)), edition.InstanceRow(ready("web-1", "n2", 2))})
	r.take()
	r.until("the edition has come", dns.RcodeSuccess, "10.0.0.1", "10.0.0.2")
	r.n.Ready(nil)
	r.until("what is here is not ready", dns.RcodeSuccess, "10.0.0.2")
	r.n.Ready([]*names.Instance{ready("web-2", "n1", 3)})
	r.until("another one is", dns.RcodeSuccess, "10.0.0.2", "10.0.0.3")
	r.publish(t, []edition.Row{edition.InstanceRow(ready("web-2", "n1", 3))}, "i/prod/web-0", "i/prod/web-1")
	r.take()
	r.until("and nobody else", dns.RcodeSuccess, "10.0.0.3")
	r.n.Ready(nil)
	r.until("nobody is", dns.RcodeSuccess)
	r.n.Ready([]*names.Instance{ready("web-2", "n1", 3)})
	env := r.n.Environment("prod", 0)
	if !slices.Contains(env, "WEB_SERVICE_HOST=10.0.0.3") || !slices.Contains(env, "TAKO_ENDPOINTS="+filepath.Join(r.endpoints, "endpoints.json")) {
		t.Errorf("the environment is %v", env)
	}
	r.stop()
	r.start()
	r.until("after a restart, without a server", dns.RcodeSuccess, "10.0.0.3")
	r.stop()
	data, err := os.ReadFile(filepath.Join(r.state, fileName))
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(filepath.Join(r.state, fileName), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	r.until("what was kept is damaged", dns.RcodeServerFailure)
	r.take()
	r.until("and it has come anew", dns.RcodeSuccess, "10.0.0.3")
}

// TestFiles: the files say what the DNS says, and what somebody else has written there is put right with the next change.
func TestFiles(t *testing.T) {
	r := newRig(t)
	says := func(what, word string, there bool) {
		t.Helper()
		text := ""
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			data, err := os.ReadFile(filepath.Join(r.endpoints, "endpoints"))
			if text = string(data); err == nil && strings.Contains(text, word) == there {
				return
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
		t.Fatalf("%s: the file says %q", what, text)
	}
	r.publish(t, []edition.Row{edition.InstanceRow(ready("web-1", "n2", 2))})
	r.take()
	says("one is ready", "prod web http TCP 10.0.0.2 20002 web-1", true)
	r.publish(t, nil, "i/prod/web-1")
	r.take()
	says("it is not", "web-1", false)
}

// TestNothing: a host that answers nothing asks for nothing.
func TestNothing(t *testing.T) {
	n, err := New(Options{})
	if n != nil || err != nil {
		t.Fatal(n, err)
	}
	n.Ready(nil)
	if n.Names() != nil || n.Environment("prod", 0) != nil {
		t.Error("it has something")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx); err != nil {
		t.Error(err)
	}
}
