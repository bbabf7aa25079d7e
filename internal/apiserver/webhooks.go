package apiserver

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"tako.dev/tako/internal/controllers/sources"
	"tako.dev/tako/internal/reason"
)

const (
	// webhookPrefix is where forges call: webhookPrefix NAMESPACE/NAME.
	webhookPrefix = "/hooks/sources/"
	// webhookMax is how long a call may take to come in: forges give up after ten seconds themselves.
	webhookMax = 10 * time.Second
	// webhookLines is how many calls a minute are written down: a flood is told, and fills no disk.
	webhookLines = 60
	// nameMax is the length of a name of an object, with its namespace: what is longer names none.
	nameMax = 512
)

// webhooks answers forges. They have no name here: that a call is signed with the secret of the Source that it is for is all that it
// proves, and all that it can do is to have that Source looked at now.
type webhooks struct {
	sources atomic.Pointer[sources.Sources] // nil while there are none
	audit   audit.Backend

	mu      sync.Mutex // guards all below
	minute  time.Time
	lines   int
	omitted int
}

// handler takes the calls of forges out of what goes to next.
func (h *webhooks) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, is := strings.CutPrefix(r.URL.Path, webhookPrefix)
		if !is {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST", http.StatusMethodNotAllowed)
			return
		}
		h.take(w, r, rest)
	})
}

func (h *webhooks) take(w http.ResponseWriter, r *http.Request, rest string) {
	kept := h.sources.Load()
	if kept == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "sources are not kept yet", http.StatusServiceUnavailable)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(webhookMax)) // a connection that has none has a limit of its own
	namespace, name, _ := strings.Cut(rest, "/")
	if len(rest) > nameMax {
		namespace, name = "", ""
	}
	err := kept.Hook(r.Context(), types.NamespacedName{Namespace: namespace, Name: name}, r.Header, r.Body)
	status, words := answerTo(err)
	h.note(r, status, err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, words, status)
}

// answerTo is what a forge is told. Who has not signed learns nothing, not even whether there is such a Source.
func answerTo(err error) (status int, words string) {
	switch {
	case err == nil:
		return http.StatusAccepted, "taken"
	case errors.Is(err, sources.ErrBusy):
		return http.StatusServiceUnavailable, "busy"
	case reason.Is(err, reason.WebhookMalformed):
		return http.StatusBadRequest, err.Error()
	}
	return http.StatusUnauthorized, "not signed with the secret of this source"
}

// note writes down who called, at a bounded rate.
func (h *webhooks) note(r *http.Request, status int, err error) {
	omitted, ok := h.mayNote(time.Now())
	if !ok {
		return
	}
	now := metav1.NewMicroTime(time.Now())
	e := &auditinternal.Event{
		Level: auditinternal.LevelMetadata, AuditID: uuid.NewUUID(), Stage: auditinternal.StageResponseComplete,
		RequestURI: r.URL.Path, Verb: "call", User: authentication.UserInfo{}, SourceIPs: []string{from(r)}, UserAgent: bounded(r.UserAgent()),
		RequestReceivedTimestamp: now, StageTimestamp: now, ResponseStatus: &metav1.Status{Status: metav1.StatusSuccess, Code: int32(status)},
	}
	if err != nil {
		e.ResponseStatus.Status = metav1.StatusFailure
		e.Annotations = map[string]string{codeAnnotation: reason.Of(err).Code.String()}
	}
	if omitted > 0 {
		e.ResponseStatus.Message = "calls were left out before this one, because there were too many"
	}
	h.audit.ProcessEvents(e)
}

// mayNote tells whether one more line may be written, and how many were not before it.
func (h *webhooks) mayNote(now time.Time) (omitted int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.minute) >= time.Minute {
		h.minute, h.lines = now, 0
	}
	if h.lines >= webhookLines {
		h.omitted++
		return 0, false
	}
	h.lines++
	omitted, h.omitted = h.omitted, 0
	return omitted, true
}

// from is the address of who called.
func from(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return ""
}

// bounded is a text that somebody else has made up, short.
func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), 256)], "") }
