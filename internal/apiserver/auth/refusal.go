package auth

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/client-go/util/flowcontrol"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// Refused clients are told of in the log this often a second, and this often at once: enough to see that somebody tries, and
	// too little to fill a disk.
	refusalsPerSecond, refusalsAtOnce = 1, 10
	// laterSeconds is when a client may try again who came too early: tokens and roles are read in a few milliseconds.
	laterSeconds = 1
)

// note is what authenticators and authorizers leave about one request, beside their answer.
type note struct {
	words   string                  // why the client is refused, which he may read
	later   bool                    // who knows him has not been read yet
	holds   func() bool             // whether what he was admitted by is still good; nil when nothing ends it
	allowed []authorizer.Attributes // what he was allowed: the request, and to act as somebody else where he does
}

type noteKey struct{}

// noteOf is the note about the request of a context; one that nobody reads for what is no request.
func noteOf(ctx context.Context) *note {
	if n, is := ctx.Value(noteKey{}).(*note); is {
		return n
	}
	return &note{}
}

// WithWords lets the answer 401 say why, where an authenticator has said that the client may know. To everybody else it says only
// that he is not known. As long as tokens and roles have not been read, nobody can know, and the answer is 503. It is to be around
// everything else.
func WithWords(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := &note{}
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&wordedWriter{ResponseWriter: w, note: n}), r)
	})
}

// mayKnow notes why a client is refused who has shown a secret that we made, so that he learns nothing that he could use.
func mayKnow(ctx context.Context, words string) { noteOf(ctx).words = words }

// wordedWriter writes an answer of its own in the place of a 401 without words, or of one that is too early.
type wordedWriter struct {
	http.ResponseWriter
	note     *note
	replaced bool
}

var _ responsewriter.UserProvidedDecorator = (*wordedWriter)(nil)

// Unwrap returns the writer below.
func (w *wordedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the answer.
func (w *wordedWriter) WriteHeader(code int) {
	switch {
	case w.note.later && (code == http.StatusUnauthorized || code == http.StatusForbidden):
		w.Header().Set("Retry-After", strconv.Itoa(laterSeconds))
		answer := apierrors.NewServiceUnavailable("the server has just started and has not read tokens and roles yet: try again in a moment").Status()
		answer.Details = &metav1.StatusDetails{RetryAfterSeconds: laterSeconds}
		w.replace(answer)
	case code == http.StatusUnauthorized && w.note.words != "":
		if warning, err := utilnet.NewWarningHeader(299, "-", w.note.words); err == nil {
			w.Header().Set("Warning", warning)
		}
		w.replace(apierrors.NewUnauthorized(w.note.words).Status())
	default:
		w.ResponseWriter.WriteHeader(code)
	}
}

// replace writes an answer in the place of the one that has begun.
func (w *wordedWriter) replace(status metav1.Status) {
	w.replaced = true
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // it is texts
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(int(status.Code))
	_, _ = w.ResponseWriter.Write(body) // if the client is gone, nobody reads it
}

// Write writes the answer's body.
func (w *wordedWriter) Write(b []byte) (int, error) {
	if w.replaced {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// logged tells the log of refused clients.
type logged struct {
	authenticator.Request
	log    *slog.Logger
	pace   flowcontrol.PassiveRateLimiter
	untold *atomic.Int64
}

// Logged tells the log of clients that are refused, and nobody else: the library would log each as an error of the server's.
func Logged(a authenticator.Request, log *slog.Logger) authenticator.Request {
	return logged{Request: a, log: log, pace: flowcontrol.NewTokenBucketPassiveRateLimiter(refusalsPerSecond, refusalsAtOnce), untold: new(atomic.Int64)}
}

// AuthenticateRequest asks who the client is.
func (l logged) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	response, known, err := l.Request.AuthenticateRequest(r)
	if err == nil || known {
		return response, known, nil
	}
	if !l.pace.TryAccept() {
		l.untold.Add(1)
		return nil, false, nil
	}
	from, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		from = r.RemoteAddr
	}
	l.log.Info("refused a client that is not known", "from", from, "why", err, "untold", l.untold.Swap(0))
	return nil, false, nil
}

// timed says in words what is wrong with the time of a certificate of the cluster's own authority.
type timed struct {
	authenticator.Request
	options x509.VerifyOptions
	now     func() time.Time
}

// AuthenticateRequest asks the authenticator of certificates.
func (t timed) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := t.Request.AuthenticateRequest(r)
	if err == nil {
		if ok {
			until := r.TLS.PeerCertificates[0].NotAfter
			noteOf(r.Context()).holds = func() bool { return !t.now().After(until) }
		}
		return response, ok, nil
	}
	words, is := trust.ExplainCertificate("check the client's certificate", err, t.now())
	if !is {
		return nil, false, err
	}
	if c := r.TLS.PeerCertificates[0]; words.Code == reason.CertificateTime && t.isOurs(c) {
		mayKnow(r.Context(), timeWords(words, c.NotAfter, t.now()))
	}
	return nil, false, words
}

// isOurs says whether a certificate is good at a time when it is valid.
func (t timed) isOurs(c *x509.Certificate) bool {
	options := t.options
	options.CurrentTime = c.NotBefore
	_, err := c.Verify(options)
	return err == nil
}

// timeWords is all that an error about a time says, on one line; the zero until is for ever.
func timeWords(e *reason.Error, until, now time.Time) string {
	words := fmt.Sprintf("%v; %s", e.Cause, e.Hint)
	if !until.IsZero() && !now.Before(until) {
		return "it has expired: " + words
	}
	return "it is not valid yet: " + words
}
