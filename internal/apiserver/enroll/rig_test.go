package enroll

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/klog/v2"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/auth"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/fleet/events"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// settleMax is far more than it takes to hear of a change.
const settleMax = time.Minute

// TestMain hears nothing of the library.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// store is the storage of a server, over an etcd of its own.
type store struct {
	objects *registry.Registry
	local   *registry.Local
}

func openStore(t *testing.T) *store {
	t.Helper()
	member, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	client, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: member.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	member.Attach(client)
	kinds := registry.Kinds()
	scheme := registry.NewScheme(kinds)
	backend := registry.NewBackend(scheme, client, nil)
	t.Cleanup(backend.Close)
	bounds, err := events.New(events.Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := registry.New(scheme, kinds, backend, nil, bounds)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		s := objects.Store(k.Resource())
		t.Cleanup(s.Destroy)
		ready := func(context.Context) (bool, error) { return s.ReadinessCheck() == nil, nil }
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, settleMax, true, ready); err != nil {
			t.Fatalf("%s: %v", s.DefaultQualifiedResource, err)
		}
	}
	return &store{objects: objects, local: registry.NewLocal(objects, admission.NewChainHandler())}
}

// fleet is the hosts of a cluster, and what has been heard of them.
type fleet struct {
	*Members
	t      *testing.T
	store  *store
	tokens *auth.Tokens
	chain  *trust.Chain
	shift  time.Duration // of the clock
	log    strings.Builder

	mu       sync.Mutex // guards attempts
	attempts []Attempt
}

// Joined notes an attempt.
func (f *fleet) Joined(a Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts = append(f.attempts, a)
}

func (f *fleet) last() Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attempts[len(f.attempts)-1]
}

func newFleet(t *testing.T, s *store, objects Objects) *fleet {
	t.Helper()
	now := time.Now()
	keys, err := trust.NewKeys(trust.NewClusterID(), now)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := trust.NewChain(trust.Genesis{Cluster: keys.Cluster(), CA: keys.CA(), Root: trust.NewSigningKey(), Heads: keys.Heads().Public()}, now, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, store: s, chain: chain}
	f.tokens = auth.NewTokens(s.objects.Store(v1alpha1.Resource(v1alpha1.ResourceTokens)), keys.Pepper(), f.now)
	f.Members, err = New(Options{
		Objects: objects, Tokens: f.tokens, Keys: keys, Chain: func() *trust.Chain { return f.chain }, Audit: f, Now: f.now, Log: slog.New(slog.NewTextHandler(&f.log, nil)),
		Address: func() string { return "tako.example:6444" },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.tokens.TellLines(f.JoinLine)
	for _, run := range []func(context.Context){f.tokens.Run, f.Run} {
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() { run(ctx) })
		t.Cleanup(func() {
			cancel()
			all.Wait()
		})
	}
	return f
}

func (f *fleet) now() time.Time { return time.Now().Add(f.shift) }

// token makes a Token, and returns what is shown once.
func (f *fleet) token(name string, spec v1alpha1.JoinToken, expires ...time.Time) v1alpha1.TokenStatus {
	f.t.Helper()
	o := joinToken(spec)
	o.Name = name
	if len(expires) > 0 {
		o.Spec.Expires = &metav1.Time{Time: expires[0]}
	}
	made, err := f.tokens.Mint(o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.must(f.store.local.Create(f.t.Context(), o))
	o.Status.Hash = made.Hash
	f.must(f.store.local.UpdateStatus(f.t.Context(), o))
	return made
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) uses(token string) int32 {
	f.t.Helper()
	o := &v1alpha1.Token{}
	f.must(f.store.local.Get(f.t.Context(), named(token), o))
	return o.Status.Uses
}

func (f *fleet) node(name string) *v1alpha1.Node {
	f.t.Helper()
	o, err := f.Members.node(f.t.Context(), name)
	f.must(err)
	return o
}

// arm is a host's end.
type arm struct {
	key     *trust.HostKey
	sealing *trust.SealingKey
}

func newArm() *arm { return &arm{trust.NewHostKey(), trust.NewSealingKey()} }

func (a *arm) request(t testing.TB, name, token string) wire.JoinRequest {
	t.Helper()
	der, err := trust.NodeRequest(a.key, a.sealing.Public())
	if err != nil {
		t.Fatal(err)
	}
	return wire.JoinRequest{Protocol: wire.Protocol, Token: token, Name: name, Request: der, SealingKey: a.sealing.Public()}
}

var home = netip.MustParseAddr("192.0.2.7")

// joins joins, and reads the certificate.
func (f *fleet) joins(a *arm, name, token string) (*x509.Certificate, wire.Credentials) {
	f.t.Helper()
	c, err := f.Join(f.t.Context(), home, a.request(f.t, name, token))
	if err != nil {
		f.t.Fatalf("join as %s: %v", name, err)
	}
	return f.read(a, c), c
}

func (f *fleet) read(a *arm, c wire.Credentials) *x509.Certificate {
	f.t.Helper()
	pair, err := a.key.TLS(c.Certificate)
	f.must(err)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: f.chain.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: f.now()}); err != nil {
		f.t.Errorf("the certificate: %v", err)
	}
	return pair.Leaf
}

func (f *fleet) refuses(what string, r wire.JoinRequest, code reason.Code, words ...string) {
	f.t.Helper()
	_, err := f.Join(f.t.Context(), home, r)
	if !reason.Is(err, code) {
		f.t.Errorf("%s: %v, want %s", what, err, code)
		return
	}
	said := err.Error() + reason.Of(err).Hint
	for _, w := range words {
		if !strings.Contains(said, w) {
			f.t.Errorf("%s: %q does not say %q", what, said, w)
		}
	}
	if r.Token != "" && strings.Contains(said, r.Token) {
		f.t.Errorf("%s: the words have the token: %q", what, said)
	}
	if a := f.last(); a.Outcome != OutcomeRefused || a.Code != code || a.Reason == "" || a.From != home {
		f.t.Errorf("%s: the audit log has %+v", what, a)
	}
	f.failures = newFailures[netip.Addr]()
}

func (f *fleet) eventually(what string, is func() bool) {
	f.t.Helper()
	err := wait.PollUntilContextTimeout(f.t.Context(), time.Millisecond, settleMax, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		f.t.Fatalf("not within %s: %s", settleMax, what)
	}
}
