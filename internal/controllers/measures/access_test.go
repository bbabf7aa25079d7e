package measures

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
)

// shelf holds Secrets and ConfigMaps. The zero value is empty.
type shelf struct {
	mu   sync.Mutex // guards what follows
	held map[string]map[string]string
	down bool
}

func (s *shelf) put(kind, name string, values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[string]map[string]string{}
	}
	s.held[kind+" "+name] = values
}

// Get reads one.
func (s *shelf) Get(_ context.Context, key types.NamespacedName, into runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("etcd: geheim")
	}
	switch into := into.(type) {
	case *core.Secret:
		if values, ok := s.held["Secret "+key.String()]; ok {
			into.Data = map[string][]byte{}
			for k, v := range values {
				into.Data[k] = []byte(v)
			}
			return nil
		}
	case *core.ConfigMap:
		if values, ok := s.held["ConfigMap "+key.String()]; ok {
			into.Data = values
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
}

func certificateOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func keyOf(name, key string) *declare.KeySelector { return &declare.KeySelector{Name: name, Key: key} }

// queryWith is the query of a target in the namespace prod.
func queryWith(server string, auth *declare.PrometheusAuth, ca *declare.PrometheusCA) Query {
	return QueryOf("prod", &declare.PrometheusQuery{Server: server, Query: "good", Auth: auth, CA: ca})
}

// TestProofs: what a workload names is sent as it is now, to the server that it is for alone; what cannot be sent says which value it is and never what.
func TestProofs(t *testing.T) {
	var got atomic.Value
	got.Store("")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		fmt.Fprint(w, vector("7"))
	})
	secure, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	objects := &shelf{}
	objects.put("Secret", "prod/s", map[string]string{
		"token": "geheim-token\n", "user": "ann", "password": "geheim:word\r\n", "colon": "geheim:ann", "lines": "geheim\r\nHost: evil", "long": strings.Repeat("geheim", secretBytesMax), "binary": "geheim\x00", "ca": certificateOf(secure),
		"empty": "", "blank": "\n", "many": strings.Repeat("geheim", caBytesMax),
	})
	objects.put("ConfigMap", "prod/c", map[string]string{"ca.crt": certificateOf(secure), "token": "geheim-of-a-map"})
	objects.put("Secret", "qa/s", map[string]string{"token": "geheim-of-qa"})
	p := start(t, map[string]string{"secure": secure.URL, "plain": plain.URL, "far": "http://prometheus.example:9090"}, objects)

	token := func(key string) *declare.PrometheusAuth { return &declare.PrometheusAuth{Token: keyOf("s", key)} }
	basic := func(user, password string) *declare.PrometheusAuth {
		return &declare.PrometheusAuth{Username: keyOf("s", user), Password: keyOf("s", password)}
	}
	byMap, bySecret := &declare.PrometheusCA{ConfigMap: keyOf("c", "ca.crt")}, &declare.PrometheusCA{Secret: keyOf("s", "ca")}
	encoded := "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:geheim:word"))
	for what, c := range map[string]struct {
		q    Query
		sent string // Authorization
		why  string // a part of why there is no answer
	}{
		"a token":                       {q: queryWith("secure", token("token"), byMap), sent: "Bearer geheim-token"},
		"a password":                    {q: queryWith("secure", basic("user", "password"), bySecret), sent: encoded},
		"nothing but authorities":       {q: queryWith("secure", nil, bySecret)},
		"a token on this machine":       {q: queryWith("plain", token("token"), nil), sent: "Bearer geheim-token"},
		"nothing":                       {q: queryWith("plain", nil, nil)},
		"a token in the open":           {q: queryWith("far", token("token"), nil), why: "far is asked over http, where anybody on the way reads credentials"},
		"authorities without TLS":       {q: queryWith("plain", nil, byMap), why: "over http, where it has no certificate"},
		"no authorities":                {q: queryWith("secure", token("token"), nil), why: "an authority that is not trusted"},
		"authorities that are none":     {q: queryWith("secure", nil, &declare.PrometheusCA{Secret: keyOf("s", "token")}), why: "no certificate in PEM"},
		"too many authorities":          {q: queryWith("secure", nil, &declare.PrometheusCA{Secret: keyOf("s", "many")}), why: "more than 262144 bytes"},
		"no Secret":                     {q: queryWith("plain", &declare.PrometheusAuth{Token: keyOf("c", "token")}, nil), why: "there is no Secret c in namespace prod"},
		"no ConfigMap":                  {q: queryWith("secure", nil, &declare.PrometheusCA{ConfigMap: keyOf("s", "ca")}), why: "there is no ConfigMap s in namespace prod"},
		"no value":                      {q: queryWith("plain", token("other"), nil), why: "Secret s has no value other"},
		"an empty value":                {q: queryWith("plain", token("empty"), nil), why: "Secret s has no value empty"},
		"an empty line":                 {q: queryWith("plain", token("blank"), nil), why: "blank of Secret s cannot be sent"},
		"a header more":                 {q: queryWith("plain", token("lines"), nil), why: "lines of Secret s cannot be sent"},
		"too long":                      {q: queryWith("plain", token("long"), nil), why: "long of Secret s cannot be sent"},
		"binary":                        {q: queryWith("plain", basic("user", "binary"), nil), why: "binary of Secret s cannot be sent"},
		"a username that is a password": {q: queryWith("plain", basic("colon", "password"), nil), why: "colon of Secret s is no username"},
	} {
		got.Store("")
		a := p.query(t.Context(), c.q)
		if sent := got.Load(); sent != c.sent || (a.Value == 7) != (c.why == "") || !strings.Contains(a.Missing, c.why) || strings.Contains(a.Missing, "geheim") {
			t.Errorf("%s: sent %q, %+v; want %q, %q", what, sent, a, c.sent, c.why)
		}
	}

	objects.put("Secret", "prod/s", map[string]string{"token": "geheim-later"})
	if p.query(t.Context(), queryWith("plain", token("token"), nil)); got.Load() != "Bearer geheim-later" {
		t.Errorf("after a change of the Secret %q is sent", got.Load())
	}
	if q := QueryOf("qa", &declare.PrometheusQuery{Server: "plain", Query: "good", Auth: token("token")}); q == queryWith("plain", token("token"), nil) {
		t.Error("namespaces share an answer")
	}
	if a, b := QueryOf("qa", &declare.PrometheusQuery{Query: "good"}), QueryOf("prod", &declare.PrometheusQuery{Query: "good"}); a != b {
		t.Error("what everybody may ask is asked twice")
	}
	objects.down = true
	if a := p.query(t.Context(), queryWith("plain", token("token"), nil)); a.Missing != "Secret s cannot be read now" {
		t.Errorf("without a store it is %+v", a)
	}
}

