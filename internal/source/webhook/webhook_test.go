package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"tako.dev/tako/internal/reason"
)

const secret = "s3cret-canary"

func sum(key string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// request makes the headers that a forge sends.
func request(kind Kind, key string, body []byte) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json; charset=utf-8")
	switch kind {
	case GitHub:
		h.Set("X-GitHub-Event", "push")
		h.Set("X-Hub-Signature-256", "sha256="+sum(key, body))
	case GitLab:
		h.Set("X-Gitlab-Event", "Push Hook")
		h.Set("X-Gitlab-Token", key)
	case Gitea:
		h.Set("X-Gitea-Event", "push")
		h.Set("X-Gitea-Signature", sum(key, body))
	case Generic:
		h.Set(SignatureHeader, "sha256="+sum(key, body))
	}
	return h
}

func payload(t testing.TB, kind Kind) []byte {
	t.Helper()
	if kind == Generic {
		return []byte(`{"ref": "main", "url": "https://generic.example/octo/fleet.git"}`)
	}
	body, err := os.ReadFile("testdata/" + string(kind) + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return body
}

var kinds = []Kind{GitHub, GitLab, Gitea, Generic}

func TestPushes(t *testing.T) {
	for _, kind := range kinds {
		body := payload(t, kind)
		p, err := Verify(kind, request(kind, secret, body), iotest.OneByteReader(bytes.NewReader(body)), []byte(secret))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		want := Push{Ref: "refs/heads/main", Before: strings.Repeat("1", 40), After: strings.Repeat("2", 40)}
		if kind == Generic {
			want = Push{Ref: "main"}
		}
		if p.Ref != want.Ref || p.Before != want.Before || p.After != want.After || p.Ping {
			t.Errorf("%s: %+v", kind, p)
		}
		host := string(kind) + ".example"
		for url, concerns := range map[string]bool{
			"https://" + host + "/octo/fleet.git": true, "https://user@" + strings.ToUpper(host) + ":8443/octo/fleet/": true, "git@" + host + ":octo/fleet.git": true,
			"ssh://git@" + host + ":22/octo/fleet": true, "https://" + host + "/octo/fleet2": false, "https://other.example/octo/fleet": false, "": false, "file:///octo/fleet": false,
		} {
			if p.Concerns(url) != concerns {
				t.Errorf("%s concerns %q: %v", kind, url, !concerns)
			}
		}
	}
	if !(Push{}).Concerns("https://x.example/y") {
		t.Error("a push that names nothing concerns nobody")
	}
}

// TestForged: without the secret nothing is taken, and nothing of body or secret is in the error.
func TestForged(t *testing.T) {
	for _, kind := range kinds {
		body := payload(t, kind)
		good := request(kind, secret, body)
		changed := bytes.Replace(body, []byte("main"), []byte("evil"), 1)
		doubled := maps.Clone(good)
		doubled[SignatureHeader] = append(slices.Clone(good[SignatureHeader]), "sha256=00")
		for name, c := range map[string]struct {
			header http.Header
			body   []byte
			secret string
		}{
			"another secret":    {request(kind, "other", body), body, secret},
			"no header":         {http.Header{}, body, secret},
			"an empty secret":   {request(kind, "", body), body, ""},
			"a changed body":    {good, changed, secret},
			"a longer body":     {good, append(slices.Clone(body), ' '), secret},
			"another kind":      {request(kinds[(slices.Index(kinds, kind)+1)%4], secret, body), body, secret},
			"two signatures":    {doubled, body, secret},
			"no hexadecimal":    {http.Header{"X-Hub-Signature-256": {"sha256=zz"}, "X-Gitea-Signature": {"zz"}, SignatureHeader: {"sha1=00"}, "X-Gitlab-Token": {secret + "x"}}, body, secret},
			"part of signature": {http.Header{"X-Hub-Signature-256": {"sha256="}, "X-Gitea-Signature": {""}, SignatureHeader: {"sha256=" + sum(secret, body)[:8]}, "X-Gitlab-Token": {secret[:4]}}, body, secret},
		} {
			unsigned := kind == GitLab && (name == "a changed body" || name == "a longer body") || kind != Generic && name == "two signatures"
			_, err := Verify(kind, c.header, bytes.NewReader(c.body), []byte(c.secret))
			if unsigned {
				continue // GitLab signs nothing, and the header is not that of this kind
			}
			if !reason.Is(err, reason.WebhookRefused) {
				t.Errorf("%s, %s: %v", kind, name, err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "refs/")) {
				t.Errorf("%s, %s: the error says %v", kind, name, err)
			}
		}
	}
	if _, err := Verify("other", request(GitHub, secret, nil), strings.NewReader(""), []byte(secret)); !reason.Is(err, reason.WebhookRefused) {
		t.Errorf("an unknown kind: %v", err)
	}
}

// TestProofs: a proof that stands there twice is none, whichever kind and whichever of the two is right; nor is one of another algorithm.
func TestProofs(t *testing.T) {
	names := map[Kind]string{GitHub: "X-Hub-Signature-256", GitLab: "X-Gitlab-Token", Gitea: "X-Gitea-Signature", Generic: SignatureHeader}
	for _, kind := range kinds {
		body, name := payload(t, kind), http.CanonicalHeaderKey(names[kind])
		good := request(kind, secret, body)
		right := good.Get(name)
		for what, values := range map[string][]string{
			"twice": {right, right}, "a wrong one before": {"sha256=00", right}, "a wrong one behind": {right, "sha256=00"}, "in one line": {right + ", " + right},
			"of sha1": {"sha1=" + strings.Repeat("0", 40)}, "of sha512": {"sha512=" + strings.TrimPrefix(right, "sha256=")},
		} {
			h := maps.Clone(good)
			h[name] = values
			if what == "of sha1" {
				h.Set("X-Hub-Signature", values[0])
				delete(h, name)
			}
			if _, err := Verify(kind, h, bytes.NewReader(body), []byte(secret)); !reason.Is(err, reason.WebhookRefused) {
				t.Errorf("%s, %s: %v", kind, what, err)
			}
		}
	}
}

// TestTwoSecrets: while a secret is changed, the one of before counts too, and nothing else does.
func TestTwoSecrets(t *testing.T) {
	for _, kind := range kinds {
		body := payload(t, kind)
		for key, want := range map[string]bool{"new": true, "old": true, "older": false, "": false} {
			_, err := Verify(kind, request(kind, key, body), bytes.NewReader(body), []byte("new"), nil, []byte("old"))
			if (err == nil) != want || err != nil && !reason.Is(err, reason.WebhookRefused) {
				t.Errorf("%s signed with %q: %v", kind, key, err)
			}
		}
	}
}

// TestReadToTheEnd: how much of a body is read says nothing of what is wrong with a request.
func TestReadToTheEnd(t *testing.T) {
	for _, kind := range append(slices.Clone(kinds), "other") {
		for _, secrets := range [][][]byte{{[]byte("guessed")}, {nil}, nil} {
			body := strings.NewReader(strings.Repeat("x", 3<<20))
			if _, err := Verify(kind, http.Header{"X-Gitlab-Token": {"guess"}}, body, secrets...); !reason.Is(err, reason.WebhookRefused) || body.Len() > 0 {
				t.Errorf("%s with %q: %d bytes are left (%v)", kind, secrets, body.Len(), err)
			}
		}
	}
}

// TestMalformed: a request that is signed and says nothing of a push.
func TestMalformed(t *testing.T) {
	for body, change := range map[string]func(http.Header){
		`{"zen": "x"}`:             func(h http.Header) { h.Set("X-GitHub-Event", "issues") },
		`payload=%7B%7D`:           func(h http.Header) { h.Set("Content-Type", "application/x-www-form-urlencoded") },
		`[]`:                       nil,
		``:                         nil,
		`{"ref": 3}`:               nil,
		`{"ref": "a\u0000b"}`:      nil,
		`{"ref": "canary`:          nil,
		`{"after": "; rm"}`:        nil,
		`{"repository": "canary"}`: nil,
		`{"ref": "` + strings.Repeat("a", 5000) + `"}`: nil,
	} {
		h := request(GitHub, secret, []byte(body))
		if change != nil {
			change(h)
		}
		_, err := Verify(GitHub, h, strings.NewReader(body), []byte(secret))
		if !reason.Is(err, reason.WebhookMalformed) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.40q: %v", body, err)
		}
	}
	broken := errors.New("connection reset")
	if _, err := Verify(GitHub, request(GitHub, secret, nil), iotest.ErrReader(broken), []byte(secret)); !errors.Is(err, broken) {
		t.Errorf("a broken body: %v", err)
	}
}

