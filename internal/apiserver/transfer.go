package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/auth"
	"tako.dev/tako/internal/apiserver/enroll"
	"tako.dev/tako/internal/apiserver/follower"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/apiserver/supply"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/assignments"
	"tako.dev/tako/internal/controllers/heads"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/controllers/names"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/controllers/preview"
	"tako.dev/tako/internal/controllers/recorder"
	"tako.dev/tako/internal/controllers/workloads"
	fleetnode "tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/export"
	transferserver "tako.dev/tako/internal/transfer/server"
)

// transfer is the way from the declarations to the hosts:
//
//	layers (what a revision compiles to) -> assignments (who gets which) -> heads (signed) -> server -> hosts
//	hosts -> server -> presence (who is there, and how) -> assignments, and the Nodes that people read
type transfer struct {
	listener net.Listener
	address  string // of the listener, as hosts reach it
	loopback *restclient.Config
	members  *enroll.Members
	layers   *layers.Layers
	changes  *layers.Changes
	heads    *heads.Heads
	recorder *recorder.Recorder
	server   *transferserver.Server
	supply   *supply.Supply // nil: there are no other servers
	names    *edition.Store
	answers  func(context.Context) // for names by the DNS
	failed   chan error            // has room for one: hosts cannot be served any more
	// begin makes what this server has as the leader; term is that, nil while it does not lead.
	begin func() (*term, error)
	term  atomic.Pointer[term]
}

// term is what a server has as the leader, from the beginning of that to its end: who follows has heard nobody.
type term struct {
	presence    *presence.Register
	assignments *assignments.Assignments
	workloads   *workloads.Workloads
	measures    *measures.Measures
	names       *names.Names
}

// newTransfer puts it together. It reads and writes objects without the way through the API.
func (s *Server) newTransfer(p parts, objects *registry.Registry, local *registry.Local, tokens *auth.Tokens, loopback *restclient.Config) (*transfer, error) {
	t := &transfer{listener: p.hosts, address: s.transferAddress(p.hosts.Addr()), loopback: loopback, failed: make(chan error, 1)}
	events, err := typedcore.NewForConfig(loopback)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the transfer", Cause: err}
	}
	t.recorder = recorder.New(events, s.partsLog)
	audited := hostAudit{p.audit.Backend()}
	if t.supply, err = p.several.newSupply(p, local, s.partsLog); err != nil {
		return nil, err
	}
	var err1, err2, err3, err5 error
	t.members, err1 = enroll.New(enroll.Options{
		Objects: local, Tokens: tokens, Keys: p.keys, Chain: p.documents.Newest, Address: func() string { return t.address }, Audit: audited, Log: s.partsLog,
	})
	t.layers, err2 = layers.New(local, p.keys, bundleStore{p.bundles, t.supply})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.bundles.Tell(t.layers.BundleCame)
	t.changes = t.layers.Subscribe()
	t.heads, err3 = heads.New(heads.Options{
		Objects: local, Layers: t.layers, Keys: p.keys, Chain: p.documents.Read, Revision: func(ctx context.Context) (uint64, error) { return revision(ctx, p.client.Client) },
		Suspected: t.suspect, Log: s.partsLog, Metrics: takoMetrics{},
	})
	t.names = s.newNames(p)
	if t.answers, err = s.answerNames(t.names); err != nil {
		return nil, err
	}
	t.begin = func() (*term, error) { return s.newTerm(t, p, local) }
	own, err4 := t.begin()
	if err := errors.Join(err3, err4); err != nil {
		return nil, err
	}
	if p.several == nil { // it leads from the beginning to the end
		t.term.Store(own)
		t.begin = func() (*term, error) { return own, nil }
	}
	hears := p.several.hears(own.presence)
	t.server, err5 = transferserver.New(transferserver.Options{
		Cluster: p.keys.Cluster(), Catalogs: judging{t.heads, hears}, Members: t.members, Presence: hears, Audit: audited, Objects: objectStore{p.shelf, t.supply}, Stored: stored{p.shelf, p.bundles}, Snapshots: p.snapshots, Servers: p.several.addresses, Serving: p.several.watchOver(t.heads.Fresh),
		Certificate: func() (*tls.Certificate, error) { return p.certificate.forTLS() },
		Authorities: func() *x509.CertPool {
			pool := p.documents.Newest().Pool()
			pool.AddCert(p.keys.CA().Certificate()) // it issues, whatever the documents say
			return pool
		},
		Entrusted: t.entrusted, Names: t.names.Feed, Metrics: takoMetrics{}, Log: s.partsLog,
	})
	if err5 != nil {
		return nil, err5
	}
	tokens.TellLines(t.members.JoinLine)
	objects.SetAsker(t.server)
	objects.SetExporter(export.Exporter{Members: t.members, Catalogs: t.heads})
	objects.SetDecorator(func(n *v1alpha1.Node) {
		if now := t.term.Load(); now != nil {
			now.presence.Decorate(n)
		}
	})
	objects.SetInstances(func(i *v1alpha1.Instance) {
		if now := t.term.Load(); now != nil {
			now.workloads.Describe(i)
		}
	})
	return t, nil
}

