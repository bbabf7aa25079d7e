//go:build e2e

package api_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/trust"
)

// strangers come with what others have made for them.
func strangers(t *testing.T, s *server) {
	anonymous := rest.AnonymousClientConfig(s.config(t))
	with := func(change func(*rest.Config)) *rest.Config {
		c := rest.CopyConfig(anonymous)
		change(c)
		return c
	}
	token := func(text string) *rest.Config { return with(func(c *rest.Config) { c.BearerToken = text }) }
	short := userToken(t, s, "short", metav1.NewTime(time.Now().Add(15*time.Second)))
	good := userToken(t, s, "good", metav1.NewTime(time.Now().Add(time.Hour)))
	forgedCA := newAuthority(t, "forged")
	cert, key := forgedCA.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "tako:admin", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	host.Eventually(t, settleTime, "the good token is known", func() (string, bool) {
		status, answer, err := get(t, token(good))
		return fmt.Sprint(status, answer, err), status == http.StatusForbidden
	})
	for _, test := range []struct {
		name   string
		config *rest.Config
		status int // 0: no answer
		words  string
	}{
		{"nobody", anonymous, 401, "Unauthorized"},
		{"good token", token(good), 403, "is forbidden: User"},
		{"token with another letter", token(good[:len(good)-1] + string('a'+(good[len(good)-1]-'a'+1)%26)), 401, "Unauthorized"},
		{"token that nobody made", token(trust.NewToken(trust.TokenUser).Reveal()), 401, "Unauthorized"},
		{"token for hosts", token(trust.NewToken(trust.TokenJoin).Reveal()), 401, "Unauthorized"},
		{"token of another system", token("eyJhbGciOiJub25lIn0.eyJzdWIiOiJ0YWtvOmFkbWluIn0."), 401, "Unauthorized"},
		{"long token", token(strings.Repeat("x", 500_000)), 401, "Unauthorized"},
		{"certificate of another authority", with(func(c *rest.Config) { c.CertData, c.KeyData = cert, key }), 401, "Unauthorized"},
		{"somebody else by a header", with(func(c *rest.Config) { c.Impersonate.UserName = "tako:admin" }), 401, "Unauthorized"},
		{"somebody who trusts another authority", with(func(c *rest.Config) { c.CAData = forgedCA.pem }), 0, "unknown authority"},
		{"without TLS", with(func(c *rest.Config) { c.Host, c.TLSClientConfig = "http://"+s.listen, rest.TLSClientConfig{} }), 400, "HTTPS"},
	} {
		t.Run(test.name, func(t *testing.T) { wantAnswer(t, test.config, test.status, test.words) })
	}
	for path, status := range map[string]int{
		"/livez": 200, "/readyz": 200, "/healthz": 200, "/readyz?verbose": 200, "/readyz/room": 401, "/livez/ping": 401, "/": 401, "/api": 401, "/apis": 401, "/version": 401,
		"/openapi/v2": 401, "/metrics": 401, "/debug/pprof/": 401, "/api/v1/secrets": 401, "/livez/../api": 401,
	} {
		t.Run("nobody asks for "+path, func(t *testing.T) {
			c := with(func(c *rest.Config) { c.APIPath = path })
			if got, answer, err := get(t, c); got != status {
				t.Errorf("status %d, %v, want %d: %s", got, err, status, clip(answer))
			}
		})
	}
	t.Run("expired token", func(t *testing.T) {
		host.Eventually(t, settleTime, "the token has expired", func() (string, bool) {
			status, answer, err := get(t, token(short))
			return fmt.Sprint(status, answer, err), status == http.StatusUnauthorized
		})
	})
	t.Run("expired token, in words", func(t *testing.T) {
		for _, words := range []string{"it has expired: the token was valid until 20", "the server's clock says 20", "`tako token create user`"} {
			wantAnswer(t, token(short), http.StatusUnauthorized, words)
		}
	})
	t.Run("old TLS", func(t *testing.T) {
		_, err := tls.Dial("tcp", s.listen, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		if err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("TLS 1.2: %v", err)
		}
	})
}

func wantAnswer(t *testing.T, config *rest.Config, status int, words string) {
	t.Helper()
	got, answer, err := get(t, config)
	if got != status || !strings.Contains(answer+fmt.Sprint(err), words) {
		t.Errorf("status %d, %s, %v; want %d and %q", got, clip(answer), err, status, words)
	}
}

func get(t *testing.T, config *rest.Config) (status int, answer string, err error) {
	t.Helper()
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	path := configMapsPath
	if config.APIPath != "" {
		path = config.APIPath
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return do(h, req)
}

// userToken makes a token for a person of the same name.
func userToken(t *testing.T, s *server, name string, expires metav1.Time) string {
	t.Helper()
	c := s.client(t)
	until, err := expires.UTC().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"apiVersion":"tako.dev/v1alpha1","kind":"Token","metadata":{"name":%q},"spec":{"type":"user","expires":%q,"user":{"name":%q}}}`, name, until, name)
	answer, err := c.CoreV1().RESTClient().Post().AbsPath("/apis/tako.dev/v1alpha1/tokens").Body([]byte(body)).Do(t.Context()).Raw()
	if err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	m := regexp.MustCompile(`"token":"([^"]+)"`).FindSubmatch(answer)
	if m == nil {
		t.Fatalf("no token in %s", answer)
	}
	return string(m[1])
}
