package apiserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	hostend "tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// member is a host that has joined: what tako-agent is to the transfer, in memory.
type member struct {
	host    *trust.HostKey
	sealing *trust.SealingKey
	address string
	node    catalog.Node
	store   clienttest.Memory
	changed chan struct{}
	states  chan core.State

	mu      sync.Mutex // guards all below
	cert    tls.Certificate
	chain   *trust.Chain
	verdict wire.Verdict
	mark    catalog.Mark
	configs []wire.ConfigReport
}

var (
	_ hostend.Host     = (*member)(nil)
	_ hostend.Identity = (*member)(nil)
)

// joinLine makes a token for hosts.
func joinLine(t *testing.T, name string, spec v1alpha1.JoinToken) trust.JoinLine {
	t.Helper()
	code, b := call(t, theSite.admin, http.MethodPost, "/apis/tako.dev/v1alpha1/tokens", plainJSON, &v1alpha1.Token{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindToken},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TokenSpec{Type: v1alpha1.TokenJoin, Join: &spec},
	})
	if code != http.StatusCreated {
		t.Fatalf("make a token: %d %s", code, b)
	}
	token := decode[v1alpha1.Token](t, b)
	line, err := trust.ParseJoinLine(token.Status.JoinLine)
	if err != nil {
		t.Fatalf("the join line %q: %v", token.Status.JoinLine, err)
	}
	return line
}

// join makes a host a member.
func join(t *testing.T, line trust.JoinLine, name string) (*member, error) {
	t.Helper()
	m := &member{host: trust.NewHostKey(), sealing: trust.NewSealingKey(), address: line.Address, changed: make(chan struct{}, 1), states: make(chan core.State, 16)}
	c, err := hostend.Join(t.Context(), hostend.Joining{Line: line, Name: name, Host: m.host, Sealing: m.sealing, Built: time.Now()})
	if err != nil {
		return nil, err
	}
	documents, err := trust.DecodeDocuments(c.Trust)
	if err != nil {
		t.Fatal(err)
	}
	if m.chain, err = trust.Verify(documents, line.Trust, time.Now()); err != nil {
		t.Fatal(err)
	}
	if m.cert, err = m.host.TLS(c.Certificate); err != nil {
		t.Fatal(err)
	}
	m.node = catalog.Node{Cluster: m.chain.Current().Cluster, Name: c.Name, UID: c.UID}
	return m, nil
}

func (m *member) Node() catalog.Node { return m.node }
func (m *member) Servers() []string  { return []string{m.address} }

func (m *member) Certificate() (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &m.cert, nil
}

func (m *member) Trust() *trust.Chain {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chain
}

func (m *member) Extend(longer *trust.Chain) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chain = longer
	return nil
}

func (m *member) Request() ([]byte, error) { return trust.NodeRequest(m.host, m.sealing.Public()) }

func (m *member) Renewed(certificate []byte) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cert, err = m.host.TLS(certificate)
	return err
}

// Activate takes everything, and all of it is as declared at once.
func (m *member) Activate(_ context.Context, s core.State) (wire.Verdict, error) {
	m.mu.Lock()
	m.mark, m.verdict = s.Mark, wire.Verdict{Type: wire.Applied}
	m.configs = nil
	for _, l := range s.List {
		m.configs = append(m.configs, wire.ConfigReport{ID: l.ID, Converged: true, Settled: true})
	}
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
	m.states <- s
	return wire.Verdict{Type: wire.Applied}, nil
}

func (m *member) Report() wire.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return wire.Report{Enforced: m.mark, Verdict: m.verdict, Configs: m.configs}
}

func (m *member) Changed() <-chan struct{} { return m.changed }

func (m *member) Answer(_ context.Context, q wire.Question, w io.Writer) error {
	if q.What == wire.AskLogs {
		return &reason.Error{Code: reason.ResourceUnknown, Doing: "read the log of " + q.Subject}
	}
	_, err := fmt.Fprintf(w, `{"what":%q}`+"\n", q.What)
	return err
}

