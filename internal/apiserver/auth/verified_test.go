package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestVerified: a certificate is verified once in a while and never believed after its end; a refused one is verified each time.
func TestVerified(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	asked := map[string]int{}
	v := newVerified(authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			asked["none"]++
			return nil, false, nil
		}
		c := r.TLS.PeerCertificates[0]
		asked[string(c.Raw)]++
		if string(c.Raw) == "forged" || now.After(c.NotAfter) {
			return nil, false, errors.New("refused")
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: string(c.Raw)}}, true, nil
	}), func() time.Time { return now })
	end := now.Add(time.Minute)
	ask := func(raw string) (string, bool) {
		r := &http.Request{}
		if raw != "" {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(raw), NotAfter: end}}}
		}
		response, ok, _ := v.AuthenticateRequest(r)
		if !ok {
			return "", false
		}
		name := response.User.GetName()
		response.User = nil // what a caller does with his answer is his
		return name, true
	}
	for range 3 {
		for _, name := range []string{"ann", "bob"} {
			if got, ok := ask(name); !ok || got != name {
				t.Errorf("%s is %q, %v", name, got, ok)
			}
		}
		for _, name := range []string{"forged", ""} {
			if got, ok := ask(name); ok {
				t.Errorf("%q is %q", name, got)
			}
		}
	}
	if asked["ann"] != 1 || asked["bob"] != 1 || asked["forged"] != 3 || asked["none"] != 3 {
		t.Errorf("verified %v times", asked)
	}
	now = end.Add(time.Second)
	if _, ok := ask("ann"); ok {
		t.Error("a certificate is believed after its end")
	}
	end = now.Add(24 * time.Hour)
	for range 3 {
		if _, ok := ask("eve"); !ok {
			t.Error("a certificate is refused")
		}
		now = now.Add(verifiedFor + time.Second)
	}
	if asked["eve"] != 3 {
		t.Errorf("verified %d times in three times %v", asked["eve"], verifiedFor)
	}
}
