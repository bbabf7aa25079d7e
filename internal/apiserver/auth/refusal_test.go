package auth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// door is what the library has before the API, with our authenticators. Whoever comes through gets 204.
func door(p *people, log *slog.Logger) http.Handler {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	who := Logged(Authenticators(p.keys.CA(), p.tokens, p.tokens.now), log)
	h := filters.WithAuthentication(inside, who, filters.Unauthorized(serializer.NewCodecFactory(scheme)), nil, nil)
	return WithWords(filters.WithRequestInfo(h, &request.RequestInfoFactory{}))
}

// certificate is what a client shows who has been given one at a time.
func certificate(t *testing.T, ca *trust.CA, at time.Time) *tls.ConnectionState {
	t.Helper()
	c, err := ca.IssueClient(trust.ClientRequest{User: "ann", Lifetime: 24 * time.Hour}, at)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Certificate()}}
}

// hostCertificate is what a host shows that has joined.
func hostCertificate(t *testing.T, keys *trust.Keys, at time.Time) *tls.ConnectionState {
	t.Helper()
	key := trust.NewHostKey()
	der, err := trust.NodeRequest(key, trust.NewSealingKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	request, err := trust.ParseNodeRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	if der, err = keys.CA().IssueNode(request, trust.NodeCertificate{Cluster: keys.Cluster(), Name: "web-1", UID: "uid"}, at); err != nil {
		t.Fatal(err)
	}
	pair, err := key.TLS(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}}
}

// TestHostsAreNoUsers: also where a host's certificate says what a user is called, as one that another version has issued might.
func TestHostsAreNoUsers(t *testing.T) {
	asked := 0
	p := persons{authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		asked++
		return &authenticator.Response{User: &user.DefaultInfo{Name: "ann"}}, true, nil
	})}
	machine := &url.URL{Scheme: "spiffe", Host: "x", Path: "/y"}
	for _, c := range []struct {
		tls   *tls.ConnectionState
		known bool
	}{
		{nil, true}, {&tls.ConnectionState{}, true}, {&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}, true},
		{&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "ann"}, URIs: []*url.URL{machine}}}}, false},
	} {
		before := asked
		_, known, err := p.AuthenticateRequest(&http.Request{TLS: c.tls})
		if known != c.known || (asked > before) != c.known || reason.Is(err, reason.CertificateRefused) == c.known {
			t.Errorf("%+v: %v, %v", c.tls, known, err)
		}
	}
}

// TestWhoLearnsWhy: who shows something that we gave him is told that its time is over or to come; to others the door is shut.
func TestWhoLearnsWhy(t *testing.T) {
	now := time.Now() // certificates are checked by the machine's clock
	ago, ahead := now.AddDate(-1, 0, 0), now.AddDate(1, 0, 0)
	p := newPeople(t, now, map[string]v1alpha1.TokenSpec{"ann": person("ann"), "old": until(person("old"), ago), "early": person("early")},
		map[string]time.Time{"early": ahead})
	other, err := trust.NewCA(trust.NewClusterID(), now.AddDate(-2, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	layout := "2006-01-02 15:04:05 UTC"
	for _, c := range []struct {
		name   string
		token  string
		tls    *tls.ConnectionState
		status int
		words  []string // none is the library's word and nothing else
	}{
		{"nobody", "", nil, 401, nil},
		{"good token", p.shown["ann"], nil, 204, nil},
		{"expired token", p.shown["old"], nil, 401, []string{"it has expired: the token was valid until " + ago.UTC().Format(layout), "the server's clock says " + now.UTC().Format(layout), "`tako token create user`"}},
		{"token of next year", p.shown["early"], nil, 401, []string{"it is not valid yet: the token is valid from " + ahead.UTC().Format(layout), "the server's clock"}},
		{"token that nobody made", trust.NewToken(trust.TokenUser).Reveal(), nil, 401, nil},
		{"join token", trust.NewToken(trust.TokenJoin).Reveal(), nil, 401, nil},
		{"nonsense", "nonsense", nil, 401, nil},
		{"good certificate", "", certificate(t, p.keys.CA(), now), 204, nil},
		{"expired certificate", "", certificate(t, p.keys.CA(), ago), 401, []string{`it has expired: the certificate of "ann" was valid until`, "the server's clock"}},
		{"certificate of next year", "", certificate(t, p.keys.CA(), ahead), 401, []string{`it is not valid yet: the certificate of "ann" is valid from`, "the server's clock"}},
		{"good certificate of another authority", "", certificate(t, other, now), 401, nil},
		{"expired certificate of another authority", "", certificate(t, other, ago), 401, nil},
		{"certificate of next year of another authority", "", certificate(t, other, ahead), 401, nil},
		{"certificate of a host", "", hostCertificate(t, p.keys, now), 401, nil},
		{"expired certificate of a host", "", hostCertificate(t, p.keys, ago), 401, nil},
		{"expired certificate with a good token", p.shown["ann"], certificate(t, p.keys.CA(), ago), 204, nil},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		r.TLS = c.tls
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		door(p, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, w.Code, c.status, w.Body)
			continue
		}
		if c.status != http.StatusUnauthorized {
			continue
		}
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Kind != "Status" || status.Code != 401 || status.Reason != metav1.StatusReasonUnauthorized {
			t.Errorf("%s: %v in %s", c.name, err, w.Body)
		}
		if c.words == nil && status.Message != "Unauthorized" {
			t.Errorf("%s learns %q", c.name, status.Message)
		}
		for _, words := range c.words {
			if !strings.Contains(status.Message, words) {
				t.Errorf("%s: no %q in %q", c.name, words, status.Message)
			}
		}
	}
}

// TestHealthHasNoName: only the questions whether the server is well are answered to anybody, also to who shows what is not good.
func TestHealthHasNoName(t *testing.T) {
	p := newPeople(t, time.Now(), nil, nil)
	for path, status := range map[string]int{"/livez": 204, "/readyz": 204, "/readyz?verbose": 204, "/healthz": 204, "/readyz/etcd": 401, "/livez/": 401, "/": 401, "/metrics": 401} {
		for _, token := range []string{"", "nonsense"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			door(p, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("%s with token %q: %d, want %d", path, token, w.Code, status)
			}
		}
	}
}

// TestRefusalsInTheLog: those who try are told of, at no high level, not without end, and not with what they show.
func TestRefusalsInTheLog(t *testing.T) {
	p := newPeople(t, time.Now(), nil, nil)
	var log bytes.Buffer
	h := door(p, slog.New(slog.NewTextHandler(&log, nil)))
	secret := trust.NewToken(trust.TokenUser).Reveal()
	const tries = 20 * refusalsAtOnce
	for range tries {
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	lines := strings.Count(log.String(), "level=INFO msg=\"refused a client that is not known\" from=192.0.2.1 ")
	if lines < refusalsAtOnce || lines > tries/2 || lines != strings.Count(log.String(), "\n") {
		t.Errorf("%d lines for %d tries:\n%s", lines, tries, log.String())
	}
	if strings.Contains(log.String(), secret[20:]) {
		t.Error("the token is in the log")
	}
	log.Reset()
	door(p, slog.New(slog.NewTextHandler(&log, nil))).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api", nil))
	if log.Len() != 0 {
		t.Errorf("who shows nothing is told of: %s", log.String())
	}
}
