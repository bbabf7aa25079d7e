package sources

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/webhook"
)

const (
	// readsMax bounds the calls of forges that are read at once: each may hold up to some KiB, for some seconds.
	readsMax = 16
	// secretKept is how long the secret of a webhook is taken for known: whoever makes calls makes no more reads of the store than this.
	secretKept = 10 * time.Second
)

// ErrBusy is the error of a call while too many others are read.
var ErrBusy = errors.New("too many webhooks at once")

// hook is what is known of the secret of a webhook.
type hook struct {
	mu     sync.Mutex // guards all below
	name   string
	secret []byte // nil for none
	until  time.Time
}

// Hook takes the call of a forge for a Source, and has it looked at when the call may be about what it takes. It returns nil for a call
// that was taken, whether or not something follows from it; ErrBusy; an error with the code WebhookMalformed for one that is signed
// and says nothing; and WebhookRefused for any other one, which is alike for a wrong signature and for a Source that is not there.
func (s *Sources) Hook(ctx context.Context, source types.NamespacedName, header http.Header, body io.Reader) error {
	select {
	case s.reads <- struct{}{}:
		defer func() { <-s.reads }()
	default:
		return ErrBusy
	}
	s.mu.Lock()
	a := s.actors[source]
	s.mu.Unlock()
	kind, secret := webhook.Generic, []byte(nil)
	var src *v1alpha1.Source
	if a != nil {
		src = a.current()
		if h := src.Spec.Webhook; h != nil {
			kind, secret = kindOf(h.Type), a.hookSecret(ctx, h.Secret)
		}
	}
	known := len(secret) > 0
	if !known {
		secret = []byte(rand.Text()) // the body is read, and refused, as any other
	}
	push, err := webhook.Verify(kind, header, body, secret)
	switch {
	case !known:
		return &reason.Error{Code: reason.WebhookRefused, Doing: "take a webhook", Cause: errors.New("it is not signed with the secret of a source")}
	case err != nil:
		return err
	case !push.Ping && push.Concerns(src.Spec.URL) && meant(&src.Spec.Ref, push.Ref):
		a.called(time.Now())
	}
	return nil
}

func kindOf(t v1alpha1.SourceForge) webhook.Kind {
	kind, err := webhook.ParseKind(strings.ToLower(string(t)))
	if err != nil {
		return webhook.Generic // the API takes no other
	}
	return kind
}

// meant tells whether what was pushed may be what a Source takes. What nobody knows may be.
func meant(r *v1alpha1.SourceRef, pushed string) bool {
	branch, isBranch := strings.CutPrefix(pushed, "refs/heads/")
	_, isTag := strings.CutPrefix(pushed, "refs/tags/")
	switch {
	case !isBranch && !isTag:
		return true
	case r.Tag != "":
		return pushed == "refs/tags/"+r.Tag
	case r.Semver != "":
		return isTag
	case r.Branch != "":
		return isBranch && branch == r.Branch
	case r.Commit != "":
		return true
	}
	return isBranch
}

// hookSecret is the secret of a webhook, nil for none. It is read at most once in secretKept.
func (a *actor) hookSecret(ctx context.Context, name string) []byte {
	h := &a.hook
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.name == name && time.Now().Before(h.until) {
		return h.secret
	}
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	var secret core.Secret
	h.name, h.secret, h.until = name, nil, time.Now().Add(secretKept)
	if err := a.of.options.Objects.Get(ctx, types.NamespacedName{Namespace: a.key.Namespace, Name: name}, &secret); err != nil {
		a.log.Info("the secret of a webhook is not read", "err", err)
		return nil
	}
	h.secret = []byte(strings.TrimRight(string(secret.Data[keyToken]), "\r\n"))
	return h.secret
}
