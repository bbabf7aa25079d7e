// Package webhook tells whether a request proves that something was pushed, and what.
//
// A webhook is an interrupt: it says that looking at the repository now is worth it, and nothing else. What is applied is read
// from the repository, so that a lost, doubled, late or replayed request does no harm. A replay must not be a way to make work
// either. Whoever calls Verify therefore
//
//   - has one secret for each Source, and answers alike for a Source that is not there and a signature that is wrong;
//   - bounds how many requests are read at once, and how long reading one may take;
//   - keeps for each Source a mark and not a queue: any number of requests while it is being looked at make it be looked at once
//     more;
//   - leaves a pause between two looks at one Source (some seconds), so that replays cost one ls-remote a pause.
//
// A forge signs the whole body, which may have many megabytes, of which few bytes say what was pushed. So the whole is hashed
// as it is read, its beginning is kept, and nothing is decoded before the signature is right. What stands behind that beginning
// is not known: a Push says then that something was pushed. A request is read to its end whatever its headers say, so that nobody
// learns from the time of an answer what kind of webhook a Source has, or that there is one.
//
// The package is pure: it reads the body that it is given, and owns no goroutine.
package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"strings"

	"tako.dev/tako/internal/reason"
)

// Kind is the kind of forge that sends.
type Kind string

// The kinds. Forgejo and Gogs-like forges that send Gitea's headers are Gitea.
const (
	GitHub  Kind = "github"
	GitLab  Kind = "gitlab"
	Gitea   Kind = "gitea"
	Generic Kind = "generic"
)

// SignatureHeader carries the signature of a Generic request: sha256= and the HMAC-SHA256 of the body in hexadecimal. Its body
// is empty, or a JSON object with any of ref, before, after and url.
const SignatureHeader = "X-Tako-Signature"

const (
	// BodyBytesMax bounds a body: GitHub sends no larger one (25 MB).
	BodyBytesMax = 25 << 20
	// keptBytesMax bounds what is kept of a body to be decoded. A push of 500 commits fits.
	keptBytesMax = 1 << 20
)

// ParseKind reads the name of a kind. An unknown one is an error.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case GitHub, GitLab, Gitea, Generic:
		return k, nil
	}
	return "", &reason.Error{Code: reason.InvalidValue, Doing: fmt.Sprintf("read the kind of a webhook, %q", s), Cause: errors.New("it is github, gitlab, gitea or generic")}
}

// Verify reads a request up to its end and tells what was pushed. Headers, body and secrets are those of the request and the
// Source; one of the secrets is enough, so that a new one can be brought in before the old one goes, and an empty one verifies
// nothing. An error has code WebhookRefused where the request is not signed with one of them, WebhookMalformed where it cannot be
// read or says nothing of a push, and holds neither a secret nor anything of the body.
func Verify(kind Kind, header http.Header, body io.Reader, secrets ...[]byte) (Push, error) {
	keys := newKeys(secrets)
	kept, all, err := readBody(body, keys)
	if err != nil {
		return Push{}, malformed(kind, err)
	}
	if err := keys.verify(kind, header); err != nil {
		return Push{}, err
	}
	event, err := eventOf(kind, header)
	if err != nil {
		return Push{}, malformed(kind, err)
	}
	if event == ping {
		return Push{Ping: true}, nil
	}
	if kind == Generic && len(bytes.TrimSpace(kept)) == 0 {
		return Push{}, nil
	}
	if media, _, err := mime.ParseMediaType(header.Get("Content-Type")); err == nil && media == "application/x-www-form-urlencoded" && kind != Generic {
		return Push{}, malformed(kind, errors.New("the body is a form, and must be JSON"))
	}
	push, err := decode(kept, all)
	if err != nil {
		return Push{}, malformed(kind, err)
	}
	return push, nil
}

// readBody hashes a body and returns its beginning, and whether that is all of it.
func readBody(body io.Reader, keys io.Writer) (kept []byte, all bool, err error) {
	var beginning bytes.Buffer
	body = io.TeeReader(io.LimitReader(body, BodyBytesMax+1), keys)
	if _, err := io.CopyN(&beginning, body, keptBytesMax); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	rest, err := io.Copy(io.Discard, body)
	if err != nil {
		return nil, false, err
	}
	if int64(beginning.Len())+rest > BodyBytesMax {
		return nil, false, fmt.Errorf("the body has more than %d bytes", BodyBytesMax)
	}
	return beginning.Bytes(), rest == 0, nil
}

