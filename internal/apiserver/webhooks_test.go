package apiserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// TestWebhookLines: a flood of calls writes few lines, and the next one says that there were more.
func TestWebhookLines(t *testing.T) {
	var h webhooks
	now := time.Now()
	written := 0
	for range 10 * webhookLines {
		if _, ok := h.mayNote(now); ok {
			written++
		}
	}
	omitted, ok := h.mayNote(now.Add(time.Minute))
	if got := fmt.Sprint(written, omitted, ok); got != fmt.Sprint(webhookLines, 9*webhookLines, true) {
		t.Error(got)
	}
}
