package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	admissionchain "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/server"
	restclient "k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/admission"
	"tako.dev/tako/internal/apiserver/audit"
	"tako.dev/tako/internal/apiserver/auth"
	"tako.dev/tako/internal/apiserver/bundles"
	"tako.dev/tako/internal/apiserver/election"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/missed"
	"tako.dev/tako/internal/apiserver/objects"
	"tako.dev/tako/internal/apiserver/plans"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/apiserver/spare"
	"tako.dev/tako/internal/apiserver/state"
	"tako.dev/tako/internal/controllers"
	"tako.dev/tako/internal/controllers/preview"
	"tako.dev/tako/internal/fleet/events"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/snapshots"
	"tako.dev/tako/internal/trust"
)

// Server is the API server. It is made by New and lives in Run.
type Server struct {
	opts     Options
	partsLog *slog.Logger // for the library and the controllers; made in Run
	hooks    webhooks
	// For tests: how etcd's watches are heard, where that is not as they are told, and how often what is known is compared with etcd.
	hear    func(clientv3.Watcher) clientv3.Watcher
	compare time.Duration
}

// New checks the options, and starts nothing.
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return &Server{opts: opts}, nil
}

// Run serves until the context ends, then lets the requests in flight finish. It may be called once in a process.
func (s *Server) Run(ctx context.Context) (err error) {
	s.partsLog = parting(s.opts.Log, ctx.Done())
	if err := spareMemory(); err != nil {
		return err
	}
	dir, err := state.Open(s.opts.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	captureLibrary(s.partsLog) // not before it is known that no other server has the directory: it may be of this process
	// Before any key is made: a typing mistake leaves nothing behind.
	listener, err := net.Listen("tcp", s.opts.Listen)
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "listen on " + s.opts.Listen, Cause: err, Hint: "choose another address with --listen"}
	}
	defer func() { _ = listener.Close() }() // once it serves, the library has closed it
	hosts, err := s.listenHosts()
	if err != nil {
		return err
	}
	defer func() { _ = hosts.Close() }() // once it serves, it was closed with the service
	store, err := s.openStore(ctx, dir)
	if err != nil {
		return err
	}
	defer store.close()
	keys, documents, err := s.openKeys(ctx, dir, store)
	if err != nil {
		return err
	}
	log, err := audit.Open(dir.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	names, addresses := hostsOf(s.opts.Names, s.opts.Listen, s.opts.TransferListen)
	own, err := newCertificate(keys.CA(), names, addresses, s.opts.Log)
	if err != nil {
		return err
	}
	kept, err := objects.New(dir.Join(objectsName))
	if err != nil {
		return err
	}
	lists, err := bundles.New(dir.Join(bundlesName))
	if err != nil {
		return err
	}
	sent, err := s.newSnapshots(dir.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sent.Close()) }()
	p := parts{shelf: kept, bundles: lists, snapshots: sent, dir: dir, client: store.client, member: store.member, keys: keys, documents: documents, certificate: own, listener: listener, hosts: hosts, audit: log}
	if p.several, err = s.newSeveral(p); err != nil {
		return err
	}
	a, err := s.assemble(p)
	if err != nil {
		return err
	}
	return s.serve(ctx, a, dir, store, own)
}

// openKeys reads the cluster's keys and trust documents, and makes them for a new cluster.
func (s *Server) openKeys(ctx context.Context, dir *state.Dir, store *store) (*trust.Keys, *state.Documents, error) {
	secret, created, err := state.MachineSecret(ctx, store.client.Client, dir)
	if err != nil {
		return nil, nil, err
	}
	if created {
		s.opts.Log.Info("made a machine secret: copy the file to where it survives this machine", "path", dir.Join("machine-secret"))
	}
	keys, err := state.ClusterKeys(ctx, store.client.Client, secret, time.Now())
	if err != nil {
		return nil, nil, err
	}
	chain, created, err := state.Chain(ctx, store.client.Client, dir, keys, time.Now())
	if created {
		s.opts.Log.Info("made a root key: `tako trust export-root` takes it to where it is safe", "path", dir.Join("trust/root-key"))
	}
	if err != nil {
		return nil, nil, err
	}
	return keys, state.NewDocuments(store.client.Client, keys, chain, s.opts.Log), nil
}

