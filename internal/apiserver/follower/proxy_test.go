package follower

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is a server that leads and one that follows it.
type pair struct {
	leader *httptest.Server
	proxy  *Proxy

	mu    sync.Mutex // guards what follows
	leads bool
	api   string
	ended chan struct{}
	came  []*http.Request // at the leader
}

const serverName = "loopback"

// newPair has the leader answer by answer.
func newPair(t *testing.T, answer http.HandlerFunc) *pair {
	t.Helper()
	cluster := trust.NewClusterID()
	ca, err := trust.NewCA(cluster, time.Now())
	must(t, err)
	served, err := ca.IssueServer(trust.ServerRequest{DNSNames: []string{serverName}}, time.Now())
	must(t, err)
	p := &pair{}
	p.leader = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.came = append(p.came, r)
		p.mu.Unlock()
		answer(w, r)
	}))
	p.leader.TLS = &tls.Config{Certificates: []tls.Certificate{served.TLS()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	p.leader.EnableHTTP2 = true
	p.leader.StartTLS()
	t.Cleanup(p.leader.Close)
	peer := NewIdentity(func(now time.Time) (*trust.Credential, error) {
		return ca.IssueClient(trust.ClientRequest{User: "tako:server:b", Groups: []string{user.SystemPrivilegedGroup}}, now)
	}, nil)
	p.lead(false, strings.TrimPrefix(p.leader.URL, "https://"))
	p.proxy = NewProxy(ProxyOptions{
		Leader: func() (bool, string, <-chan struct{}, <-chan struct{}) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.leads, p.api, p.ended, make(chan struct{})
		},
		Certificate: peer.Certificate, Authorities: ca.Pool(), ServerName: serverName, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(p.proxy.transport.CloseIdleConnections)
	return p
}

// lead says who leads from now on.
func (p *pair) lead(self bool, api string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		close(p.ended)
	}
	p.leads, p.api, p.ended = self, api, make(chan struct{})
}

// ask asks the follower, as anna, who was let in there.
func (p *pair) ask(ctx context.Context, w http.ResponseWriter, method, resource string, headers map[string]string) {
	r := httptest.NewRequest(method, "https://b:6443/apis/tako.dev/v1alpha1/"+resource+"?watch=1", http.NoBody)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, APIGroup: v1alpha1.GroupName, Resource: resource})
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "anna", UID: "7", Groups: []string{"ops", "system:authenticated"}, Extra: map[string][]string{"team/x": {"one"}}})
	p.proxy.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "here") })).ServeHTTP(w, r.WithContext(ctx))
}