// keys are the secrets of which one must have signed, with the HMAC of what was read so far.
type keys struct {
	secrets [][]byte
	macs    []hash.Hash
}

func newKeys(secrets [][]byte) *keys {
	k := &keys{}
	for _, s := range secrets {
		if len(s) > 0 {
			k.secrets, k.macs = append(k.secrets, s), append(k.macs, hmac.New(sha256.New, s))
		}
	}
	return k
}

// Write never fails.
func (k *keys) Write(p []byte) (int, error) {
	for _, mac := range k.macs {
		_, _ = mac.Write(p)
	}
	return len(p), nil
}

// verify compares what a request has sent as its proof. GitLab sends the secret itself, all others sign the body.
func (k *keys) verify(kind Kind, header http.Header) error {
	var name, prefix string
	switch kind {
	case GitLab:
		name = "X-Gitlab-Token"
	case GitHub:
		name, prefix = "X-Hub-Signature-256", "sha256="
	case Gitea:
		name = "X-Gitea-Signature"
	case Generic:
		name, prefix = SignatureHeader, "sha256="
	default:
		return refused(kind, "the kind of forge is unknown")
	}
	values := header.Values(name)
	switch {
	case len(k.secrets) == 0:
		return refused(kind, "no secret is agreed")
	case len(values) != 1:
		return refused(kind, fmt.Sprintf("%s stands there %d times", name, len(values)))
	case kind == GitLab && k.holds(values[0]):
		return nil
	case kind == GitLab:
		return refused(kind, name+" is not the secret")
	}
	text, ok := strings.CutPrefix(values[0], prefix)
	got, err := hex.DecodeString(text)
	if !ok || err != nil || !k.made(got) {
		return refused(kind, name+" is not that of the body and the secret")
	}
	return nil
}

// made tells in constant time whether one of the keys has made a signature.
func (k *keys) made(signature []byte) (is bool) {
	for _, mac := range k.macs {
		is = hmac.Equal(signature, mac.Sum(nil)) || is
	}
	return is
}

// holds tells in constant time, also where the lengths differ, whether a text is one of the secrets.
func (k *keys) holds(text string) (is bool) {
	a := sha256.Sum256([]byte(text))
	for _, secret := range k.secrets {
		b := sha256.Sum256(secret)
		is = subtle.ConstantTimeCompare(a[:], b[:]) == 1 || is
	}
	return is
}

type event uint8

const (
	push event = iota
	ping
)

// eventOf tells from the headers what a request is about.
func eventOf(kind Kind, header http.Header) (event, error) {
	var name string
	var pushes []string
	switch kind {
	case GitHub:
		name, pushes = "X-Github-Event", []string{"push", "create", "delete"}
	case Gitea:
		name, pushes = "X-Gitea-Event", []string{"push", "create", "delete"}
	case GitLab:
		name, pushes = "X-Gitlab-Event", []string{"Push Hook", "Tag Push Hook"}
	case Generic:
		return push, nil
	}
	got := header.Get(name)
	for _, p := range pushes {
		if got == p {
			return push, nil
		}
	}
	if got == "ping" && kind == GitHub {
		return ping, nil
	}
	return 0, fmt.Errorf("%s is %q, and not one of %q", name, shown(got), pushes)
}

func refused(kind Kind, why string) error {
	return &reason.Error{Code: reason.WebhookRefused, Doing: "read a webhook of kind " + shown(string(kind)), Cause: errors.New(why), Hint: "set the same secret in the forge and in the Secret that the Source names"}
}

func malformed(kind Kind, cause error) error {
	return &reason.Error{Code: reason.WebhookMalformed, Doing: "read a webhook of kind " + shown(string(kind)), Cause: cause, Hint: "let the forge send push events as application/json"}
}

// shown bounds what somebody else has written.
func shown(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