// serve runs everything that has been put together, and returns when all of it has stopped.
func (s *Server) serve(ctx context.Context, a *assembly, dir *state.Dir, store *store, own *certificate) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	all.Go(func() { own.Run(ctx) })
	if store.member != nil {
		all.Go(func() { store.member.Maintain(ctx, store.client.Client, s.opts.Log) })
	}
	if collects() {
		all.Go(func() { spare.Run(ctx) })
	}
	for _, run := range a.background {
		all.Go(func() { run(ctx) })
	}
	admin := newKubeconfig(dir.Join(kubeconfigName), a.url, own.ca, s.opts.Log)
	own.AddListener(admin)
	all.Go(func() { admin.Run(ctx) })
	all.Go(func() { s.announce(ctx, a, admin) })
	stopped := make(chan error, 1)
	go func() {
		err := a.server.PrepareRun().RunWithContext(ctx)
		cancel(nil)
		all.Wait()
		a.backend.Close()
		stopped <- err
	}()
	select {
	case err := <-stopped:
		return err
	case err := <-a.transfer.failed:
		cancel(err)
		return errors.Join(err, <-stopped)
	case <-store.ended:
	}
	// Without its store the server is nothing: whoever watches over it starts it again. Who waits for an answer of the store gets
	// none, and what waits for those ends with the process.
	cancel(store.member.Err())
	select {
	case <-stopped:
	case <-time.After(endMax):
	}
	return store.member.Err()
}

// endMax is how long a server whose store has ended lets other requests finish.
const endMax = 5 * time.Second

// store is the way to etcd.
type store struct {
	client *kubernetes.Client
	member *etcd.Member    // nil when others run the cluster
	ended  <-chan struct{} // closed when the member has ended by itself
}

func (s *Server) openStore(ctx context.Context, dir *state.Dir) (*store, error) {
	to, st := s.opts.Etcd, &store{}
	if len(to.Endpoints) == 0 {
		member, err := etcd.Start(ctx, etcd.Options{Dir: dir.Join("etcd"), QuotaBytes: s.opts.QuotaBytes, Log: s.opts.Log})
		if err != nil {
			return nil, err
		}
		st.member, st.ended = member, member.Ended()
		to = etcd.Connection{Endpoints: member.Endpoints()}
	}
	client, err := etcd.Connect(ctx, to)
	if err != nil {
		st.close()
		return nil, err
	}
	st.client = client
	if st.member != nil {
		st.member.Attach(client)
		takoMetrics{}.MustRegister(st.member.Metrics()...)
	} else {
		client.KV = election.Fence(client.KV) // others have a way to it, too
	}
	if s.hear != nil {
		client.Watcher = s.hear(client.Watcher)
	}
	return st, nil
}

func (s *store) close() {
	if s.client != nil {
		_ = s.client.Close() // nothing is written any more
	}
	if s.member != nil {
		s.member.Close()
	}
}

// parts are what a server is assembled from.
type parts struct {
	dir         *state.Dir
	client      *kubernetes.Client
	member      *etcd.Member // nil when others run the cluster
	keys        *trust.Keys
	documents   *state.Documents
	certificate *certificate
	listener    net.Listener // for people and controllers
	hosts       net.Listener
	audit       *audit.Log
	shelf       *objects.Shelf
	bundles     *bundles.Store
	snapshots   *snapshots.Store
	several     *several // nil: this is the only server
}

// assembly is a server that is ready to run.
type assembly struct {
	server      *server.GenericAPIServer
	backend     *registry.Backend
	background  []func(context.Context)
	controllers *controllers.Controllers
	transfer    *transfer
	local       *registry.Local
	// controllersConfig reaches the API for who works only while this server leads.
	controllersConfig *restclient.Config
	url               string
}