// TestSecretsStayHere: a Prometheus that repeats what it was sent, in whatever part of its answer, and one that sends us elsewhere, make no secret known.
func TestSecretsStayHere(t *testing.T) {
	elsewhere := newSource(t, func(w http.ResponseWriter, _ string) { fmt.Fprint(w, vector("666")) })
	var form atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := strings.Repeat(r.Header.Get("Authorization")+" ", 3)
		switch form.Load() {
		case "error":
			fmt.Fprintf(w, `{"status": "error", "error": %q}`, said)
		case "type":
			fmt.Fprintf(w, `{"status": "success", "data": {"resultType": %q}}`, said)
		case "end of what is told":
			fmt.Fprintf(w, `{"status": "error", "error": %q}`, strings.Repeat("x", wordsMax-len("main says: Bearer gehe"))+said)
		case "elsewhere":
			http.Redirect(w, r, elsewhere.URL+"/prom/api/v1/query?query=x", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(s.Close)
	objects := &shelf{}
	objects.put("Secret", "prod/s", map[string]string{"token": "geheim-token", "user": "ann", "password": "geheim"})
	p := start(t, map[string]string{"main": s.URL}, objects)
	both := base64.StdEncoding.EncodeToString([]byte("ann:geheim"))
	for _, auth := range []*declare.PrometheusAuth{{Token: keyOf("s", "token")}, {Username: keyOf("s", "user"), Password: keyOf("s", "password")}} {
		for _, f := range []string{"error", "type", "end of what is told", "elsewhere"} {
			form.Store(f)
			a := p.query(t.Context(), queryWith("main", auth, nil))
			if a.Missing == "" || strings.Contains(a.Missing, "gehe") || strings.Contains(a.Missing, both[:6]) {
				t.Errorf("%s: %+v", f, a)
			}
		}
	}
	if len(elsewhere.asked) > 0 {
		t.Error("a redirection was followed")
	}
}

// TestHangs: a Prometheus that never answers, not even to its end, and one that answers as of long ago.
func TestHangs(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("query") {
		case "half":
			fmt.Fprint(w, `{"status":`)
			w.(http.Flusher).Flush()
		case "old":
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"scalar","result":[%d,"7"]}}`, time.Now().Add(-lateMax-time.Minute).Unix())
			return
		}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	p, err := NewPrometheus(map[string]string{"main": s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.clients.close()
	if a := p.query(t.Context(), ask("main", "old")); !strings.Contains(a.Missing, "before it was asked") || a.Value != 0 {
		t.Errorf("as of long ago: %+v", a)
	}
	p.within = 50 * time.Millisecond
	for _, q := range []string{"all", "half"} {
		if a := p.query(t.Context(), ask("main", q)); !strings.Contains(a.Missing, "nothing came within 50ms") {
			t.Errorf("%s: %+v", q, a)
		}
	}
}

// TestForbidden: where clouds keep credentials of machines nobody is asked, whatever a name comes to mean.
func TestForbidden(t *testing.T) {
	for ip, want := range map[string]bool{
		"169.254.169.254": true, "::ffff:169.254.169.254": true, "fe80::1": true, "fe80::1%lo": true, "fd00:ec2::254": true, "100.100.100.200": true, "224.0.0.1": true, "ff02::1": true,
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "192.0.2.1": false, "2001:db8::1": false, "100.64.0.1": false,
	} {
		if got := forbidden(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s is forbidden: %v", ip, got)
		}
		if err := reach(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(ip), 80).String(), nil); (err != nil) != want {
			t.Errorf("%s: %v", ip, err)
		}
	}
	client := mustOf(t, "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://169.254.169.254/api/v1/query", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(r); !errors.Is(err, errForbidden) {
		t.Errorf("a connection there: %v, %v", resp, err)
	}
}

// TestClients: authorities have connections of their own, and the ones that nobody has used for longest go first.
func TestClients(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	var c clients
	defer c.close()
	ca := certificateOf(s)
	own, err1 := c.of(ca)
	again, err2 := c.of(ca)
	other, err3 := c.of("")
	if err := errors.Join(err1, err2, err3); err != nil || own != again || own == other {
		t.Fatalf("%v: %p, %p, %p", err, own, again, other)
	}
	for i := range 2 * clientsMax {
		if _, err := c.of(ca + strings.Repeat("\n", i+1)); err != nil {
			t.Fatal(err)
		}
		if kept, err := c.of(ca); err != nil || kept != own {
			t.Fatalf("what was used before is gone: %v", err)
		}
	}
	if len(c.byCA) != clientsMax {
		t.Errorf("%d are kept", len(c.byCA))
	}
}
