package source

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// TestWebhooks: a call has the repository looked at now, and nothing more: one that is doubled is none the worse, one that is forged is
// refused as one for a Source that is not there, and one that is lost costs an interval, as TestFleetFollows shows.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	const token = "what-both-sides-know"
	f := newFleet(t)
	r, w := newRepository(t, f.repositories, "called"), newRepository(t, f.repositories, "witness")
	f.allow("called", "cluster-admin")
	f.allow("witness", "cluster-admin")
	f.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: hook, namespace: ops}\nstringData: {token: " + token + "}\n")
	first := r.commit("first", map[string]string{"a.yaml": text("a", "1")})
	for name, repo := range map[string]*repository{"called": r, "witness": w} {
		f.declare(name, fmt.Sprintf("{url: %q, interval: 24h, webhook: {type: GitHub, secret: hook}}", "file://"+repo.bare))
	}
	f.applies("called", first)
	client := f.caller()

	push := func(n int) string {
		return r.commit("push", map[string]string{"a.yaml": text("a", fmt.Sprint(n))})
	}
	body := `{"ref": "refs/heads/main"}`

	second := push(2)
	if got := f.call(client, "ops/called", body, token); got != http.StatusAccepted {
		t.Fatalf("a good call is answered by %d", got)
	}
	f.applies("called", second)

	// The forge calls for every branch, and again where it was not sure.
	third := push(3)
	looks, began := f.Metric("tako_source_looks_total"), time.Now()
	for range 100 {
		if got := f.call(client, "ops/called", body, token); got != http.StatusAccepted && got != http.StatusServiceUnavailable {
			t.Fatalf("a doubled call is answered by %d", got)
		}
	}
	f.applies("called", third)
	if more := f.Metric("tako_source_looks_total") - looks; more < 1 || more > 30+time.Since(began).Seconds() { // one a second at most, however long it took
		t.Errorf("a hundred calls made %v looks in %v", more, time.Since(began))
	}

	// A look that the last of them has called for may be yet to come: at most a second later.
	f.Quiet("tako_source_looks_total", 8*time.Second)

	// Those that prove nothing. What they would have done is done before what the witness is called for afterwards.
	push(4)
	for name, try := range map[string]struct{ to, token string }{
		"of a stranger": {"ops/called", "a guess"}, "without a signature": {"ops/called", ""}, "for nobody": {"ops/nobody", token}, "for nothing": {"", token},
	} {
		if got := f.call(client, try.to, body, try.token); got != http.StatusUnauthorized {
			t.Errorf("a call %s is answered by %d", name, got)
		}
	}
	// One of another repository is taken, and is about nothing.
	other := `{"ref": "refs/heads/main", "repository": {"clone_url": "https://forge.example/other.git"}}`
	if got := f.call(client, "ops/called", other, token); got != http.StatusAccepted {
		t.Errorf("a call of another repository is answered by %d", got)
	}
	seen := w.commit("seen", map[string]string{"w.yaml": text("w", "1")})
	if got := f.call(client, "ops/witness", body, token); got != http.StatusAccepted {
		t.Errorf("a good call is answered by %d", got)
	}
	f.applies("witness", seen)
	if s := f.source("called"); s.Status.Seen.ID != third {
		t.Errorf("a forged call had commit %s looked at", s.Status.Seen.ID)
	}
}

// caller is a client as forges are: it trusts the server, and has no name there.
func (f *fleet) caller() *http.Client {
	f.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", f.Server.Kubeconfig())
	must(f.T, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CAData) {
		f.Fatal("the kubeconfig has no authority")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	f.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// call calls as GitHub does, and returns the status of the answer.
func (f *fleet) call(client *http.Client, to, body, token string) int {
	f.Helper()
	request, err := http.NewRequestWithContext(f.Context(), http.MethodPost, f.Server.URL+"/hooks/sources/"+to, strings.NewReader(body))
	must(f.T, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Event", "push")
	if token != "" {
		mac := hmac.New(sha256.New, []byte(token))
		mac.Write([]byte(body))
		request.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	answer, err := client.Do(request)
	must(f.T, err)
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	must(f.T, err)
	return answer.StatusCode
}