// hosts is what this server knows of hosts; false while it does not lead.
func (t *transfer) hosts() (preview.Hosts, bool) {
	now := t.term.Load()
	if now == nil {
		return preview.Hosts{}, false
	}
	return preview.Hosts{Seen: now.presence.Of, Measures: now.measures}, true
}

// newTerm makes what a server has as the leader.
func (s *Server) newTerm(t *transfer, p parts, local *registry.Local) (*term, error) {
	n, leading := &term{}, p.several.objects(local)
	var err1, err2, err3, err4, err5 error
	if n.measures, err4 = measures.New(s.opts.Prometheus, leading); err4 != nil {
		return nil, err4
	}
	n.presence, err1 = presence.New(presence.Options{
		Objects: leading, Recorder: t.recorder, Leads: p.several.leads, Measures: n.measures, Log: s.partsLog, Metrics: takoMetrics{},
		// They know one another. Nothing is asked before both run.
		Assigned: func(uid types.UID) (v1alpha1.AppliedHead, bool) { return n.assignments.AssignedHead(uid) },
		Lease:    func(environment string) time.Duration { return n.workloads.Lease(environment) },
	})
	n.assignments, err2 = assignments.New(assignments.Options{
		Objects: leading, Layers: t.layers, Changes: t.changes, Presence: n.presence, Recorder: t.recorder, Measures: n.measures.Asker(),
		Epoch: func() uint64 { return p.documents.Newest().Current().Epoch }, Log: s.partsLog,
	})
	n.workloads, err3 = workloads.New(workloads.Options{Objects: leading, Presence: n.presence, Recorder: t.recorder, Measures: n.measures, Log: s.partsLog, Metrics: takoMetrics{}})
	n.names, err5 = names.New(names.Options{
		Objects: local, Presence: n.presence, Store: t.names, Key: p.keys.Heads(), Epoch: func() uint64 { return p.documents.Newest().Current().Epoch }, Term: p.term, Log: s.partsLog,
	})
	return n, errors.Join(err1, err2, err3, err4, err5)
}

// background is what runs while the server does.
func (t *transfer) background(s *Server, p parts) []func(context.Context) {
	reported := s.reported
	return []func(context.Context){
		t.members.Run,
		p.documents.Run,
		reported("layers", t.layers.Run),
		reported("heads", t.heads.Run),
		func(ctx context.Context) { s.keepNames(ctx, p, t.names) },
		t.answers,
		reported("recorder", func(ctx context.Context) error {
			if !waitReady(ctx, t.loopback) {
				return nil
			}
			return t.recorder.Run(ctx)
		}),
		func(ctx context.Context) {
			s.opts.Log.Info("hosts are served", "address", t.address)
			if err := t.server.Run(ctx, t.listener); err != nil {
				t.fail(err)
			}
		},
	}
}

// reported runs a part of the server, and tells when that ends by itself.
func (s *Server) reported(what string, run func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("a part of the server has stopped", "component", what, "err", err)
		}
	}
}