func TestPing(t *testing.T) {
	h := request(GitHub, secret, []byte(`{"zen": "x"}`))
	h.Set("X-GitHub-Event", "ping")
	if p, err := Verify(GitHub, h, strings.NewReader(`{"zen": "x"}`), []byte(secret)); err != nil || !p.Ping {
		t.Errorf("%+v (%v)", p, err)
	}
	if p, err := Verify(Generic, request(Generic, secret, nil), strings.NewReader(""), []byte(secret)); err != nil || p.Ping {
		t.Errorf("a generic request without a body: %+v (%v)", p, err)
	}
}

// TestLarge: the signature is over all, and what is kept is the beginning.
func TestLarge(t *testing.T) {
	body := append([]byte(`{"ref": "refs/heads/main", "commits": "`), bytes.Repeat([]byte("x"), 3<<20)...)
	body = append(body, `", "after": "22"}`...)
	h := request(GitHub, secret, body)
	p, err := Verify(GitHub, h, bytes.NewReader(body), []byte(secret))
	if err != nil || p.Ref != "refs/heads/main" || p.After != "" {
		t.Errorf("%+v (%v)", p, err)
	}
	body[len(body)-3] ^= 1
	if _, err := Verify(GitHub, h, bytes.NewReader(body), []byte(secret)); !reason.Is(err, reason.WebhookRefused) {
		t.Errorf("the end was changed: %v", err)
	}
	endless := io.MultiReader(strings.NewReader("{"), zeros{})
	if _, err := Verify(GitHub, h, endless, []byte(secret)); !reason.Is(err, reason.WebhookMalformed) {
		t.Errorf("an endless body: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestParseKind(t *testing.T) {
	for _, k := range kinds {
		if got, err := ParseKind(string(k)); err != nil || got != k {
			t.Errorf("%s: %s (%v)", k, got, err)
		}
	}
	if _, err := ParseKind("GitHub"); err == nil {
		t.Error("an unknown kind was taken")
	}
}

func FuzzVerify(f *testing.F) {
	for _, kind := range kinds {
		f.Add(payload(f, kind), string(kind), "push")
	}
	f.Add([]byte(`{"ref": "`), "github", "ping")
	f.Fuzz(func(t *testing.T, body []byte, kind, event string) {
		h := request(Kind(kind), secret, body)
		p, err := Verify(Kind(kind), h, bytes.NewReader(body), []byte(secret))
		if err == nil {
			p.Concerns(event)
			if err := p.check(); err != nil {
				t.Error(err)
			}
		} else if strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q", err)
		}
		h.Set("X-GitHub-Event", event)
		if _, err := Verify(GitHub, h, bytes.NewReader(append(body, 'x')), []byte(secret)); !reason.Is(err, reason.WebhookRefused) && !reason.Is(err, reason.WebhookMalformed) {
			t.Errorf("taken unsigned: %v", err)
		}
		_, _ = decode(body, false)
	})
}