// assemble puts the server together.
func (s *Server) assemble(p parts) (*assembly, error) {
	kinds := registry.Kinds()
	scheme := registry.NewScheme(kinds)
	backend := registry.NewBackend(scheme, p.client, transformers(p.keys.AtRest()))
	tokens := &lateMinter{}
	bounds, err := events.New(events.Options{})
	if err != nil {
		backend.Close()
		return nil, err
	}
	objects, err := registry.New(scheme, kinds, backend, tokens, bounds)
	if err != nil {
		backend.Close()
		return nil, err
	}
	known := auth.NewTokens(objects.Store(v1alpha1.Resource(v1alpha1.ResourceTokens)), p.keys.Pepper(), time.Now)
	tokens.Minter = known
	of := func(resource string) auth.Source { return objects.Store(rbac.Resource(resource)) }
	roles := auth.NewRBAC(auth.Sources{Roles: of("roles"), RoleBindings: of("rolebindings"), ClusterRoles: of("clusterroles"), ClusterRoleBindings: of("clusterrolebindings")})
	s.hooks.audit = p.audit.Backend()
	config, err := s.config(p, scheme, backend, known, roles)
	if err != nil {
		backend.Close()
		return nil, err
	}
	watches := auth.NewWatches(config.Authorization.Authorizer, roles.Changes)
	config.BuildHandlerChainFunc = func(api http.Handler, c *server.Config) http.Handler {
		return s.handlers(api, c, watches, p)
	}
	config.AdmissionControl = admissionchain.NewChainHandler(
		admission.NewLifecycle(objects.Store(core.Resource("namespaces"))), admission.NewRights(roles, config.Authorization.Authorizer),
		admission.NewDefinitions(append(registry.Groups(kinds), authentication.GroupName, authorization.GroupName)...),
	)
	objects.AddVirtual(authentication.SchemeGroupVersion, "selfsubjectreviews", auth.WhoAmI())
	objects.AddVirtual(authorization.SchemeGroupVersion, "selfsubjectaccessreviews", auth.MayI(config.Authorization.Authorizer))
	objects.AddVirtual(authorization.SchemeGroupVersion, "selfsubjectrulesreviews", auth.WhatMayI(roles))
	objects.AddVirtual(authorization.SchemeGroupVersion, "subjectaccessreviews", auth.MaySomebody(config.Authorization.Authorizer))
	stands, err := s.newStanding(p)
	if err != nil {
		backend.Close()
		return nil, err
	}
	objects.AddVirtual(v1alpha1.SchemeGroupVersion, v1alpha1.ResourceServers, registry.NewServerStore(stands.read))
	var hosts *transfer // nobody asks before it is there
	objects.AddVirtual(v1alpha1.SchemeGroupVersion, v1alpha1.ResourcePlans, plans.New(plans.Options{
		Objects: objects, Authorizer: config.Authorization.Authorizer, Hosts: func() (preview.Hosts, bool) { return hosts.hosts() },
	}))
	generic, err := s.chain(config, backend, objects)
	if err != nil {
		backend.Close()
		return nil, err
	}
	local := registry.NewLocal(objects, config.AdmissionControl)
	leading := p.several.leading(config.LoopbackClientConfig)
	work, err := controllers.New(controllers.Options{Config: leading, Objects: p.several.objects(local), Events: bounds, Log: s.partsLog, Metrics: takoMetrics{}})
	if err != nil {
		backend.Close()
		return nil, err
	}
	hosts, err = s.newTransfer(p, objects, local, known, config.LoopbackClientConfig)
	if err != nil {
		backend.Close()
		return nil, err
	}
	stands.hosts = hosts
	a := &assembly{
		server: generic, backend: backend, background: append(hosts.background(s, p), known.Run, roles.Run, watches.Run, s.collectObjects(p, local, config.LoopbackClientConfig), s.runBundles(p, local, config.LoopbackClientConfig)), controllers: work, transfer: hosts,
		local: local, controllersConfig: leading, url: "https://" + config.ExternalAddress,
	}
	compare := missed.Options{Log: s.partsLog, Metrics: takoMetrics{}, Every: s.compare}
	a.background = append(a.background, s.reported("missed", func(ctx context.Context) error { return backend.Compare(ctx, compare) }))
	a.background = append(a.background, p.several.background(hosts, s, func(ctx context.Context) { s.lead(ctx, p, a) })...)
	return a, nil
}

// chain makes the server of our kinds, which hands what it does not know to that of the kinds that others define.
func (s *Server) chain(config *server.Config, backend *registry.Backend, objects *registry.Registry) (*server.GenericAPIServer, error) {
	others, err := newOthers(config, backend)
	if err != nil {
		return nil, err
	}
	generic, err := config.Complete(nil).New("tako", others.server.GenericAPIServer)
	if err != nil {
		return nil, err
	}
	return generic, errors.Join(objects.Install(generic), others.tellIn(generic), addHooks(generic, objects))
}

// lateMinter lets the registry make tokens with what is made from the registry.
type lateMinter struct{ registry.Minter }

// announce says that the server answers, once it does.
func (s *Server) announce(ctx context.Context, a *assembly, admin *kubeconfig) {
	if err := admin.write(time.Now()); err != nil {
		s.opts.Log.Error("write the administrator's kubeconfig", "path", admin.path, "err", err)
		admin.Enqueue() // the one of an earlier start may be good, and so are tokens
	}
	if waitReady(ctx, a.server.LoopbackClientConfig) {
		s.opts.OnReady(a.url, admin.path)
	}
}

// controlPause is how long the controllers rest after they have failed.
const controlPause = 5 * time.Second

// control runs the controllers, once the server answers, and again when they fail: the API is of use without them.
func (s *Server) control(ctx context.Context, a *assembly) {
	if !waitReady(ctx, a.server.LoopbackClientConfig) {
		return
	}
	for {
		err := a.controllers.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.opts.Log.Error("controllers have stopped", "err", err, "again", controlPause)
		select {
		case <-time.After(controlPause):
		case <-ctx.Done():
			return
		}
	}
}

// hostsOf are the names and addresses of the server's certificate: what it listens on, and more.
func hostsOf(more []string, listens ...string) (names []string, addresses []net.IP) {
	more = slices.Clone(more)
	for _, listen := range listens {
		if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
			more = append(more, host)
		}
	}
	names = []string{"localhost", server.LoopbackClientServerNameOverride}
	addresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, h := range more {
		if ip := net.ParseIP(h); ip == nil {
			names = append(names, h)
		} else if !ip.IsUnspecified() && !slices.ContainsFunc(addresses, ip.Equal) {
			addresses = append(addresses, ip)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), addresses
}
