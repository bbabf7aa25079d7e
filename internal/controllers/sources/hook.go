package sources

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// refShown is how much is shown of what a forge says that was pushed, characters.
const refShown = 100

// ErrBusy is the error of a call while too many others are read.
var ErrBusy = errors.New("too many webhooks at once")

// hook is what is known of the secret of a webhook.
type hook struct {
	mu      sync.Mutex // guards all below
	name    string
	secrets [][]byte // nil for none
	until   time.Time

	stale atomic.Bool // it has changed since
}

// Hook takes the call of a forge for a Source, and has it looked at when the call may be about what it takes. For a call that was taken it
// returns what follows from it, for whoever set it up. Errors are ErrBusy; one with the code WebhookMalformed for a call that is signed and
// says nothing; and WebhookRefused for any other one, which is alike for a wrong signature and for a Source that is not there.
func (s *Sources) Hook(ctx context.Context, source types.NamespacedName, header http.Header, body io.Reader) (said string, err error) {
	select {
	case s.reads <- struct{}{}:
		defer func() { <-s.reads }()
	default:
		return "", ErrBusy
	}
	s.mu.Lock()
	a := s.actors[source]
	s.mu.Unlock()
	kind, secrets := webhook.Generic, [][]byte(nil)
	var src *v1alpha1.Source
	if a != nil {
		src = a.current()
		if h := src.Spec.Webhook; h != nil {
			kind, secrets = kindOf(h.Type), a.hookSecrets(ctx, h.Secret)
		}
	}
	known := len(secrets) > 0
	if !known {
		secrets = [][]byte{[]byte(rand.Text())} // the body is read, and refused, as any other
	}
	push, err := webhook.Verify(kind, header, body, secrets...)
	switch {
	case !known:
		return "", &reason.Error{Code: reason.WebhookRefused, Doing: "take a webhook", Cause: errors.New("it is not signed with the secret of a source")}
	case err != nil:
		return "", err
	}
	return a.take(src, push), nil
}

// take looks when a push may be about what the Source takes, and says what follows.
func (a *actor) take(src *v1alpha1.Source, push webhook.Push) string {
	const nothing = "taken, and nothing follows: "
	switch {
	case push.Ping:
		return nothing + "it is a ping, signed with the right secret"
	case !push.Concerns(src.Spec.URL):
		return nothing + "it is about another repository than that of the source"
	case !meant(&src.Spec.Ref, push.Ref):
		return nothing + fmt.Sprintf("it is about %.*q, which is not what spec.ref of the source takes", refShown, push.Ref)
	}
	a.called(time.Now())
	if s := src.Spec.Suspend; s != nil && time.Now().Before(s.Until.Time) {
		return "taken: the source is suspended until " + s.Until.UTC().Format(time.RFC3339) + ", and looks at its repository then"
	}
	return "taken: the source looks at its repository now"
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

// hookSecrets are those of a webhook, nil for none: the one that counts, and the one before while it is changed. They are read at most once in
// secretKept, but for a change that is told.
func (a *actor) hookSecrets(ctx context.Context, name string) [][]byte {
	h := &a.hook
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stale.Swap(false) && h.name == name && time.Now().Before(h.until) {
		return h.secrets
	}
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	var secret core.Secret
	h.name, h.secrets, h.until = name, nil, time.Now().Add(secretKept)
	if err := a.of.options.Objects.Get(ctx, types.NamespacedName{Namespace: a.key.Namespace, Name: name}, &secret); err != nil {
		a.log.Info("the secret of a webhook is not read", "err", err)
		return nil
	}
	for _, key := range []string{keyToken, keyPrevious} {
		if token := strings.TrimRight(string(secret.Data[key]), "\r\n"); token != "" {
			h.secrets = append(h.secrets, []byte(token))
		}
	}
	return h.secrets
}