// lead does what one server of all does, until the context ends.
func (s *Server) lead(ctx context.Context, p parts, a *assembly) {
	t := a.transfer
	now, err := t.begin()
	if err != nil {
		t.fail(err)
		return
	}
	if p.several != nil {
		t.term.Store(now)
		defer t.term.Store(nil)
		defer p.several.reports.Lead(now.presence)()
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, run := range []func(context.Context){
		s.reported("presence", now.presence.Run), s.reported("assignments", now.assignments.Run), s.reported("workloads", now.workloads.Run),
		s.reported("measures", now.measures.Run), s.reported("names", now.names.Run),
		func(ctx context.Context) { s.control(ctx, a) }, s.runSources(p, a.local, a.controllersConfig, t, now),
	} {
		all.Go(func() { run(ctx) })
	}
}

// judging keeps with a node whether the store knows what its host has accepted.
type judging struct {
	*heads.Heads
	presence follower.Register
}

// Shown is told of the highest state that a host has accepted.
func (j judging) Shown(ctx context.Context, who transferserver.Identity, mark catalog.Mark) error {
	err := j.Heads.Shown(ctx, who, mark)
	switch {
	case err == nil:
		j.presence.Judged(who, "")
	case reason.Is(err, reason.RollbackSuspected):
		j.presence.Judged(who, unknownState(mark))
	}
	return err // otherwise nobody knows now
}

// entrusted are the nodes for whose hosts another one keeps what is signed: of those that may be away, which all may where this server does not
// lead, and does not know.
func (t *transfer) entrusted(holder transferserver.Identity) []transferserver.Identity {
	all, now := t.heads.Entrusted(holder), t.term.Load()
	if now == nil {
		return all
	}
	return slices.DeleteFunc(all, func(of transferserver.Identity) bool {
		seen, known := now.presence.Of(types.UID(of.UID))
		return known && seen.Presence == fleetnode.Here
	})
}

// unknownState says what is wrong where a host has accepted what the store does not know.
func unknownState(accepted catalog.Mark) string {
	return "its host has accepted version " + strconv.FormatUint(accepted.Version, 10) + ", which the store of this server does not know: the store may be an old copy; " +
		"nothing new is signed for it until `tako trust bump-epoch`"
}

// suspect tells people that a host has accepted what the store does not know.
func (t *transfer) suspect(s heads.Suspicion) {
	about := core.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindNode, Name: s.Node.Name, UID: types.UID(s.Node.UID)}
	t.recorder.Tell(about, core.EventTypeWarning, "RollbackSuspected", unknownState(s.Shown))
}

// revision is that of the store. A majority of its members has to answer.
func revision(ctx context.Context, client *clientv3.Client) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdAnswerMax)
	defer cancel()
	got, err := client.Get(ctx, "/tako-health", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return uint64(got.Header.Revision), nil
}

// listenHosts listens where hosts are served.
func (s *Server) listenHosts() (net.Listener, error) {
	l, err := net.Listen("tcp", s.opts.TransferListen)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "listen for hosts on " + s.opts.TransferListen, Cause: err, Hint: "choose another address with --transfer-listen"}
	}
	return l, nil
}

// transferAddress is where hosts reach the server: what it listens on; when that is every address, the first name that it was given, or
// else the first address of the machine that others can reach.
func (s *Server) transferAddress(listening net.Addr) string {
	return s.reachable(s.opts.TransferListen, listening)
}

// reachable is where others reach a listener, of what was asked for and what it listens on.
func (s *Server) reachable(asked string, listening net.Addr) string {
	_, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return listening.String()
	}
	host, _, err := net.SplitHostPort(asked)
	if ip, parseErr := netip.ParseAddr(host); err == nil && host != "" && (parseErr != nil || !ip.IsUnspecified()) {
		return net.JoinHostPort(host, port)
	}
	if len(s.opts.Names) > 0 {
		return net.JoinHostPort(s.opts.Names[0], port)
	}
	return net.JoinHostPort(cmp.Or(ownAddress(), "127.0.0.1"), port)
}

// ownAddress is an address of this machine that is not for itself alone; empty when it has none.
func ownAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addresses {
		if n, is := a.(*net.IPNet); is && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}