// run runs the host until the test ends.
func (m *member) run(t *testing.T) {
	t.Helper()
	c, err := hostend.New(hostend.Options{Store: &m.store, Host: m, Identity: m, Session: wire.Session{ID: m.node.Name, Start: 1}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// next waits for a state in which a file has some content.
func (m *member) next(t *testing.T, path, content string) core.State {
	t.Helper()
	late := time.After(startMax)
	for {
		select {
		case s := <-m.states:
			if m.content(t, s, path) == content {
				return s
			}
		case <-late:
			t.Fatalf("no state with %s in %s", content, path)
		}
	}
}

// content is that of a file in a state.
func (m *member) content(t *testing.T, s core.State, path string) string {
	t.Helper()
	r := declare.Resource{File: &declare.File{Path: path}}
	key := catalog.KeyOf(r.Claim().String())
	for _, l := range s.List {
		body, err := m.store.Body(l.Root, key)
		if err != nil {
			t.Fatal(err)
		}
		if body == nil {
			continue
		}
		d, err := catalog.DecodeBody(key, body)
		if err != nil {
			t.Fatal(err)
		}
		return d.Resource.File.Content
	}
	return ""
}

func clusterConfig(name, path, content, environment string) *v1alpha1.ClusterNodeConfig {
	return &v1alpha1.ClusterNodeConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindClusterNodeConfig},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: declare.NodeConfigSpec{
			Selector:  declare.Selector{MatchLabels: map[string]string{"of": environment}},
			Resources: []declare.Resource{{Name: "f", File: &declare.File{Path: path, Content: content}}},
		},
	}
}

// apply declares, and returns when the API has answered.
func apply(t *testing.T, c *v1alpha1.ClusterNodeConfig) {
	t.Helper()
	path := "/apis/tako.dev/v1alpha1/clusternodeconfigs/" + c.Name + "?fieldManager=test&force=true"
	if code, b := call(t, theSite.admin, http.MethodPatch, path, "application/apply-patch+yaml", c); code >= 300 {
		t.Fatalf("apply %s: %d %s", c.Name, code, b)
	}
}

func node(t *testing.T, name string) v1alpha1.Node {
	t.Helper()
	code, b := call(t, theSite.admin, http.MethodGet, "/apis/tako.dev/v1alpha1/nodes/"+name, plainJSON, nil)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, b)
	}
	return decode[v1alpha1.Node](t, b)
}

// TestPathToHost: what is declared reaches a host that has joined, and what the host says is seen in its Node. It answers questions. When
// its Node is deleted it is nobody.
func TestPathToHost(t *testing.T) {
	line := joinLine(t, "path", v1alpha1.JoinToken{Labels: map[string]string{"of": "path"}, Pattern: "path-*"})
	m, err := join(t, line, "path-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := join(t, line, "path-2"); !reason.Is(err, reason.TokenRefused) && !reason.Is(err, reason.NotAllowed) {
		t.Logf("a token for one host shown by another: %v", err)
		if err == nil {
			t.Error("it is let in")
		}
	}
	m.run(t)
	apply(t, clusterConfig("path", "/etc/path", "one", "path"))
	m.next(t, "/etc/path", "one")
	for i := range 5 {
		content := fmt.Sprint("change ", i)
		began := time.Now()
		apply(t, clusterConfig("path", "/etc/path", content, "path"))
		applied := time.Since(began)
		s := m.next(t, "/etc/path", content)
		t.Logf("version %d: the API has answered after %s, the host has it after %s", s.Mark.Version, applied, time.Since(began))
	}
	becomes(t, "the host is seen to have the newest head", func() (bool, string) {
		n := node(t, "path-1")
		h := n.Status.AppliedHead
		text, _ := json.Marshal(n.Status)
		m.mu.Lock()
		defer m.mu.Unlock()
		return h != nil && fmt.Sprint(h.Version) == fmt.Sprint(m.mark.Version), string(text)
	})
	const of = "/apis/tako.dev/v1alpha1/nodes/path-1/"
	if code, b := call(t, theSite.admin, http.MethodGet, of+"history", plainJSON, nil); code != http.StatusOK || string(b) != `{"what":"history"}`+"\n" {
		t.Errorf("history: %d %s", code, b)
	}
	if code, b := call(t, theSite.admin, http.MethodGet, of+"logs?subject=ssh.service", plainJSON, nil); code != http.StatusUnprocessableEntity || !strings.Contains(string(b), "ssh.service") {
		t.Errorf("logs that the host refuses: %d %s", code, b)
	}
	uid := string(node(t, "path-1").UID)
	if code, b := call(t, theSite.admin, http.MethodDelete, strings.TrimSuffix(of, "/"), plainJSON, nil); code != http.StatusOK {
		t.Fatalf("%d %s", code, b)
	}
	becomes(t, "the host is refused, which is in the audit log", func() (bool, string) {
		known, err := os.ReadFile(filepath.Join(theSite.dir, "audit.log"))
		if err != nil {
			return false, err.Error()
		}
		lines := slices.DeleteFunc(strings.Split(string(known), "\n"), func(l string) bool { return !strings.Contains(l, wire.PathWatch) })
		who := fmt.Sprintf(`"user":{"username":"system:node:path-1","uid":%q}`, uid)
		return len(lines) > 0 && strings.Contains(lines[len(lines)-1], `"code":401`) && strings.Contains(lines[len(lines)-1], who), strings.Join(lines, "\n")
	})
}

// becomes waits until something is so; it says how it was last.
func becomes(t *testing.T, what string, so func() (bool, string)) {
	t.Helper()
	late := time.After(startMax)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, last := so()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not so: %s; last %s", what, last)
		}
	}
}

// TestNodeIsNoUser: the certificate of a host opens nothing in the API.
func TestNodeIsNoUser(t *testing.T) {
	m, err := join(t, joinLine(t, "user", v1alpha1.JoinToken{Name: "user-1"}), "user-1")
	if err != nil {
		t.Fatal(err)
	}
	http2 := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: m.chain.Pool(), Certificates: []tls.Certificate{m.cert}}, ForceAttemptHTTP2: true}
	defer http2.CloseIdleConnections()
	resp, err := (&http.Client{Transport: http2}).Get(theSite.admin.Host + "/apis/tako.dev/v1alpha1/nodes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s", resp.Status)
	}
}
