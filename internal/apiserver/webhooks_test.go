package apiserver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/source/webhook"
)

// TestWebhooks: without a name forges call, with the one answer for what is not signed, and nothing else is open there.
func TestWebhooks(t *testing.T) {
	c := client(t)
	if _, err := c.CoreV1().Secrets("default").Create(t.Context(), &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Data: map[string][]byte{"token": []byte("shared")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	src := &v1alpha1.Source{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindSource},
		ObjectMeta: metav1.ObjectMeta{Name: "hooked", Namespace: "default"},
		Spec:       v1alpha1.SourceSpec{URL: "file:///nowhere/x.git", Webhook: &v1alpha1.SourceWebhook{Type: v1alpha1.SourceForgeGeneric, Secret: "hook"}},
	}
	if code, b := call(t, theSite.admin, http.MethodPost, "/apis/tako.dev/v1alpha1/namespaces/default/sources", plainJSON, src); code != http.StatusCreated {
		t.Fatalf("%d: %s", code, b)
	}
	post := func(method, path, secret string) (int, string) {
		t.Helper()
		https, err := rest.HTTPClientFor(as(""))
		if err != nil {
			t.Fatal(err)
		}
		const body = `{"ref":"refs/heads/main"}`
		req, err := http.NewRequestWithContext(t.Context(), method, theSite.admin.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		req.Header.Set(webhook.SignatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
		resp, err := https.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b := make([]byte, 200)
		n, _ := resp.Body.Read(b)
		return resp.StatusCode, string(b[:n])
	}
	deadline := time.Now().Add(time.Minute)
	for code, _ := post(http.MethodPost, webhookPrefix+"default/hooked", "shared"); code != http.StatusAccepted; code, _ = post(http.MethodPost, webhookPrefix+"default/hooked", "shared") {
		if time.Now().After(deadline) { // sources are kept a moment after the server is ready
			t.Fatalf("a good call: %d", code)
		}
	}
	forged, words := post(http.MethodPost, webhookPrefix+"default/hooked", "guessed")
	nobody, same := post(http.MethodPost, webhookPrefix+"default/nobody", "shared")
	if forged != http.StatusUnauthorized || nobody != forged || words != same {
		t.Errorf("forged: %d %q, for nobody: %d %q", forged, words, nobody, same)
	}
	for path, want := range map[string]int{webhookPrefix + "default/hooked/more": 401, webhookPrefix: 401, webhookPrefix + strings.Repeat("x", 5000): 401, "/hooks": 401, "/hooks/sourcesx": 401} {
		if code, _ := post(http.MethodPost, path, "shared"); code != want {
			t.Errorf("%.40s: %d, want %d", path, code, want)
		}
	}
	if code, _ := post(http.MethodGet, webhookPrefix+"default/hooked", "shared"); code != http.StatusMethodNotAllowed {
		t.Errorf("a GET: %d", code)
	}
	b, err := os.ReadFile(filepath.Join(theSite.dir, "audit-unknown.log"))
	if err != nil || !strings.Contains(string(b), webhookPrefix+"default/nobody") || !strings.Contains(string(b), "TK1133") {
		t.Errorf("audit: %v, %d bytes", err, len(b))
	}
}

// TestWebhookLines: a flood of calls writes few lines, and the next one says how many there were.
func TestWebhookLines(t *testing.T) {
	var l lines
	now := time.Now()
	written := 0
	for range 10 * webhookLines {
		if _, ok := l.may(now); ok {
			written++
		}
	}
	omitted, ok := l.may(now.Add(time.Minute))
	if got := fmt.Sprint(written, omitted, ok); got != fmt.Sprint(webhookLines, 9*webhookLines, true) {
		t.Error(got)
	}
}

// caller calls from one address of this machine, over connections of its own.
type caller struct {
	t      *testing.T
	client *http.Client
}

func callerFrom(t *testing.T, address string) *caller {
	t.Helper()
	config, err := rest.TLSConfigFor(as(""))
	if err != nil {
		t.Fatal(err)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{TLSClientConfig: config, DialContext: dialer.DialContext, MaxIdleConns: -1, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, &http.Client{Transport: transport, Timeout: time.Minute}}
}

// post sends a body, whose length is told in advance only where length is not negative.
func (c *caller) post(to, secret, signed string, body io.Reader, length int64) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, theSite.admin.Host+webhookPrefix+to, body)
	if err != nil {
		c.t.Fatal(err)
	}
	req.ContentLength = length
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(signed))
	req.Header.Set(webhook.SignatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("X-Gitlab-Token", secret)
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	words, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(words)
}

// hooked declares a Source that takes calls, and waits until it does.
func hooked(t *testing.T, name string, forge v1alpha1.SourceForge) {
	t.Helper()
	secrets := client(t).CoreV1().Secrets("default")
	if _, err := secrets.Create(t.Context(), &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"token": []byte("shared")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	src := &v1alpha1.Source{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindSource},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1alpha1.SourceSpec{URL: "file:///nowhere/x.git", Webhook: &v1alpha1.SourceWebhook{Type: forge, Secret: name}},
	}
	if code, b := call(t, theSite.admin, http.MethodPost, "/apis/tako.dev/v1alpha1/namespaces/default/sources", plainJSON, src); code != http.StatusCreated {
		t.Fatalf("%d: %s", code, b)
	}
	const body = "{}"
	deadline := time.Now().Add(time.Minute)
	c := callerFrom(t, "127.0.0.1")
	for {
		code, words := c.post("default/"+name, "shared", body, strings.NewReader(body), int64(len(body)))
		if code == http.StatusAccepted || forge == v1alpha1.SourceForgeGitLab && code == http.StatusBadRequest { // which says no event
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a good call: %d %s", code, words)
		}
	}
}

// TestWebhookSaysNothing: to who cannot sign, a Source of either kind and none at all are alike, whatever he sends.
func TestWebhookSaysNothing(t *testing.T) {
	hooked(t, "signing", v1alpha1.SourceForgeGeneric)
	hooked(t, "telling", v1alpha1.SourceForgeGitLab)
	c := callerFrom(t, "127.0.0.1")
	large := func() io.Reader { return io.LimitReader(zeros{}, webhook.BodyBytesMax+1) }
	for what, c := range map[string]struct {
		want int
		try  func(to string) (int, string)
	}{
		"a wrong signature":   {401, func(to string) (int, string) { return c.post(to, "guessed", "{}", strings.NewReader("{}"), 2) }},
		"a large body":        {413, func(to string) (int, string) { return c.post(to, "guessed", "", large(), webhook.BodyBytesMax+1) }},
		"an endless body":     {413, func(to string) (int, string) { return c.post(to, "guessed", "", large(), -1) }},
		"no body":             {401, func(to string) (int, string) { return c.post(to, "guessed", "", http.NoBody, 0) }},
		"an empty signature":  {401, func(to string) (int, string) { return c.post(to, "", "", strings.NewReader("{}"), 2) }},
		"a body of no object": {401, func(to string) (int, string) { return c.post(to, "guessed", "[", strings.NewReader("["), 1) }},
	} {
		code, words := c.try("default/nobody")
		for _, to := range []string{"default/signing", "default/telling", "nowhere/signing", "default%2Fsigning", "default/signing/", "default", ""} {
			got, said := c.try(to)
			if got != c.want && code != 0 && got != 0 || said != words && got != 0 && code != 0 { // a client may see the end of the connection first
				t.Errorf("%s to %s: %d %q, and to nobody %d %q; want %d", what, to, got, said, code, words, c.want)
			}
		}
	}
	_, b := call(t, theSite.admin, http.MethodGet, "/metrics", "", nil)
	for _, want := range []string{`tako_source_calls_total{code="202"}`, `tako_source_calls_total{code="401"}`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not counted", want)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestWebhookSlow: who sends his calls slowly, and many of them, holds up those of nobody else; and they end.
func TestWebhookSlow(t *testing.T) {
	hooked(t, "hurried", v1alpha1.SourceForgeGeneric)
	slow := callerFrom(t, "127.0.0.2")
	ends, begun := make(chan int, 2*readingMax), make(chan struct{}, 2*readingMax)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range cap(ends) {
		r, w := io.Pipe()
		go func() { // ends with the test, or when the body is read no more
			defer w.Close()
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := w.Write([]byte(" ")); err != nil {
					return
				}
				if i == 1 {
					begun <- struct{}{}
				}
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		}()
		go func() {
			code, _ := slow.post("default/hurried", "guessed", "", r, -1)
			ends <- code
		}()
	}
	for range cap(begun) {
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Fatal("the slow calls are not sent")
		}
	}
	const body = "{}"
	if code, words := callerFrom(t, "127.0.0.1").post("default/hurried", "shared", body, strings.NewReader(body), int64(len(body))); code != http.StatusAccepted {
		t.Errorf("a call beside slow ones: %d %s", code, words)
	}
	codes := map[int]int{}
	for range cap(ends) {
		select {
		case code := <-ends:
			codes[code]++
		case <-time.After(time.Minute):
			t.Fatalf("slow calls have not ended: %v", codes)
		}
	}
	if codes[http.StatusRequestTimeout] == 0 || codes[http.StatusAccepted]+codes[http.StatusUnauthorized] > 0 {
		t.Errorf("%v", codes)
	}
}

// TestTurns: one address never has all turns, and none is lost.
func TestTurns(t *testing.T) {
	turns := newTurns()
	first, second := callerOf("10.0.0.1:1"), callerOf("[2001:db8::1]:1")
	ended, end := context.WithCancel(t.Context())
	end()
	var all []func()
	for range readingOfOneMax {
		done, ok := turns.take(t.Context(), first)
		if !ok {
			t.Fatal("there is no turn")
		}
		all = append(all, done)
	}
	if _, ok := turns.take(ended, first); ok {
		t.Error("one address has more than its turns")
	}
	for range readingMax - readingOfOneMax {
		done, ok := turns.take(t.Context(), second)
		if !ok {
			t.Fatal("another address has no turn")
		}
		all = append(all, done)
	}
	if _, ok := turns.take(ended, callerOf("10.0.0.3:1")); ok {
		t.Error("there are more turns than there should be")
	}
	for _, done := range all {
		done()
	}
	if turns.calls != 0 || len(turns.of) != 0 || len(turns.reading) != 0 {
		t.Errorf("%+v is left", turns)
	}
	for range waitingOfOneMax {
		turns.enter(first)
	}
	if turns.enter(first) != nil || turns.enter(second) == nil {
		t.Error("waiting is not bounded for each address")
	}
}

// TestCallerOf: who can take any address of a network is one caller.
func TestCallerOf(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1/32", "[::ffff:10.0.0.1]:80": "10.0.0.1/32", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "": "invalid Prefix", "x": "invalid Prefix",
	} {
		if got := callerOf(remote).String(); got != want {
			t.Errorf("%q: %s, want %s", remote, got, want)
		}
	}
}