// TestLeaderAnswers: what the leader alone knows is answered by it, as whoever asks, and with nothing that he has shown to this server.
func TestLeaderAnswers(t *testing.T) {
	p := newPair(t, func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, "there "+r.URL.RequestURI()) })
	got := httptest.NewRecorder()
	p.ask(t.Context(), got, http.MethodGet, v1alpha1.ResourceNodes, map[string]string{"Authorization": "Bearer secret", "Impersonate-User": "root", "Impersonate-Group": "system:masters"})
	if got.Code != http.StatusOK || got.Body.String() != "there /apis/tako.dev/v1alpha1/nodes?watch=1" {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	instances := httptest.NewRecorder()
	if p.ask(t.Context(), instances, http.MethodGet, v1alpha1.ResourceInstances, nil); instances.Body.String() != "there /apis/tako.dev/v1alpha1/instances?watch=1" {
		t.Errorf("instances: %d %s", instances.Code, instances.Body)
	}
	asked := httptest.NewRecorder()
	if p.ask(t.Context(), asked, http.MethodPost, v1alpha1.ResourcePlans, nil); asked.Body.String() != "there /apis/tako.dev/v1alpha1/plans?watch=1" {
		t.Errorf("plans: %d %s", asked.Code, asked.Body)
	}
	r := p.came[0]
	if who := r.TLS.PeerCertificates[0].Subject.CommonName; who != "tako:server:b" {
		t.Errorf("it is asked by %s", who)
	}
	for name, want := range map[string][]string{
		"Authorization": nil, "Impersonate-User": {"anna"}, "Impersonate-Uid": {"7"}, "Impersonate-Group": {"ops", "system:authenticated"},
		"Impersonate-Extra-Team%2fx": {"one"},
	} {
		if got := r.Header.Values(name); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for what, c := range map[string][2]string{"a write": {http.MethodPost, v1alpha1.ResourceNodes}, "what all know": {http.MethodGet, v1alpha1.ResourceNodeConfigs}, "workloads": {http.MethodGet, v1alpha1.ResourceWorkloads}} {
		got := httptest.NewRecorder()
		if p.ask(t.Context(), got, c[0], c[1], nil); got.Body.String() != "here" {
			t.Errorf("%s is answered %d %s", what, got.Code, got.Body)
		}
	}
	p.lead(true, "")
	if got = httptest.NewRecorder(); true {
		p.ask(t.Context(), got, http.MethodGet, v1alpha1.ResourceNodes, nil)
	}
	if got.Body.String() != "here" {
		t.Errorf("the leader itself is answered %d %s", got.Code, got.Body)
	}
}

// TestNobodyLeads: who asks then is told to ask again, as clients of Kubernetes do by themselves; and what was passed on already is not passed on.
func TestNobodyLeads(t *testing.T) {
	p := newPair(t, func(http.ResponseWriter, *http.Request) {})
	for what, c := range map[string]struct {
		api     string
		headers map[string]string
	}{
		"nobody leads":    {"", nil},
		"passed on":       {p.api, map[string]string{forwarded: "1"}},
		"nobody is there": {"127.0.0.1:1", nil},
	} {
		p.lead(false, c.api)
		got := httptest.NewRecorder()
		p.ask(t.Context(), got, http.MethodGet, v1alpha1.ResourceNodes, c.headers)
		var status metav1.Status
		must(t, json.Unmarshal(got.Body.Bytes(), &status))
		if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") != "1" || status.Reason != metav1.StatusReasonServiceUnavailable ||
			!strings.Contains(status.Message, reason.NoLeader.String()) {
			t.Errorf("%s: %d %v %s", what, got.Code, got.Header(), got.Body)
		}
	}
	if len(p.came) > 0 {
		t.Errorf("the leader was asked %d times", len(p.came))
	}
}

// TestWatchEndsWithTheLead: what is open when another server begins to lead ends, so that whoever watches asks that one.
func TestWatchEndsWithTheLead(t *testing.T) {
	p := newPair(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	follower := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ask(r.Context(), w, http.MethodGet, v1alpha1.ResourceNodes, nil)
	}))
	defer follower.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, follower.URL, http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "first" {
		t.Fatalf("the first event comes as %q", lines.Text())
	}
	p.lead(true, "")
	if lines.Scan() {
		t.Errorf("it goes on with %q", lines.Text())
	}
}

// TestStranded: a server sends its hosts elsewhere while it knows nothing new and another one is ready, and at no other time: not while all are cut
// off, and not while nobody else is there.
func TestStranded(t *testing.T) {
	ready := http.StatusOK
	p := newPair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("it is asked for %s", r.URL.Path)
		}
		w.WriteHeader(ready)
	})
	fresh, others := true, []string{p.api, "127.0.0.1:1"}
	s := NewStranded(StrandedOptions{Fresh: func(time.Time) bool { return fresh }, Others: func() []string { return others }, Proxy: p.proxy})
	look := func(what string, elsewhere bool) {
		t.Helper()
		s.look(t.Context(), time.Now())
		err := s.Serving()
		if elsewhere != (err != nil) || err != nil && (!reason.Is(err, reason.StoreUnreachable) || reason.Of(err).After == 0) {
			t.Errorf("%s: %v", what, err)
		}
	}
	look("all is well", false)
	fresh = false
	look("it knows nothing new", true)
	ready = http.StatusInternalServerError
	look("nobody knows anything new", false)
	ready, others = http.StatusOK, others[1:]
	look("nobody else is there", false)
	others = nil
	look("it is alone", false)
}
