package apiserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"tako.dev/tako/internal/controllers/sources"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/webhook"
)

const (
	// webhookPrefix is where forges call: webhookPrefix NAMESPACE/NAME.
	webhookPrefix = "/hooks/sources/"
	// webhookMax is how long a call may take to come in: forges give up after ten seconds themselves.
	webhookMax = 10 * time.Second
	// webhookLines is how many calls a minute are written down, of those that are signed and of all others: a flood is told, fills no
	// disk, and hides none that counts.
	webhookLines = 60
	// nameMax is the length of a name of an object, with its namespace: what is longer names none.
	nameMax = 512
)

// What a forge is told. Its page of deliveries shows it to who sets the webhook up; it is alike for all who have not signed.
const (
	refusedWords = `this call is not signed as a source here asks for it. Compare:
- the address, https://SERVER/hooks/sources/NAMESPACE/NAME: there is a source of this name with spec.webhook;
- the type, spec.webhook.type: it is that of this forge;
- the secret: it is what the Secret that spec.webhook.secret names has under the key token.
`
	tooLargeWords = "the body is larger than a source takes; let the forge send push events only"
	slowWords     = "the body has not come in time"
	brokenWords   = "the body has not come whole"
	busyWords     = "too many calls at once; try again in a moment"
	methodWords   = "this address is for a forge, which calls it by POST"
)

// webhooks answers forges. They have no name here: that a call is signed with the secret of the Source that it is for is all that it
// proves, and all that it can do is to have that Source looked at now.
type webhooks struct {
	sources atomic.Pointer[sources.Sources] // nil while there are none
	audit   audit.Backend
	// Set before sources is.
	turns   *turns
	answers *prometheus.CounterVec

	signed, others lines
}

// prepare makes what taking calls needs.
func (h *webhooks) prepare(metrics prometheus.Registerer) error {
	if h.turns != nil {
		return nil // this server leads once more
	}
	h.turns = newTurns()
	h.answers = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tako_source_calls_total", Help: "Calls of forges for sources, by the status of the answer: 202 is one that is signed."}, []string{"code"})
	return metrics.Register(h.answers)
}

// handler takes the calls of forges out of what goes to next, and has take answer them.
func (h *webhooks) handler(take http.HandlerFunc, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, webhookPrefix) {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, methodWords, http.StatusMethodNotAllowed)
			return
		}
		take(w, r)
	})
}

func (h *webhooks) take(w http.ResponseWriter, r *http.Request) {
	rest := strings.TrimPrefix(r.URL.Path, webhookPrefix)
	kept := h.sources.Load()
	if kept == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "sources are not kept yet", http.StatusServiceUnavailable)
		return
	}
	status, words, err := h.hear(w, r, kept, rest)
	h.answers.WithLabelValues(strconv.Itoa(status)).Inc()
	h.note(r, status, err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, words, status)
}

// hear reads a call when it is its turn, and says what to answer. What is wrong with the reading is alike for every Source, and for none.
func (h *webhooks) hear(w http.ResponseWriter, r *http.Request, kept *sources.Sources, rest string) (status int, words string, err error) {
	if r.ContentLength > webhook.BodyBytesMax {
		w.Header().Set("Connection", "close") // the body is not read
		return http.StatusRequestEntityTooLarge, tooLargeWords, errBody
	}
	done, ok := h.turns.take(r.Context(), callerOf(r.RemoteAddr))
	if !ok {
		return http.StatusServiceUnavailable, busyWords, sources.ErrBusy
	}
	defer done()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(webhookMax)) // a connection that has none has a limit of its own
	namespace, name, _ := strings.Cut(rest, "/")
	if len(rest) > nameMax {
		namespace, name = "", ""
	}
	body := &heard{from: r.Body}
	said, err := kept.Hook(r.Context(), types.NamespacedName{Namespace: namespace, Name: name}, r.Header, body)
	switch {
	case body.bytes > webhook.BodyBytesMax:
		w.Header().Set("Connection", "close")
		return http.StatusRequestEntityTooLarge, tooLargeWords, errBody
	case errors.Is(body.err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, slowWords, errBody
	case body.err != nil:
		return http.StatusBadRequest, brokenWords, errBody
	}
	status, words = answerTo(said, err)
	return status, words, err
}

// errBody is of a call that was not read to its end.
var errBody = &reason.Error{Code: reason.WebhookMalformed, Doing: "read a webhook"}

// heard is the body of a call, and what came of reading it.
type heard struct {
	from  io.Reader
	bytes int64
	err   error // nil also at the end
}

func (b *heard) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// answerTo is what a forge is told: what follows from its call. Who has not signed learns nothing, not even whether there is such a Source.
func answerTo(said string, err error) (status int, words string) {
	switch {
	case err == nil:
		return http.StatusAccepted, said
	case errors.Is(err, sources.ErrBusy):
		return http.StatusServiceUnavailable, busyWords
	case reason.Is(err, reason.WebhookMalformed):
		return http.StatusBadRequest, err.Error() + "; " + reason.Of(err).Hint
	}
	return http.StatusUnauthorized, refusedWords
}

// note writes down who called, at a bounded rate.
func (h *webhooks) note(r *http.Request, status int, err error) {
	lines := &h.others
	if status == http.StatusAccepted {
		lines = &h.signed
	}
	omitted, ok := lines.may(time.Now())
	if !ok {
		return
	}
	now := metav1.NewMicroTime(time.Now())
	e := &auditinternal.Event{
		Level: auditinternal.LevelMetadata, AuditID: uuid.NewUUID(), Stage: auditinternal.StageResponseComplete,
		RequestURI: bounded(r.URL.Path), Verb: "call", User: authentication.UserInfo{}, SourceIPs: []string{from(r)}, UserAgent: bounded(r.UserAgent()),
		RequestReceivedTimestamp: now, StageTimestamp: now, ResponseStatus: &metav1.Status{Status: metav1.StatusSuccess, Code: int32(status)},
	}
	if err != nil {
		e.ResponseStatus.Status = metav1.StatusFailure
		e.Annotations = map[string]string{codeAnnotation: reason.Of(err).Code.String()}
	}
	if omitted > 0 {
		e.ResponseStatus.Message = fmt.Sprintf("%d calls were left out before this one, because there were too many", omitted)
	}
	h.audit.ProcessEvents(e)
}

// lines bounds how many are written in a minute. The zero value has written none.
type lines struct {
	mu      sync.Mutex // guards all below
	minute  time.Time
	written int
	omitted int
}

// may tells whether one more line may be written, and how many were not before it.
func (l *lines) may(now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.written = now, 0
	}
	if l.written >= webhookLines {
		l.omitted++
		return 0, false
	}
	l.written++
	omitted, l.omitted = l.omitted, 0
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
