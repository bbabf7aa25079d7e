package apiserver

import (
	"io"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
)

// TestRevokedTokenEndsWatches: with a token its watches go, of our kinds and of those that others define, and no others.
func TestRevokedTokenEndsWatches(t *testing.T) {
	const tokens = "/apis/tako.dev/v1alpha1/tokens"
	begin := func(name, path string) io.Reader {
		t.Helper()
		code, b := call(t, theSite.admin, http.MethodPost, tokens, plainJSON, &v1alpha1.Token{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindToken},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.TokenSpec{Type: v1alpha1.TokenUser, User: &v1alpha1.UserToken{Name: name, Groups: []string{user.SystemPrivilegedGroup}}},
		})
		if code != http.StatusCreated {
			t.Fatalf("make a token: %d, %s", code, b)
		}
		config := as(decode[v1alpha1.Token](t, b).Status.Token)
		eventually(t, "the token is known", func() bool {
			code, _ := call(t, config, http.MethodGet, configs, plainJSON, nil)
			return code == http.StatusOK
		})
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path+"?watch=true&resourceVersion=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch: %d", resp.StatusCode)
		}
		return resp.Body
	}
	stays := make(chan error, 1)
	staying := begin("stays", configs)
	go func() { // ends with the test
		_, err := io.Copy(io.Discard, staying)
		stays <- err
	}()
	for name, path := range map[string]string{"goes": configs, "goes-too": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"} {
		stream := begin(name, path)
		if code, b := call(t, theSite.admin, http.MethodDelete, tokens+"/"+name, plainJSON, nil); code != http.StatusOK {
			t.Fatalf("revoke: %d, %s", code, b)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, stream)
			ended <- err
		}()
		eventually(t, "the watch ends", func() bool { return len(ended) > 0 })
		if err := <-ended; err != nil {
			t.Errorf("%s ends with %v", path, err)
		}
	}
	if len(stays) > 0 {
		t.Errorf("a watch with another token has ended: %v", <-stays)
	}
}
